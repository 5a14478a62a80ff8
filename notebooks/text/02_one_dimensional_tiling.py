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
# # One-dimensional tiling
#
# A kernel for `C = A @ B` has to say which lane computes which element of C. The paper cuts C into
# *strips*: a piece of one row of C, as many columns as a warp can take. The warp runs over the nonzeros of
# that row of A, and its lanes share the columns. With `stage`, it first copies a tile of those nonzeros to
# shared memory. The tiles are one-dimensional, one row high. For dense matrices nobody would do that, and
# here it is right.
#
# You will
#
# - predict the traffic of A and B for one lane an element and for one warp a strip, and count it;
# - see what staging saves, which is not only loads, and what it costs;
# - find out how much of B a tile of several rows could share, for matrices that are pruned.
#
# No cell needs a GPU: times come from a record, all else from the emulator and the compiler.

# %% tags=["exercise"]
from collections import defaultdict
from math import ceil, exp, log

import numpy as np
from numba import cuda, float32, int64

import sparsekern as sk
from sparsekern.generators import uniform, with_row_lengths
from sparsekern.machine import lanes
from sparsekern.reference import error, spmm_reference, tolerance
from sparsekern.study.counters import count

rng = np.random.default_rng(0)

# %%
import inspect
from textwrap import dedent

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from rich import print as show
from rich.table import Table

from sparsekern.datasets import look_alike
from sparsekern.kernels import spmm as page
from sparsekern.naming import format_variant, parse_variant
from sparsekern.study import canvas, codegen, sass
from sparsekern.study.check import check
from sparsekern.study.gpus import GPUS
from sparsekern.study.plot import counts_change, ladder_bars, lane_map
from sparsekern.study.records import load
from sparsekern.study.row_lengths import read_row_lengths
from sparsekern.study.source import source
from sparsekern.zoo import ZOO

H200 = GPUS["h200"]

# %% [markdown]
# ## The result first
#
# The first four steps of the ladder, on a layer of a Transformer. The bound is the one that chapter
# `03_vector_memory_access` explains: 4 bytes of B for each multiply-add, through the L1 caches of the GPU.

# %%
record = load("ladder")
measured = f"{record.provenance['gpu']}, {record.provenance['date']}"
STEPS = "plain", "subwarp=32", "rows_per_block=8", "stage=True"
ladder = dict(sk.LADDERS["spmm"])
names = {format_variant(ladder[step]): step for step in STEPS}
found = defaultdict(dict)
for row in record.rows:
    if row.op == "spmm" and row.variant in names:
        found[row.problem][names[row.variant]] = row
problems = list(found.values())


def mean(ratios):
    """The geometric mean."""
    return exp(sum(map(log, ratios)) / len(ratios))


def gains(step, before):
    return [p[before].time_us / p[step].time_us for p in problems]


layer, width = "transformer/magnitude_pruning/0.9/body_encoder_layer_0_ffn_conv1_fully_connected.smtx", 2048
shown = next(p for p in problems if (p["plain"].matrix, p["plain"].n) == (layer, width))
row = shown["plain"]
bound_us = 4 * row.nnz * row.n / H200.l1_bytes_per_second * 1e6
bars = ladder_bars(
    [(step, shown[step].time_us, bound_us) for step in STEPS],
    subject=f"SpMM, {row.m} x {row.k}, {row.sparsity:.0%} sparse, n={row.n}: {row.matrix}. {measured}",
)

print(
    f"SpMM on {measured}, {len(problems)} problems, L2 {record.provenance['l2']}: each step against the last"
)
for before, step in zip(STEPS, STEPS[1:], strict=False):
    ratios = gains(step, before)
    print(
        f"{step:18} {mean(ratios):.2f}x in geometric mean, from {min(ratios):.2f}x to {max(ratios):.2f}x; "
        f"slower in {sum(ratio < 1 for ratio in ratios)}"
    )
