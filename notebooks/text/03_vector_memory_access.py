# ---
# jupyter:
#   jupytext:
#     formats: ipynb,text//py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Vector memory access
#
# A lane may load one float32 with an instruction, or two, or four that lie side by side. The toggle is
# `vector`: the elements in each load of B and each store of C. The compiler does not widen loads for you,
# so a kernel has to spell it out. It often pays, and not always.
#
# You will
#
# - predict what `vector` changes and what it leaves alone, and count it;
# - find `LDG.E` turn into `LDG.E.128` in the machine code, and see why it has to be asked for;
# - know when a vector is not legal, and when it is legal and a mistake.
#
# No cell needs a GPU: times come from a record, all else from the emulator and the compiler.

# %% tags=["exercise"]
import inspect
from collections import Counter, defaultdict
from math import ceil, exp, log

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numba import cuda, float32, int64
from rich import print as show
from rich.table import Table

import sparsekern as sk
from sparsekern.datasets import look_alike
from sparsekern.generators import uniform
from sparsekern.kernels import spmm as page
from sparsekern.kernels.sddmm import make_sddmm
from sparsekern.machine import lanes
from sparsekern.naming import format_variant
from sparsekern.reference import error, spmm_reference, tolerance
from sparsekern.study import canvas, codegen, sass
from sparsekern.study.check import check
from sparsekern.study.cost import bounds
from sparsekern.study.counters import count
from sparsekern.study.gpus import GPUS
from sparsekern.study.occupancy import occupancy
from sparsekern.study.plot import counts_change, ladder_bars, lane_map, trace
from sparsekern.study.records import load

H200 = GPUS["h200"]
rng = np.random.default_rng(0)

# %% [markdown]
# ## The result first
#
# A kernel that gives each row of C to one group of lanes reads 4 bytes of B for each multiply-add, and the
# L1 cache of an SM delivers so many bytes a clock. That is the **L1 bound**: no kernel of this kind is
# faster. How near to it do scalar loads come, and how near do vectors? The record has a time for each step
# of the ladder, on many pruned layers; two neighbouring steps differ in `vector` alone.

# %%
record = load("ladder")
measured = f"{record.provenance['gpu']}, {record.provenance['date']}"


def climbs(op):
    """For each problem of the record, the row of each step of the ladder: [{step: row}, ...]."""
    names = {format_variant(variant): step for step, variant in sk.LADDERS[op]}
    found = defaultdict(dict)
    for row in record.rows:
        if row.op == op:
            found[row.problem][names[row.variant]] = row
    return list(found.values())


def l1_bound_us(row):
    """Of SpMM: the bytes of B for all multiply-adds, at the speed of all L1 caches together."""
    return 4 * row.nnz * row.n / H200.l1_bytes_per_second * 1e6


def mean(ratios):
    """The geometric mean."""
    return exp(sum(map(log, ratios)) / len(ratios))


BEFORE, AFTER = "prescale=True", "vector=4"
steps = dict(sk.LADDERS["spmm"])
assert sk.without(steps[AFTER], "vector") == (steps[BEFORE], {})

problems = climbs("spmm")
gain = [p[BEFORE].time_us / p[AFTER].time_us for p in problems]
slower = [p for p, g in zip(problems, gain, strict=True) if g < 1]
print(f"SpMM on {measured}, {len(problems)} problems, L2 {record.provenance['l2']}")
print(f"vector=4 is {mean(gain):.2f}x vector=1 in geometric mean, at best {max(gain):.2f}x")
print(f"and in {len(slower)} problems it is slower, at worst {min(gain):.2f}x")

layer, width = "transformer/magnitude_pruning/0.9/body_encoder_layer_0_ffn_conv1_fully_connected.smtx", 2048
shown = next(p for p in problems if (p[AFTER].matrix, p[AFTER].n) == (layer, width))
row = shown[AFTER]
bars = ladder_bars(
    [(name, shown[step].time_us, l1_bound_us(row)) for name, step in (("vector=1", BEFORE), (AFTER, AFTER))],
    subject=f"SpMM, {row.m} x {row.k}, {row.sparsity:.0%} sparse, n={row.n}: {row.matrix}. {measured}",
)