strips, blocks, staging = (gains(step, before) for before, step in zip(STEPS, STEPS[1:], strict=False))
assert mean(strips) > 2 and min(staging) > 1 and mean(blocks) < 1
assert sum(ratio < 1 for ratio in strips) == 4 and sum(ratio < 1 for ratio in blocks) > len(problems) / 2

# %% [markdown]
# The first step is the large one. The second made most problems slower, and still it is in the ladder. Why,
# is a section of its own below. The third helped everywhere.
#
# ## Predict
#
# In both of the first two kernels a lane computes one element of C. They differ in who sits beside whom in a
# warp. In `plain` (`subwarp=1`), the 32 lanes of a warp have 32 *rows*, and all of them the same column. With
# `subwarp=32`, they have 32 *columns* of the same row: a strip.
#
# A load of a warp costs one *sector*, of 32 bytes, for each that its lanes touch. So what does each of these
# do, for all warps together?
#
# - How many load instructions for the values of A, and in how many sectors?
# - How many for B, and in how many sectors?
#
# And with `stage`, where 32 lanes copy a tile of 32 nonzeros at a time (`tile_k=32`) to shared memory, and
# then each lane reads all of them there, how many
#
# - loads of values from global memory are left;
# - loads from shared memory are there instead;
# - barriers? There is one after a tile is written, and one before the next overwrites it.
#
# Write down yours, for the matrix below, before you read on. These are ours:

# %% tags=["exercise"]
a, n = uniform(64, 512, sparsity=0.9, seed=1), 64
lengths, offsets, columns = a.topology.row_lengths, a.topology.offsets, a.topology.columns

# %%
print(f"{a}, n={n}; rows of {lengths.min()} to {lengths.max()} nonzeros\n")
WARP, SECTOR = 32, 8  # lanes; floats of a sector


def sectors(positions):
    """Of the floats at `positions` of an array that starts with a sector."""
    return len({int(p) // SECTOR for p in positions})


def predict_plain():
    """A warp has 32 rows and a column, and goes on until the longest of them is done."""
    instructions = of_values = of_b = 0
    for top in range(0, len(lengths), WARP):
        rows = range(top, min(top + WARP, len(lengths)))
        for j in range(lengths[top : top + WARP].max()):
            at = [offsets[row] + j for row in rows if j < lengths[row]]
            instructions += n
            of_values += n * sectors(at)
            of_b += n * len(set(columns[at]))  # rows of B lie far apart: each is a sector
    return {
        "loads of values": instructions,
        "sectors of values": of_values,
        "loads of B": instructions,
        "sectors of B": of_b,
        "shared loads": 0,
        "barriers": 0,
    }


def predict_strips(tile_k=None):
    """A warp has a row and 32 columns. tile_k: nonzeros that it stages at a time; None is not at all."""
    strips = ceil(n / WARP)
    predicted = {
        "loads of values": a.nnz * strips,
        "sectors of values": a.nnz * strips,
        "loads of B": a.nnz * strips,
        "sectors of B": a.nnz * n // SECTOR,
        "shared loads": 0,
        "barriers": 0,
    }
    if tile_k:
        tiles = [
            range(p, min(p + tile_k, offsets[row + 1]))
            for row in range(len(lengths))
            for p in range(offsets[row], offsets[row + 1], tile_k)
        ]
        predicted["loads of values"] = strips * len(tiles)
        predicted["sectors of values"] = strips * sum(map(sectors, tiles))
        predicted["shared loads"] = strips * 2 * a.nnz  # a value and a column index
        predicted["barriers"] = strips * (2 * len(tiles) - len(lengths))  # none before a row's first tile
    return predicted


predicted = {
    "plain": predict_plain(),
    "subwarp=32": predict_strips(),
    "rows_per_block=8": predict_strips(),
    "stage=True": predict_strips(ladder["stage=True"].tile_k),
}
table = Table("predicted", *STEPS, box=None)
for name in predicted["plain"]:
    table.add_row(name, *(f"{predicted[step][name]:,}" for step in STEPS))
show(table)

# %% [markdown]
# And now the emulator counts what the warps did.


# %%
def totals(counters):
    """What we predicted. One number each: lanes of a warp that are done here wait for the others."""
    found = {
        "loads of values": counters.of("values")["instructions"],
        "sectors of values": counters.of("values")["sectors"],
        "loads of B": counters.of("B")["instructions"],
        "sectors of B": counters.of("B")["sectors"],
        "shared loads": counters["shared load instructions"],
        "barriers": counters["barriers"],
    }
    assert all(low == high for low, high in found.values())
    return {name: low for name, (low, _) in found.items()}


counted = {step: count("spmm", a, n, ladder[step]) for step in STEPS}
for step in STEPS:
    assert totals(counted[step]) == predicted[step]
print("counted as predicted:", *STEPS, sep="\n  ")

plain, strip, staged = (predicted[step] for step in ("plain", "subwarp=32", "stage=True"))
for what in ("values", "B"):
    print(
        f"sectors for each load of {what}:",
        *(f"{p[f'sectors of {what}'] / p[f'loads of {what}']:.1f}" for p in (plain, strip, staged)),
    )
assert plain["loads of B"] > 1.2 * strip["loads of B"] and plain["sectors of B"] > 6 * strip["sectors of B"]
assert plain["sectors of values"] > 20 * strip["sectors of values"]
assert 20 * staged["loads of values"] < strip["loads of values"]
assert staged["shared loads"] == 2 * strip["loads of values"]
assert staged["loads of B"] == strip["loads of B"] and staged["sectors of B"] == strip["sectors of B"]

# %% [markdown]
# A strip makes a load of B *coalesced*: its 32 lanes want 128 bytes that lie side by side, which are 4
# sectors, all of them used. A load of A becomes a *broadcast*: all lanes want the same number. And there are
# fewer instructions, for all lanes of a warp have the same row and so are done at the same time.
#
# Staging leaves B alone. What it saves are loads of A, nearly all of them; and each comes back as a load from
# shared memory. Nothing is gained by count alone. Keep that in mind for the section on code.
#
# ## Who loads what
#
# One block of each kernel, four rows of A. Numbers in boxes are lanes. First a lane for each element, then a
# warp for each strip. In the first picture each subwarp is one lane; the other 28 lanes of the warp have no
# row here.

# %%
tiny = uniform(4, 8, sparsity=0.7, seed=3)
axes = lane_map(tiny, n=32, variant=ladder["plain"])

# %%
axes = lane_map(tiny, n=32, variant=sk.SpmmVariant(subwarp=32, rows_per_block=4, stage=True))

# %% [markdown]
# Look at A in the second: with `stage`, lane 0 loads the first nonzero of the row, lane 1 the next. Without
# it, all lanes would load each.
#
# The tiling is *hierarchical*: a block takes some rows by some columns of C, each of its warps one row of
# that, each of its lanes some of the columns. Below the block, only columns are divided.
#
# ## The naive version
#
# Without toggles, the page of the library is short. This is what is left of it, the loop over a row, and what
# it does to one nonzero:

# %%
text = inspect.getsource(page.make_spmm)
start = text.index("        if not STAGE:")
print(dedent(text[start : text.index("        if STAGE:")]))

# %% [markdown]
# Where the lane sits decides all: `column` is `column_tile * TILE_N + lane * VECTOR`, and the row comes from
# `subwarp`. So one number of the variant, `subwarp`, turns one kernel of the first picture into the other. A
# kernel written by hand would look like this. It is the start of an exercise below, too.


# %% tags=["exercise"]
def make_strips(variant, types):
    """C = A @ B. A warp for each strip: one row, 32 columns, one for each lane."""
    ROWS = variant.rows_per_block

    def spmm(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
        column = cuda.blockIdx.y * 32 + cuda.threadIdx.x
        if row < m and column < n:
            total = float32(0)
            for p in range(offsets[row], offsets[row + 1]):
                total = lanes.fma(values[p], B[int64(columns[p]) * ldb + column], total)
            C[int64(row) * ldc + column] = total

    return spmm


def share(c, a, b):
    """The largest error of `c` as a share of what rounding to float32 may cost."""
    return error(c, *spmm_reference(a, b)) / tolerance(a.topology.row_lengths.max())


STRIPS = sk.SpmmVariant(subwarp=32, rows_per_block=8)
b = rng.standard_normal((a.shape[1], n), dtype=np.float32)
assert share(sk.spmm(a, b, STRIPS, make=make_strips, backend="emulator"), a, b) <= 1

# %% [markdown]
# ## The kernel
#
# This is what `stage` adds, with everything left out that belongs to toggles that are off.

# %%
kernel = source(sk.make_spmm, ladder["stage=True"])
print(dedent(kernel[kernel.index("    # New: stage,") : kernel.index("    if exists and part == 0:")]))

# %% [markdown]
# `SPLIT`, `SPARSE_VECTOR` and `SCALAR_STEPS` are 1 here, so that a lane copies one nonzero of a tile;
# `skip` and `head` are 0. A full tile has a loop of its own, for the compiler knows how long that is.
#
# Each warp has its own slice of shared memory, so it waits for nobody else: `syncwarp`, not a barrier of the
# block. The first one keeps a fast lane from writing the next tile over numbers that a slow lane still needs.
# The second makes sure that they are there before any lane reads them. Leave one out, and the emulator tells:


# %%
def make_unguarded(variant, types):
    """Strips with staging, one barrier short: right for rows of at most 32 nonzeros."""
    ROWS = variant.rows_per_block
    STAGED = 32 * ROWS

    def spmm(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        lane, slot = cuda.threadIdx.x, cuda.threadIdx.y * 32
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
        column = cuda.blockIdx.y * 32 + lane
        staged = cuda.shared.array(STAGED, float32)
        first, stop = offsets[row], offsets[row + 1]
        total = float32(0)
        for tile in range(first, stop, 32):
            if tile + lane < stop:
                staged[slot + lane] = values[tile + lane]
            cuda.syncwarp()  # the tile is there
            for j in range(min(32, stop - tile)):
                total = lanes.fma(staged[slot + j], B[int64(columns[tile + j]) * ldb + column], total)
        C[int64(row) * ldc + column] = total

    return spmm


try:
    sk.spmm(a, b, STRIPS, make=make_unguarded, backend="emulator")
except sk.EmulatorError as caught:
    print(f"{caught.kind}: {str(caught).splitlines()[0]}")
    assert caught.kind == "race"
else:
    raise AssertionError("a barrier is missing, and nobody noticed")

# %% [markdown]
# ## Check
#
# `check` runs a kernel on hard matrices, with NaN wherever A touches nothing. Without `matrices`, those are
# all of `sparsekern.zoo`; here, those whose rows are hard to stage. And each element is summed in the same
# order by all four kernels, so that they agree bit for bit.

# %%
hard = "one_giant_row", "long_and_empty_in_turn", "whole_tiles", "tiles_plus_and_minus_one", "pruned_layer"
assert check(sk.make_spmm, ladder["stage=True"], matrices={name: ZOO[name].make() for name in hard})
some = np.ascontiguousarray(b[:, :8])
results = [sk.spmm(a, some, ladder[step], backend="emulator") for step in STEPS]
assert all(np.array_equal(c, results[0]) for c in results) and share(results[0], a, some) <= 1
print("all four agree in every bit")

# %% [markdown]
# ## Evidence: counts

# %%
axes = counts_change(
    counted["plain"],
    counted["subwarp=32"],
    [
        ("values", "load", "instructions"),
        ("values", "load", "sectors"),
        ("B", "load", "instructions"),
        ("B", "load", "sectors"),
        ("C", "store", "sectors"),
        "multiply-adds",
    ],
    title="a warp for each strip",
    subject=f"SpMM, {a.shape[0]} x {a.shape[1]}, {a.nnz} nonzeros, n={n}. Before: a lane for each element",
    ax=canvas.axes(None, 9, 3.5),
)

# %% [markdown]
# ## Evidence: code
#
# Why does staging pay, if each load comes back? Look at the machine code of the loop over nonzeros. A place
# in global memory is a 64-bit address that has to be computed for each; a place in a tile is a constant
# distance from where the tile begins.

# %%
costs = {}
for step in ("rows_per_block=8", "stage=True"):
    loops = map(sass.classes, sass.loops(codegen.sass(sk.make_spmm, ladder[step])))
    costs[step] = min(  # of the copies of the loop, the one that needs fewest for a nonzero
        (
            {kind: c / loop["multiply-adds"] for kind, c in loop.items()}
            for loop in loops
            if "multiply-adds" in loop
        ),
        key=lambda each: sum(each.values()),
    )
table = Table("in the main loop", *costs, title="instructions for each nonzero")
for kind in dict.fromkeys(kind for cost in costs.values() for kind in cost):
    table.add_row(kind, *(f"{cost.get(kind, 0):.2f}" for cost in costs.values()))
table.add_row("all", *(f"{sum(cost.values()):.2f}" for cost in costs.values()))
show(table)

unstaged, tiled = costs.values()
assert unstaged["global loads"] == 3 and tiled["global loads"] == 1 and tiled["shared loads"] == 2
assert tiled["integer arithmetic"] < 0.8 * unstaged["integer arithmetic"]
assert tiled["scaled additions"] < 0.5 * unstaged["scaled additions"]
assert sum(tiled.values()) < 0.85 * sum(unstaged.values())

# %% [markdown]
# The same number of loads, and a quarter of the work around them is gone: the arithmetic of addresses. That
# is one reason; that a load from shared memory is sooner there than one from L1 is another, which counts do
# not show. (Compilers change; what this chapter relies on is asserted.)
#
# ## Why one row high?
#
# A dense kernel gives a block a square of C. Then it reads each number of B once for all rows of the square.
# Here, too, two rows of A with a nonzero in the same column could share a row of B. How often does that
# happen? Let `R` rows work together. They read each row of B once that any of them needs. If nonzeros lie at
# random and a share `d` of all places is filled, then of `k` columns they need
#
# `k * (1 - (1 - d)**R)` instead of `k * d * R`.
#
# Which `R` halves the loads of B, at `d = 0.1`? Guess, then look.


# %%
def reuse(topology, rows):
    """Nonzeros for each row of B that is read, if so many neighbouring rows read it once together."""
    owner = np.repeat(np.arange(topology.shape[0]), topology.row_lengths) // rows
    at = owner.astype(np.int64) * topology.shape[1] + topology.columns[topology.owned]
    return topology.nnz / len(np.unique(at))


HIGH = 1, 2, 4, 8, 16, 32
densities = {0.5: "-", 0.2: "--", 0.1: "-.", 0.02: ":"}
axis = canvas.axes(None, 7, 4)
for (d, line), shade in zip(densities.items(), canvas.shades(len(densities)), strict=True):
    expected = [d * high / (1 - (1 - d) ** high) for high in HIGH]
    topology = uniform(512, 512, sparsity=1 - d, seed=2).topology
    shared = [reuse(topology, high) for high in HIGH]
    assert np.allclose(shared, expected, rtol=0.02)
    axis.plot(HIGH, shared, line, color=shade, marker="o", label=f"{1 - d:.0%} sparse, at random")
likeness = look_alike(layer).topology
assert round(likeness.nnz / np.prod(likeness.shape), 2) == 0.1
pruned = [reuse(likeness, high) for high in HIGH]
axis.plot(
    HIGH, pruned, color="black", marker="s", markerfacecolor="none", label="the layer above, a look-alike"
)
axis.plot(HIGH, HIGH, color="0.6", linewidth=1, label="dense")
axis.set(xscale="log", yscale="log")
for one in (axis.xaxis, axis.yaxis):
    one.set_major_locator(FixedLocator(HIGH))
    one.set_minor_locator(NullLocator())
    one.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
canvas.label(axis, "rows of A that work together (log scale)", "nonzeros for each row of B read (log scale)")
canvas.legend(axis)
random = {high: high * 0.1 / (1 - 0.9**high) for high in range(1, 33)}
halves = next(high for high in random if random[high] >= 2)
axis = canvas.claim(
    axis,
    f"At 90% sparsity 2 rows save {1 - 1 / random[2]:.0%} of the loads of B; half takes {halves} rows",
    "Rows that are neighbours read a row of B once for all of them that need it",
)
assert random[2] < 1.06 and halves > 16 and 1 < pruned[1] < 1.15

# %% [markdown]
# And it is not free. Each row of the tile needs its own sums in registers. Rows of different lengths have
# to wait for each other. And for each row of B that was read, the kernel has to find out *which* rows want
# it: a branch for each, or multiplications by zeros. For a matrix with hardly anything to share, the tile
# of one row is right: no row waits for another, the columns can be cut to any width, and nothing is added
# up twice.
#
# That is a statement about *unstructured* matrices. If rows come in groups with the same columns, as they do
# in block-sparse matrices, the second exercise shows what to gain. And below half sparsity look at the top
# line: a few rows would share much, which this kernel leaves to the L1 cache.
#
# ## When it does not help
#
# **B is narrow.** A strip has 32 columns. Where B has fewer, the other lanes idle. And there are few
# strips: with blocks of 32 of them, few blocks. These are the problems in which `subwarp=32` did least:

# %%
pairs = sorted(zip(strips, problems, strict=True), key=lambda pair: pair[0])
print(f"an H200 has {H200.sms} SMs")


def launched(row, rows_per_block):
    """Blocks with a warp for each strip."""
    return ceil(row.m / rows_per_block) * ceil(row.n / 32)


for gain, p in pairs[:7]:
    row = p["plain"]
    idle = 1 - row.n / (32 * ceil(row.n / 32))
    size = f"{row.m} x {row.k}, {row.sparsity:.0%} sparse, n={row.n}"
    print(f"{gain:.2f}x: {size}: {idle:.0%} of the lanes idle, {launched(row, 32)} blocks")
slower = [p["plain"] for gain, p in pairs if gain < 1]
assert {row.n for row in slower} == {4, 52} and all(launched(row, 32) == 32 for row in slower)
assert all(launched(p["plain"], 32) > 50 for _, p in pairs[5:])

# %% [markdown]
# With four columns, seven in eight lanes do nothing; a narrower subwarp is the answer to that, in chapter
# `04_subwarp_tiling`. With 52, a fifth of the lanes idle, and that alone would not make it slower. But in
# both, three quarters of the SMs get no block at all. (`plain` has 32 rows in a block, too, but one column,
# and so many more blocks.)
#
# **How many rows in a block?** `rows_per_block=8` makes four blocks of one. It moves warps from one block
# to another and changes no count. So whatever it does, it does through *when and where* blocks run. What
# can be counted is how often a row of B, once a block has read it, is read again by the same block, which
# may find it in L1.

# %%
assert totals(counted["rows_per_block=8"]) == totals(counted["subwarp=32"])
again = {rows: reuse(likeness, rows) for rows in (8, 32)}
for rows, times in again.items():
    print(f"blocks of {rows:2} rows: each row of B that a block reads, it reads {times:.2f} times")

print("\nwhere 8 rows gained most:")
best = sorted(zip(blocks, problems, strict=True), key=lambda pair: -pair[0])[:3]
for gain, p in best:
    row = p["plain"]
    print(f"{gain:.2f}x, {row.m} x {row.k}, n={row.n}: {launched(row, 32)} blocks, then {launched(row, 8)}")
assert again[32] > 2 * again[8] and all(launched(p["plain"], 32) == 32 for _, p in best)

# %% [markdown]
# That fits: small blocks win where large ones are too few to fill the GPU, and lose a little elsewhere, where
# large ones share more. The second half is a guess at the cause, not a proof: the record holds times, and no
# counters of L1. The ladder takes 8; how many are
# best, `select` decides by problem.
#
# **Short rows.** A tile of 32 is staged for a row of any length. The barriers and the masked lanes are the
# same for three nonzeros as for thirty. Predict the gain of `stage`, from long rows to short ones:

# %%
known = read_row_lengths()
average = np.array([known[p["plain"].matrix].mean for p in problems])
uneven = np.array([known[p["plain"].matrix].cov for p in problems])
axis = canvas.axes(None, 7, 4)
for chosen, look, label in (
    (uneven <= 0.8, dict(marker="o"), "CoV of row lengths up to 0.8"),
    (uneven > 0.8, dict(marker="s", markerfacecolor="none"), "above 0.8"),
):
    axis.plot(
        average[chosen],
        np.array(staging)[chosen],
        **look,
        color=canvas.shades(3)[0],
        linestyle="",
        alpha=0.7,
        label=label,
    )
axis.axhline(1, color="black", linewidth=1)
axis.set(xscale="log")
axis.xaxis.set_major_locator(FixedLocator([4, 8, 16, 32, 64, 128, 256]))
axis.xaxis.set_minor_locator(NullLocator())
axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
canvas.label(axis, "nonzeros of a row, on average (log scale)", "time without stage / with stage")
canvas.legend_above(axis)
least = int(np.argmin(staging))
axis = canvas.claim(
    axis,
    f"stage gains in all {len(problems)} problems, least ({staging[least]:.2f}x) where rows have "
    f"{average[least]:.0f} nonzeros",
    f"SpMM, the layers of the record, each with its own n. {measured}",
    canvas.LINE,
)
short_rows = average < 32
assert average[least] == average.min()
assert mean(np.array(staging)[short_rows]) < mean(np.array(staging)[~short_rows])

# %% [markdown]
# **The size of a tile.** A tile of 8 leaves 24 of 32 lanes without anything to copy; a tile of 64 takes two
# loads of each lane. Count barriers and loads of A, then see what the record says of 16 and 32.

# %%
issued = {}
print(f"{'':10}{'loads of A':>12}{'barriers':>10}{'shared, bytes a block':>24}")
for tile_k in (8, 16, 32, 64):
    variant = sk.SpmmVariant(subwarp=32, rows_per_block=8, stage=True, tile_k=tile_k)
    counters = count("spmm", a, n, variant)
    loads = counters.of("values")["instructions"].low + counters.of("columns")["instructions"].low
    barriers = counters["barriers"].low
    print(f"tile_k={tile_k:<3}{loads:12,}{barriers:10,}{variant.shared_bytes:24,}")
    issued[tile_k] = loads, barriers
    if tile_k <= 32:
        prediction = predict_strips(tile_k)
        assert loads == 2 * prediction["loads of values"] and barriers == prediction["barriers"]

times = defaultdict(dict)
for row in load("candidates").rows:
    if row.op == "spmm":
        variant = parse_variant("spmm", row.variant)
        others = {name: value for name, value in vars(variant).items() if name != "tile_k"}
        times[row.problem, row.l2, tuple(others.items())][variant.tile_k] = row.time_us
ratios = [by_tile[16] / by_tile[32] for by_tile in times.values() if {16, 32} <= set(by_tile)]
print(
    f"\n16 against 32, {len(ratios)} pairs of the record `candidates`: {mean(ratios):.2f}x in geometric mean,"
)
print(f"from {min(ratios):.2f}x to {max(ratios):.2f}x")
assert 0.97 < mean(ratios) < 1.03 and all(
    16 < 10 * x / y < 23 for x, y in zip(issued[16], issued[32], strict=True)
)

# %% [markdown]
# Tiles of 16 need nearly twice the loads of A and the barriers, and the times do not differ. A barrier of a
# single warp is cheap, and loads of A are few by then. (Those pairs belong to kernels further up the ladder,
# which keep more loads under way.)
#
# ## Exercise 1: the formula
#
# Write a function of the row lengths, `n`, `vector` and `tile_k` that predicts three counts of a staged
# kernel with a warp for each strip: loads of values from global memory, loads from shared memory, and
# barriers. Three things to mind: `vector` makes a strip wider, some rows are empty, and a tile of 64 may
# take two loads or one. Your cost is how many of the predictions for `TRIED` are wrong.

# %% tags=["exercise"]
TRIED = [(1, 32), (1, 8), (2, 32), (4, 16), (1, 64), (4, 64)]  # vector, tile_k
COUNTED = "loads of values", "shared loads", "barriers"
uneven_rows = with_row_lengths([0, 3, 70, 32, 33, 0, 64, 8, 100, 1], k=128, seed=5)


def counts_of(vector, tile_k):
    variant = sk.SpmmVariant(vector=vector, rows_per_block=8, stage=True, tile_k=tile_k)
    counters = count("spmm", uneven_rows, 160, variant)
    found = counters.of("values")["requests"], counters["shared load instructions"], counters["barriers"]
    assert all(low == high for low, high in found)
    return [low for low, _ in found]


def check_1(formula):
    wrong = []
    for vector, tile_k in TRIED:
        said = formula(uneven_rows.topology.row_lengths, 160, vector, tile_k)
        for name, mine, theirs in zip(COUNTED, said, counts_of(vector, tile_k), strict=True):
            if mine != theirs:
                wrong.append(f"{name} with vector={vector}, tile_k={tile_k} are {theirs}, and not {mine}")
    return f"not yet: cost {len(wrong)}, goal 0: {wrong[0]}" if wrong else "solved: cost 0, goal 0"


# %%
def answer_1(lengths, n, vector, tile_k):
    """(loads of values, shared loads, barriers)"""
    strips = ceil(n / 32)
    tiles = sum(ceil(length / tile_k) for length in lengths)
    return strips * tiles, strips * 2 * sum(lengths), strips * 2 * tiles


check_1(answer_1)

# %% [markdown]
# ## Exercise 2: two rows high
#
# Here is a matrix in which each pair of neighbouring rows, 0 and 1, 2 and 3, has most of its columns in
# common. Write a kernel in which one warp computes a strip of both rows, and loads each row of B once for
# them. Columns within a row ascend. The variant launches a warp for each row; let every second do nothing. It
# has to be right for any matrix with sorted columns. Your cost is the loads of B for each nonzero.

# %% tags=["exercise"]
GOAL_2 = 0.6


def paired(m, k, seed):
    """An (m, k) matrix whose rows come in pairs, with 10 columns in common and 2 of their own each."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(m // 2):
        drawn = rng.choice(k, 14, replace=False)
        rows += [np.sort(drawn[:12]), np.sort(np.delete(drawn, [10, 11]))]
    offsets = np.arange(0, 12 * m + 1, 12, dtype=np.int32)
    values = rng.standard_normal(12 * m, dtype=np.float32)
    return sk.Csr.from_arrays(offsets, np.concatenate(rows).astype(np.int32), values, (m, k))


alike = paired(16, 128, seed=7)
any_other = with_row_lengths([3, 0, 9, 40, 0, 0, 7], k=128, seed=8)
wide = rng.standard_normal((128, 64), dtype=np.float32)


def check_2(make):
    for matrix, what in ((alike, "the matrix of pairs"), (any_other, "another matrix, of 7 rows")):
        plan = sk.plan_spmm(matrix, wide, STRIPS, make=make, backend="emulator")
        try:
            c = plan(matrix.values, wide, out=np.full((matrix.shape[0], 64), np.nan, np.float32))
        except sk.EmulatorError as caught:
            return f"not yet: on {what}: {str(caught).splitlines()[0]}"
        if not share(c, matrix, wide) <= 1:
            return f"not yet: C is wrong for {what}"
    strips = 64 // 32
    cost = count("spmm", alike, 64, STRIPS, make=make).of("B")["requests"].high / (alike.nnz * strips)
    return f"{'solved' if cost <= GOAL_2 else 'not yet'}: cost {cost:.2f}, goal {GOAL_2}"


# %%
answer_2 = make_strips
check_2(answer_2)

# %% [markdown]
# ## A question to go on with
#
# A strip makes every load of B coalesced, 32 lanes side by side. But a lane loads 4 bytes with each
# instruction, and an instruction could load 16. What would the lanes own then, how wide is a strip, and is
# that always good? That is the next chapter, `03_vector_memory_access`.