# %% [markdown]
# One toggle, and here the kernel comes far nearer to the bound. The same toggle makes other problems slower.
# By the end of this chapter you know what to ask first: how many columns B has, and how many warps are left.
#
# ## Predict
#
# Take a warp for each strip of C (`subwarp=32`), nothing staged. For each nonzero of its row, the warp
# reads `32 * vector` columns of B. B has `n` of them, so a row of C is cut into `n / (32 * vector)` strips,
# and each strip goes over the nonzeros once. That is enough to say, for `vector` of 1, 2 and 4:
#
# - how many *instructions* load B, for all warps together;
# - in how many *sectors*, of 32 bytes, lies what each of those loads, added up;
# - how many instructions load the values of A;
# - how many *multiply-adds* there are: an instruction does one for each lane;
# - how many *warps* the launch has.
#
# Write down yours before you read on. These are ours:

# %% tags=["exercise"]
a, n = uniform(32, 64, sparsity=0.9, seed=1), 128

# %%
WIDTHS = 1, 2, 4
print(f"{a}, n={n}\n")


def predict(vector, n):
    strips = ceil(n / (32 * vector))
    return {
        "loads of B": a.nnz * strips,
        "sectors of B": a.nnz * n * 4 // 32,
        "loads of values": a.nnz * strips,
        "multiply-adds": a.nnz * strips * vector,
        "warps": a.shape[0] * strips,
    }


predicted = {vector: predict(vector, n) for vector in WIDTHS}
print(f"{'predicted':18}" + "".join(f"{f'vector={vector}':>10}" for vector in WIDTHS))
for name in predicted[1]:
    print(f"{name:18}" + "".join(f"{predicted[vector][name]:10}" for vector in WIDTHS))

# %% [markdown]
# And now the emulator counts what the warps did.


# %% tags=["exercise"]
def plainly(vector, **toggles):
    return sk.SpmmVariant(vector=vector, rows_per_block=4, **toggles)


# %%
def totals(counters):
    """What `predict` predicts. One number each: here all lanes of a warp go one way."""
    found = {
        "loads of B": counters.of("B")["instructions"],
        "sectors of B": counters.of("B")["sectors"],
        "loads of values": counters.of("values")["instructions"],
        "multiply-adds": counters["multiply-adds"],
    }
    assert all(low == high for low, high in found.values())
    return {name: low for name, (low, _) in found.items()} | {"warps": counters.work.size}


counted = {vector: count("spmm", a, n, plainly(vector)) for vector in WIDTHS}
for vector in WIDTHS:
    assert totals(counted[vector]) == predicted[vector]
print("counted as predicted for vector =", *counted)

# %% [markdown]
# A vector saves instructions, and not one sector of B: the bytes that a product needs stay what they were.
# Nor does it save a multiply-add. What else falls comes from the wider strip: there are fewer strips, so A
# is read less often, and there are fewer warps. Keep that last one in mind.
#
# ## Who loads what
#
# To see the vector alone, keep the strip as wide as it was. A lane may also own several vectors, `items` of
# them, `subwarp * vector` columns apart. Here eight lanes share a strip of 32 columns in both pictures:
# first four loads of one column, then one load of four. Numbers in boxes are lanes; each box is a load.

# %%
tiny = uniform(4, 8, sparsity=0.8, seed=3)
axes = lane_map(tiny, n=32, variant=plainly(1, subwarp=8, items=4))

# %%
axes = lane_map(tiny, n=32, variant=plainly(4, subwarp=8))

# %% [markdown]
# In both, what eight lanes load *with one instruction* lies side by side, so that no sector is read for
# nothing. In the first, a lane's own columns lie far apart. That is on purpose, as the next kernel shows.
#
# ## The naive version
#
# Why not write four columns side by side for each lane, and leave it to the compiler to make one load of
# them? This kernel does. It has the signature of the library's, so it takes the same variants.


# %% tags=["exercise"]
def make_side_by_side(variant, types):
    """C = A @ B. A lane owns `vector` columns side by side, and names each by itself."""
    VECTOR, SUBWARP, ROWS = variant.vector, variant.subwarp, variant.rows_per_block

    def spmm(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
        column = (cuda.blockIdx.y * SUBWARP + cuda.threadIdx.x) * VECTOR  # the first of mine
        if row < m and column < n:
            acc = cuda.local.array(VECTOR, float32)  # registers
            for v in range(VECTOR):
                acc[v] = float32(0)
            for p in range(offsets[row], offsets[row + 1]):
                start = int64(columns[p]) * ldb + column
                for v in range(VECTOR):
                    acc[v] = lanes.fma(values[p], B[start + v], acc[v])
            for v in range(VECTOR):
                if column + v < n:
                    C[int64(row) * ldc + column + v] = acc[v]

    return spmm


def share(c, a, b):
    """The largest error of `c` as a share of what rounding to float32 may cost."""
    return error(c, *spmm_reference(a, b)) / tolerance(a.topology.row_lengths.max())


# %%
b = rng.standard_normal((a.shape[1], n), dtype=np.float32)
assert share(sk.spmm(a, b, plainly(4), make=make_side_by_side, backend="emulator"), a, b) <= 1

# %% [markdown]
# Two questions, and guesses first. Does the compiler make one load of the four? If it does not, what does a
# warp's load of every fourth column cost in sectors?


# %%
def main_loop(make, variant):
    """The machine code of the innermost loop that does most, and how many nonzeros a turn of it takes."""
    loops = sass.loops(codegen.sass(make, variant))
    loop = max(loops, key=lambda text: sass.classes(text).get("multiply-adds", 0))
    return loop, sass.classes(loop)["multiply-adds"] / (variant.vector * variant.items)


kernels = {
    "scalars, 4 items": (sk.make_spmm, plainly(1, items=4)),
    "side by side": (make_side_by_side, plainly(4)),
    "vectors": (sk.make_spmm, plainly(4)),
}
counts, loads = {}, {}
print(f"{'':18}{'--- of B, for each nonzero ---':^34}")
print(f"{'':18}{'instructions':>14}{'sectors':>10}{'least':>8}   in the main loop, for each nonzero")
for name, (make, variant) in kernels.items():
    counts[name] = count("spmm", a, n, variant, make=make)
    loop, nonzeros = main_loop(make, variant)
    loads[name] = {width: number / nonzeros for width, number in sass.widths(loop).items()}
    of_b = counts[name].of("B")
    each = [of_b[what].low / a.nnz for what in ("instructions", "sectors")]
    least = n * 4 / 32
    print(
        f"{name:18}{each[0]:14.2f}{each[1]:10.2f}{least:8.2f}   "
        + ", ".join(f"{number:g} {width}" for width, number in sorted(loads[name].items()))
    )

# What is said of it below:
assert loads["side by side"] == loads["scalars, 4 items"] == {"LDG.E": 6}
assert loads["vectors"] == {"LDG.E": 2, "LDG.E.128": 1}
sectors = {name: c.of("B")["sectors"].low for name, c in counts.items()}
assert sectors["scalars, 4 items"] == sectors["vectors"] == a.nnz * least
assert sectors["side by side"] == 4 * sectors["vectors"]

# %% [markdown]
# The compiler merges nothing. It may not: nobody promised it that `B[start]` lies on 16 bytes, and an
# `LDG.E.128` elsewhere is an error. So there are four `LDG.E` for B, and two for A's value and column. And
# each of the four now reads every fourth column, so that it touches the sectors of all: four times as many.
# Scalar code does better with a lane's columns far apart, `items`; and then there is nothing to merge.
#
# ## The kernel
#
# The promise has to be in the code. This is the line that the toggle adds to the kernel of SpMM, and that of
# SDDMM; below, what `lanes.load` and `load_if` come to.

# %%
for make in (page.make_spmm, make_sddmm):
    new = [line.strip() for line in inspect.getsource(make).splitlines() if "# New: vector" in line]
    print(f"{make.__name__}:", *new, sep="\n  ")
    assert len(new) == 1
print("\n" + inspect.getsource(lanes._load))

# %% [markdown]
# The pointer to a float becomes a pointer to a vector of `width` floats, and the load carries its alignment:
# `size * width` bytes. That is the promise; who keeps it is the subject of a later section. `load_if` is the
# same under a condition, for lanes whose columns lie past the end of B.
#
# ## Check
#
# `check` runs the kernel on hard matrices, with NaN wherever A touches nothing. And `vector` changes who
# computes an element of C, not how: the sums are the same, bit for bit.

# %%
assert check(sk.make_spmm, plainly(4))
one, four = (sk.spmm(a, b, plainly(vector), backend="emulator") for vector in (1, 4))
assert np.array_equal(one, four) and share(four, a, b) <= 1
print("vector=1 and vector=4 agree in every bit")

# %% [markdown]
# ## Evidence: counts
#
# The two kernels of the pictures, on the matrix of the prediction: the same strips, the same warps.

# %%
axes = counts_change(
    counts["scalars, 4 items"],
    counts["vectors"],
    [
        ("B", "load", "instructions"),
        ("B", "load", "sectors"),
        "global load bytes",
        ("C", "store", "instructions"),
        "multiply-adds",
    ],
    title="one vector of 4 for 4 scalars",
    subject=f"SpMM, {a.shape[0]} x {a.shape[1]}, {a.nnz} nonzeros, n={n}, subwarp=32",
)

# %% [markdown]
# ## Evidence: code
#
# Fewer loads also need fewer addresses, and fewer questions whether a column is inside: that is the integer
# arithmetic. The main loop takes several nonzeros in a turn; what it does is divided by those. (Compilers
# change; what this chapter relies on is asserted.)

# %%
pages = {name: kernels[name] for name in ("scalars, 4 items", "vectors")}
costs = {}
for name, (make, variant) in pages.items():
    loop, nonzeros = main_loop(make, variant)
    costs[name] = {kind: number / nonzeros for kind, number in sass.classes(loop).items()}
everything = dict.fromkeys(kind for cost in costs.values() for kind in cost)
table = Table("in the main loop", *pages, title="instructions for each nonzero")
for kind in everything:
    table.add_row(kind, *(f"{costs[name].get(kind, 0):.2f}" for name in pages))
table.add_row("all", *(f"{sum(costs[name].values()):.2f}" for name in pages))
show(table)

table = Table("variant", "registers", "an SM of the H200 holds", title="registers and occupancy")
for vector in WIDTHS:
    taken = codegen.resources(sk.make_spmm, plainly(vector))
    table.add_row(
        f"vector={vector}", str(taken.registers), str(occupancy(taken, plainly(vector).threads, H200))
    )
    assert taken.spill_loads == taken.stack_bytes == 0
show(table)

assert sum(costs["vectors"].values()) < 0.9 * sum(costs["scalars, 4 items"].values())
assert costs["vectors"]["multiply-adds"] == costs["scalars, 4 items"]["multiply-adds"] == 4
assert costs["vectors"]["integer arithmetic"] < costs["scalars, 4 items"]["integer arithmetic"]

# %% [markdown]
# ## Evidence: bounds
#
# `bounds` tells what a launch needs at least of each resource, if it were spread evenly over the GPU: to
# issue its instructions, and to move bytes through L1. (There it counts more than the first picture did: what
# is staged in shared memory comes through L1, too.) Here for two problems: the one of the first picture, and
# the one that `vector=4` slows down most. The layers are generated look-alikes, with the sizes and the spread
# of row lengths of the recorded ones.

# %%
worst = min(slower, key=lambda p: p[BEFORE].time_us / p[AFTER].time_us)
used = {}
print(f"{'':28}{'issue, µs':>10}{'L1, µs':>8}{'measured, µs':>14}   of it, by what binds")
for p in (shown, worst):
    row = p[AFTER]
    print(f"{row.m} x {row.k}, {row.sparsity:.0%} sparse, n={row.n}: {row.matrix}")
    likeness = look_alike(row.matrix)
    for step, vector in ((BEFORE, 1), (AFTER, 4)):
        limits = bounds("spmm", likeness, row.n, steps[step], H200)
        us = limits.us
        used[row.matrix, vector] = max(us["issue"], us["L1"]) / p[step].time_us
        print(
            f"{f'vector={vector}':>28}{us['issue']:10.2f}{us['L1']:8.2f}{p[step].time_us:14.2f}"
            f"   {limits.share(p[step].time_us):4.0%}, {limits.binding}"
        )

assert used[layer, 4] > 0.4 > 0.2 > used[worst[AFTER].matrix, 4]

# %% [markdown]
# A vector eases both, as it should: instructions, and, with fewer strips, what is staged for each. Where the
# GPU is busy, time follows. In the second problem neither resource was ever short: warps wait there, and the
# question is how many there are to take turns.
#
# ## Legal or not
#
# A load of `4 * vector` bytes has to start on a multiple of `4 * vector` bytes. That is the promise of
# `lanes.load`, and the variant keeps it: B and C have to start on one, and the rows have to be a multiple of
# `vector` apart (`ldb`, `ldc`), or every row after the first would start off it. B with 49 columns:

# %%
dense = rng.standard_normal((a.shape[1], 49), dtype=np.float32)
for ldb in (49, 52):
    starts = [4 * ldb * i for i in range(4)]
    off = [start % 16 for start in starts]
    print(f"ldb={ldb}: rows 0 to 3 start at bytes {starts}, so many after a multiple of 16: {off}")
    assert (max(off) == 0) == (ldb % 4 == 0)

try:
    sk.spmm(a, dense, plainly(4), backend="emulator")
except sk.VariantError as refused:
    print(f"\n{refused}")
else:
    raise AssertionError("49 columns are no multiple of 4")

padded = np.zeros((a.shape[1], 52), np.float32)  # memory for 52, of which 49 are B's
padded[:, :49] = dense
c = sk.spmm(a, padded[:, :49], plainly(4), backend="emulator")
print(f"\nwith ldb 52 it runs: C is {c.shape}, {c.strides[0] // 4} floats from row to row")
assert share(c, a, dense) <= 1 and c.strides[0] == 4 * 52
chosen = [sk.plan_spmm(a, x, backend="emulator").variant.vector for x in (dense, padded[:, :49])]
print(f"without a variant: vector={chosen[0]} for ldb 49, vector={chosen[1]} for ldb 52")
assert chosen == [1, 4]

try:
    sk.spmm(a, b[:, 1:], plainly(4), backend="emulator")
except sk.VariantError as refused:
    print(f"\nb[:, 1:]: {refused}")
else:
    raise AssertionError("the second column does not start on 16 bytes")

# %% [markdown]
# The last vector of each row reads padding, which is harmless, and C beside its last column is not written:
# the kernel stores the tail element by element. A slice such as `b[:, 1:]` is refused for its first address,
# though its rows are well apart. Two ways out, if a variant is refused: pad the rows, as here, or take a
# narrower vector. Without a variant, `spmm` takes what is legal.
#
# ## When it does not help
#
# **B is narrow.** A strip of 32 lanes and vectors of 4 has 128 columns. If B has 32, most lanes find their
# columns past its end. Predict, for each nonzero: loads of B and multiply-adds, with `vector=1`, with
# `vector=4`, and with `vector=4` and eight lanes, where a warp takes four rows at once, as long as the
# longest of them lasts.

# %%
narrow = 32
lengths = a.topology.row_lengths
together = int(lengths.reshape(-1, 4).max(axis=1).sum())  # of four rows, the longest
cases = {  # variant: (loads of B, multiply-adds)
    plainly(1): (a.nnz, a.nnz),
    plainly(4): (a.nnz, 4 * a.nnz),
    plainly(4, subwarp=8): (together, 4 * together),
}
print(f"n={narrow}, for each nonzero {'loads of B':>22}{'multiply-adds':>15}{'warps':>7}")
for variant, expected in cases.items():
    counters = count("spmm", a, narrow, variant)
    found = counters.of("B")["instructions"], counters["multiply-adds"]
    assert tuple(x.low for x in found) == tuple(x.high for x in found) == expected
    print(f"{variant!s:36}{expected[0] / a.nnz:9.2f}{expected[1] / a.nnz:15.2f}{counters.work.size:7}")

assert 1 < together / a.nnz * 4 < 1.5

# %% [markdown]
# A vector that has nobody to share its columns with costs four multiply-adds where one would do, and saves no
# load. Eight lanes mend that, but for rows of different lengths in one warp. Yet look at the last column.
#
# **The warps run out.** A wider strip means fewer strips, and fewer warps. While one warp waits for memory,
# an SM needs others to go on with. The record knows what happens; first, your guess: below how many warps for
# each SM will `vector=4` be slower? An H200 has so many SMs, each of which can hold so many warps:

# %%
print(H200.sms, "SMs, for", H200.warps_per_sm, "warps each")


def warps_per_sm(row, vector):
    """Of a launch with a warp for each strip."""
    return row.m * ceil(row.n / (32 * vector)) / H200.sms


def idle(row, vector):
    """Share of the columns of its strips that B does not have."""
    return 1 - row.n / (32 * vector * ceil(row.n / (32 * vector)))


warps = [warps_per_sm(p[AFTER], 4) for p in problems]
partly = [idle(p[AFTER], 4) > 0.1 for p in problems]

axis = canvas.axes(None, 7, 4)
for look, chosen in ((dict(marker="o"), False), (dict(marker="s", markerfacecolor="none"), True)):
    at = [(x, y) for x, y, some in zip(warps, gain, partly, strict=True) if some == chosen]
    label = f"{'more' if chosen else 'less'} than a tenth of the lanes idle"
    axis.plot(*zip(*at, strict=True), **look, color=canvas.shades(3)[0], linestyle="", alpha=0.7, label=label)
axis.axhline(1, color="black", linewidth=1)
axis.set(xscale="log", yscale="log")
for one, ticks in ((axis.xaxis, [4, 8, 16, 32, 64, 128, 256]), (axis.yaxis, [0.5, 0.7, 1, 1.4, 2, 2.8])):
    one.set_major_locator(FixedLocator(ticks))
    one.set_minor_locator(NullLocator())
    one.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
canvas.label(
    axis, "warps for each SM, with vector=4 (log scale)", "time with vector=1 / vector=4 (log scale)"
)
canvas.legend_above(axis)
most = max(x for x, g in zip(warps, gain, strict=True) if g < 1)
axis = canvas.claim(
    axis,
    f"vector=4 is slower in {len(slower)} of {len(problems)} problems, "
    f"none with more than {ceil(most)} warps an SM",
    f"SpMM, the layers of the record, each with its own n. {measured}",
    canvas.LINE,
)

many = [g for x, g in zip(warps, gain, strict=True) if x > 32]
few = [g for x, g, some in zip(warps, gain, partly, strict=True) if x < 8 and not some]
few_idle = [g for x, g, some in zip(warps, gain, partly, strict=True) if x < 8 and some]
for name, found in (("> 32", many), ("< 8, lanes busy", few), ("< 8, lanes idle", few_idle)):
    spread = f"from {min(found):.2f}x to {max(found):.2f}x"
    print(f"warps an SM {name:16} {len(found):2} problems, {mean(found):.2f}x in geometric mean, {spread}")
assert min(many) > 1 and min(few) < 1 < max(few) and max(few_idle) < 1 and mean(many) > 1.5 * mean(few)

# %% [markdown]
# With warps to spare, it never lost. With few, it is a gamble; with few and idle lanes, it lost every time.
# The counts alone did not show it: they say what a launch does, not how long it waits.
#
# What mends it? Narrower subwarps make the lanes busy again, and the ladder takes `subwarp=16` right after
# `vector=4`. The record on the problems that `vector` had slowed down, and on all:

# %%
later = [step for step, _ in sk.LADDERS["spmm"]]
later = later[later.index(AFTER) + 1 :]
mended = Counter(
    next((step for step in later if p[step].time_us < p[BEFORE].time_us), "none of them") for p in slower
)
print(f"of the {len(slower)}, first faster than before `vector` with:", dict(mended))
worse = sum(p["subwarp=16"].time_us > p[AFTER].time_us for p in problems)
print(f"subwarp=16 alone: slower than the step before it in {worse} of {len(problems)} problems")
assert mended["in_flight=8"] > len(slower) / 2 and not mended["subwarp=16"] and worse == len(problems)

# %% [markdown]
# Not the narrower subwarp: on its own, that step made every problem slower, and the next chapter asks why. In
# most it was `in_flight`: where few warps are left to take turns, each has to have more loads under way.
#
# ## A glance at SDDMM
#
# SDDMM multiplies a row of `lhs` with a row of `rhs` at each nonzero. Its lanes share the *inner* dimension,
# and `vector` says how much of it a lane takes at once. The launch is made of strips of nonzeros. So: what
# becomes of loads, sectors and warps? And should it lose where SpMM did?

# %%
topology, inner = uniform(16, 32, sparsity=0.8, seed=1), 64
strips = dict(subwarp=8, tile_nnz=8, rows_per_block=4)
seen = {
    vector: count("sddmm", topology, inner, sk.SddmmVariant(**strips, vector=vector)) for vector in WIDTHS
}
for vector, counters in seen.items():
    left, right = counters.of("lhs"), counters.of("rhs")
    print(
        f"vector={vector}: loads of lhs {left['instructions']}, of rhs {right['instructions']}; "
        f"sectors of lhs {left['sectors']}; warps {counters.work.size}"
    )
    for name, scaled in (("instructions", 1 / vector), ("sectors", 1)):
        assert left[name].low == seen[1].of("lhs")[name].low * scaled
    assert right["instructions"].low == seen[1].of("rhs")["instructions"].low / vector
    assert counters.work.size == seen[1].work.size

ratios = [p["subwarp=8"].time_us / p["vector=4"].time_us for p in climbs("sddmm")]
print(f"\non {measured}, {len(ratios)} problems: {mean(ratios):.2f}x vector=1 in geometric mean,")
print(f"from {min(ratios):.2f}x to {max(ratios):.2f}x")
assert min(ratios) > 1 and mean(ratios) > mean(gain)

# %% [markdown]
# The same law for the loads; but no warp is lost, and in the record no problem was slower. (Counts are ranges
# where the subwarps of a warp may drift apart.)
#
# ## Exercise 1: fifty columns
#
# B has 50 columns, and you may not pad it. Choose toggles. Your cost is what the warps issue for each
# nonzero: loads, from global and shared memory, and multiply-adds. So that a GPU has something to go on with,
# the launch must keep half a warp for each row of C.
#
# Stuck? [solutions/03_vector_memory_access](solutions/03_vector_memory_access.ipynb) has an answer
# to each exercise, and why.

# %% tags=["exercise"]
GOAL_1 = 4.9
fifty = rng.standard_normal((a.shape[1], 50), dtype=np.float32)


def check_1(variant):
    try:
        c = sk.spmm(a, fifty, variant, backend="emulator")
        counters = count("spmm", a, 50, variant)
    except sk.VariantError as refused:
        return f"not yet: {refused}"
    if not share(c, a, fifty) <= 1:
        return "not yet: C is wrong"
    launched, least = counters.work.size, a.shape[0] // 2
    if launched < least:
        return f"not yet: {launched} warps, and there must be {least}"
    issued = "global load instructions", "shared load instructions", "multiply-adds"
    cost = sum(counters[name].high for name in issued) / a.nnz
    return f"{'solved' if cost <= GOAL_1 else 'not yet'}: cost {cost:.2f}, goal {GOAL_1}"


# %%
answer_1 = sk.SpmmVariant(vector=1, subwarp=32, rows_per_block=4)
check_1(answer_1)

# %% [markdown]
# ## Exercise 2: spell it out
#
# Here B has the same 50 columns, and memory for 52 in each row; so has C. `make_side_by_side` is right, but
# loads each column by itself. Give it vector access (`lanes.load`, `lanes.axpy`, `lanes.store`,
# `lanes.take`), and mind the tail: what lies between the rows of C is not yours. Your cost is the loads of B
# for each nonzero, of all lanes together.

# %% tags=["exercise"]
GOAL_2 = ceil(50 / 4)
roomy = np.zeros((a.shape[1], 52), np.float32)
roomy[:, :50] = fifty


def check_2(make):
    b, variant = roomy[:, :50], plainly(4, subwarp=16)
    c = np.full((a.shape[0], 52), np.nan, np.float32)[:, :50]
    plan = sk.plan_spmm(a, b, variant, make=make, backend="emulator", out=c)
    try:
        plan(a.values, b, out=c)
    except sk.EmulatorError as caught:
        return f"not yet: {str(caught).splitlines()[0]}"
    if not share(c, a, fifty) <= 1:
        return f"not yet: C is wrong, and {np.isnan(c).mean():.0%} of it never written"
    cost = sum(x.array == "B" and x.kind == "load" for x in trace(plan, a.values, b)) / a.nnz
    return f"{'solved' if cost <= GOAL_2 else 'not yet'}: cost {cost:.1f}, goal {GOAL_2}"


# %%
answer_2 = make_side_by_side
check_2(answer_2)

# %% [markdown]
# ## A question to go on with
#
# With `subwarp=16`, two rows of A share a warp, and the lanes of a wide vector have work even where B is
# narrow: fewer loads, fewer multiply-adds. Yet in every problem of the record that step alone was slower.
# The two rows have different lengths. What does a warp do while one of them is done and the other is not;
# and what if the kernel has a barrier in its loop? That is the next chapter, `04_subwarp_tiling`.
