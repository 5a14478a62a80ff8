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
# # Subwarp tiling
#
# With vectors of four, a warp takes a strip of 128 columns. If B has fewer, lanes idle. `subwarp` says how
# many lanes share a strip; with 16 or 8, two or four rows of A share a warp. The chapter before ended on a
# riddle: that step, alone, made every problem of the record slower. Rows have different lengths; a warp has
# to wait for its longest. Is that it?
#
# You will
#
# - predict what several rows to a warp save and what they cost, and count it;
# - put three suspects for the loss to the test, and see the first one cleared;
# - see subwarps drift apart, on a GPU as in the emulator, and what `uniform_trip` and `uniform_branch` do.
#
# No cell needs a GPU: times and counters come from records, all else from the emulator and the compiler.

# %% tags=["exercise"]
import csv
from collections import Counter, defaultdict
from dataclasses import replace
from math import ceil, exp, log

import numpy as np
from numba import cuda, float32, int32, int64

import sparsekern as sk
from sparsekern.generators import with_row_lengths
from sparsekern.machine import lanes
from sparsekern.reference import error, spmm_reference, tolerance
from sparsekern.study.counters import count

rng = np.random.default_rng(0)

# %%
import inspect

from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from rich import print as show
from rich.table import Table

from sparsekern.datasets import look_alike
from sparsekern.kernels import spmm as page
from sparsekern.naming import format_variant, parse_variant
from sparsekern.study import canvas, codegen, sass
from sparsekern.study.ablation import ablations
from sparsekern.study.check import check
from sparsekern.study.compare import best
from sparsekern.study.cost import bounds
from sparsekern.study.gpus import GPUS
from sparsekern.study.records import load, path_of
from sparsekern.study.row_lengths import read_row_lengths
from sparsekern.zoo import ZOO

H200 = GPUS["h200"]

# %% [markdown]
# ## The result first
#
# Two records. In `ladder` each step adds a toggle to the step before; `subwarp=16` comes right after
# `vector=4`. In `ablation` the library chose a variant for each problem, and each of its toggles was taken
# off in turn. The first tells what the toggle is worth alone, the second what it is worth among all others.

# %%
record = load("ladder")
measured = f"{record.provenance['gpu']}, {record.provenance['date']}"
ladder = dict(sk.LADDERS["spmm"])
names = {format_variant(variant): step for step, variant in ladder.items()}
found = defaultdict(dict)
for row in record.rows:
    if row.op == "spmm":
        found[row.problem][names[row.variant]] = row
problems = list(found.values())


def mean(ratios):
    """The geometric mean."""
    return exp(sum(map(log, ratios)) / len(ratios))


def gains(step, before):
    return np.array([p[before].time_us / p[step].time_us for p in problems])


BEFORE, STEP = "vector=4", "subwarp=16"
assert replace(ladder[BEFORE], subwarp=16) == ladder[STEP]
alone = gains(STEP, BEFORE)
off = ablations([row for row in load("ablation").rows if row.op == "spmm"])["subwarp"]
assert not any(one.moved for one in off)  # nothing else had to change

axis = canvas.axes(None, 7, 4)
dark, _, light = canvas.shades(3)
axis.plot(
    [p[STEP].n for p in problems], alone, "o", color=dark, alpha=0.6, label="alone: subwarp=16 after vector=4"
)
style = dict(color=light, markeredgecolor="black", linestyle="")
axis.plot(
    [one.row.n for one in off],
    [one.times for one in off],
    "s",
    **style,
    label="in what the library chose, off",
)
axis.axhline(1, color="black", linewidth=1)
axis.set(xscale="log", yscale="log")
widths = sorted({p[STEP].n for p in problems})
for one, ticks in ((axis.xaxis, widths), (axis.yaxis, [0.7, 1, 1.5, 2, 3, 5])):
    one.set_major_locator(FixedLocator(ticks))
    one.set_minor_locator(NullLocator())
    one.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
for tick in axis.get_xticklabels():
    tick.set_rotation(90)
canvas.label(axis, "columns of B (log scale)", "time with 32 lanes / with fewer (log scale)")
canvas.legend_above(axis)
axis = canvas.claim(
    axis,
    f"Alone it lost in all {sum(alone < 1)} problems; among the others it gains up to "
    f"{max(one.times for one in off):.1f}x, where B is narrow",
    f"SpMM, the layers of the records. {measured}",
    canvas.LINE,
)
print(f"alone: {mean(alone):.2f}x in geometric mean, from {min(alone):.2f}x to {max(alone):.2f}x")
print(f"in what the library chose, {len(off)} problems: {mean([one.times for one in off]):.2f}x in the mean")
assert max(alone) < 1 and min(one.times for one in off) > 1 and max(one.times for one in off) > 5

# %% [markdown]
# So the idea is right, and something spoils it that other toggles mend.
#
# ## Predict
#
# Take the kernel without staging, `vector=4`. A warp has `32 / subwarp` rows, and a strip has `4 * subwarp`
# columns. Say what becomes of the *instructions* that load B, for `subwarp` of 32, 16 and 8, if B has 128, 64
# and 32 columns. And of the multiply-adds? A warp goes on until the longest of its rows is done.
#
# Write down yours before you read on. Ours:

# %% tags=["exercise"]
a = with_row_lengths(rng.integers(4, 60, 32), k=128, seed=1)
lengths = a.topology.row_lengths

# %%
print(f"{a}, rows of {lengths.min()} to {lengths.max()} nonzeros")
WIDTHS, COLUMNS = (32, 16, 8), (128, 64, 32)


def together(subwarp):
    """Nonzeros that warps take one after another: of each warp the longest row."""
    return int(lengths.reshape(-1, 32 // subwarp).max(axis=1).sum())


def predict(subwarp, n):
    """(loads of B, multiply-adds), of all warps."""
    loads = ceil(n / (4 * subwarp)) * together(subwarp)
    return loads, 4 * loads


table = Table("columns of B", *(f"subwarp={w}" for w in WIDTHS), title="instructions that load B, predicted")
for n in COLUMNS:
    table.add_row(str(n), *(f"{predict(w, n)[0]:,}" for w in WIDTHS))
show(table)

for n in COLUMNS:
    for w in WIDTHS:
        counters = count("spmm", a, n, sk.SpmmVariant(vector=4, subwarp=w, rows_per_block=8))
        seen = counters.of("B")["instructions"], counters["multiply-adds"]
        assert all(low == high for low, high in seen) and tuple(low for low, _ in seen) == predict(w, n)
print("counted as predicted")
assert predict(8, 128)[0] > predict(16, 128)[0] > predict(32, 128)[0] == a.nnz
assert predict(8, 32)[0] < 0.5 * predict(32, 32)[0] == 0.5 * a.nnz

# %% [markdown]
# Two things to keep. Where B fills the strip, fewer lanes to a row save *nothing*: twice the rows to a warp,
# twice the strips. All that is left is the wait for the longest. And where B has a quarter of the columns,
# eight lanes need less than half the instructions, and would need a quarter if all rows were alike.
#
# ## Who waits for whom
#
# The first warp, with four rows. A box is a step of the warp.

# %%
first = lengths[:4]
axis = canvas.axes(None, 8, 2.6)
at_work, _, rest = canvas.shades(3)
for row, length in enumerate(first):
    axis.broken_barh(
        [(j, 1) for j in range(length)], (row - 0.35, 0.7), color=at_work, edgecolor="white", linewidth=0.4
    )
    axis.broken_barh(
        [(length, first.max() - length)], (row - 0.35, 0.7), facecolor=rest, hatch="////", edgecolor="0.3"
    )
canvas.rows(axis, [f"row {row}, lanes {8 * row} to {8 * row + 7}" for row in range(4)])
canvas.beside(axis, [f"{length} nonzeros" for length in first])
canvas.label(axis, "step of the warp", "subwarp")
handles = [
    Patch(color=at_work, label="a nonzero"),
    Patch(facecolor=rest, hatch="////", edgecolor="0.3", label="done: eight lanes idle"),
]
canvas.legend_above(axis, handles)
idle = 1 - first.sum() / (4 * first.max())
axis = canvas.claim(
    axis,
    f"Four rows in a warp: until the longest is done, {idle:.0%} of its lanes idle",
    "vector=4, subwarp=8, B of 32 columns",
    canvas.LINE,
)

# %% [markdown]
# ## First suspect: uneven rows
#
# If that were the cause, problems with rows of equal length would lose nothing. The *CoV* of the row
# lengths is their standard deviation over their mean. Guess how the loss depends on it, then look.

# %%
known = read_row_lengths()
cov = np.array([known[p[STEP].matrix].cov for p in problems])
axis = canvas.axes(None, 7, 4)
for look, chosen, label in (
    (dict(marker="o"), lambda n: n <= 256, "n up to 256"),
    (dict(marker="s", markerfacecolor="none"), lambda n: n > 256, "n of 2048 and more"),
):
    at = [(x, y) for x, y, p in zip(cov, alone, problems, strict=True) if chosen(p[STEP].n)]
    axis.plot(*zip(*at, strict=True), **look, color=canvas.shades(3)[0], linestyle="", alpha=0.7, label=label)
axis.axhline(1, color="black", linewidth=1)
axis.set_ylim(0.6, 1.05)
canvas.label(axis, "CoV of row lengths", "time with vector=4 / with subwarp=16, too")
canvas.legend_above(axis)
even, uneven = mean(alone[cov < 0.1]), mean(alone[cov > 0.6])
axis = canvas.claim(
    axis,
    f"Even rows lose no less: {even:.2f}x where the CoV is below 0.1, {uneven:.2f}x where it is above 0.6",
    f"SpMM, the layers of the record, each with its own n. {measured}",
    canvas.LINE,
)
assert even < uneven < 1

# %% [markdown]
# Cleared, or at least not alone: with rows that are nearly equal, the step costs as much. Something else
# happens as soon as two rows share a warp.
#
# ## Second suspect: the banks
#
# These kernels stage A, as chapter `02_one_dimensional_tiling` explains: each subwarp has a slice of shared
# memory, 32 words for values and 32 for columns. Shared memory has 32 *banks*; word `i` lies in bank `i`
# modulo 32. A load of a warp takes one pass, a *wavefront*, if its lanes want words in different banks, or
# the same word. Lanes that want different words of one bank need a pass for each.
#
# All lanes of a subwarp read the same nonzero of their slice. So: how many wavefronts does a staged read
# take with one subwarp in a warp, and how many with two? Predict. Then see what the counters of a GPU say:
# this record was made with a profiler, on the same kernels.

# %%
counted = defaultdict(dict)
with open(path_of("counters"), encoding="utf-8") as file:
    for row in csv.DictReader(line for line in file if not line.startswith("#")):
        if row["op"] == "spmm":
            numbers = tuple(int(row[name]) for name in ("emulator", "emulator_max", "hardware"))
            counted[row["matrix"], row["variant"]][row["counter"]] = numbers
layers = [name for name in dict.fromkeys(matrix for matrix, _ in counted) if name.endswith(".smtx")]

table = Table("layer", "step", "instructions", "wavefronts", "of each", title=f"shared loads. {measured}")
for layer in layers:
    for step in (BEFORE, STEP):
        instructions, wavefronts = (
            counted[layer, step][f"shared load {what}"][2] for what in ("instructions", "wavefronts")
        )
        table.add_row(
            layer.split("/")[-1][:24],
            step,
            f"{instructions:,}",
            f"{wavefronts:,}",
            f"{wavefronts / instructions:.2f}",
        )
    before, after = (counted[layer, step]["shared load wavefronts"][2] for step in (BEFORE, STEP))
    assert counted[layer, BEFORE]["shared load instructions"][2] == before and 1.95 < after / before <= 2
show(table)

# %% [markdown]
# Slices are 32 words apart, so nonzero `j` of both subwarps lies in the same bank. Each read costs two
# passes, where both rows still have nonzeros. Shared memory and B come through the same L1 cache; how much
# more does it have to move? And the mend is known: `stage_pad=4` puts four words between slices. What will
# that leave?

# %%
even_layer = (
    "transformer/random_pruning/0.5/"
    "body_encoder_layer_0_self_attention_multihead_attention_q_fully_connected.smtx"
)
likeness = look_alike(even_layer)
print(f"CoV of its row lengths: {known[even_layer].cov:.2f}")
needs, lost, busy = {}, {}, {}
for n in (2048, 256):
    p = next(p for p in problems if (p[STEP].matrix, p[STEP].n) == (even_layer, n))
    for step in (BEFORE, STEP):
        needs[n, step] = bounds("spmm", likeness, n, ladder[step], H200).us["L1"]
        us = p[step].time_us
        print(
            f"n={n:4}, {step:10}  L1 needs {needs[n, step]:5.2f} µs of {us:6.2f}: {needs[n, step] / us:.0%}"
        )
    lost[n], busy[n] = us / p[BEFORE].time_us, needs[n, step] / us
padded = bounds("spmm", likeness, 2048, replace(ladder[STEP], stage_pad=4), H200).us["L1"]
print(f"n=2048, {STEP} with stage_pad=4  L1 needs {padded:5.2f} µs")
assert 1.3 < needs[2048, STEP] / needs[2048, BEFORE] < 1.4 and padded < 1.1 * needs[2048, BEFORE]
assert all(1.25 < lost[n] < 1.3 for n in lost) and busy[2048] > 0.5 > 0.3 > busy[256]

# %% [markdown]
# A third more for L1 to move, about what was lost at `n=2048`, where L1 is busy for more than half the
# time. But at `n=256` it is busy for a quarter, and the loss is as large.
#
# Another test. The next step of the ladder, `sparse_vector=4`, reads four staged nonzeros at a time. Such a
# read takes two passes, one for each half of the warp. But a half is one subwarp here: no two slices meet
# in a pass, and there are four times fewer reads. If the banks were all, that step would win the loss back.


# %%
def warps_per_sm(row):
    return row.m * ceil(row.n / 128) / H200.sms


many = np.array([warps_per_sm(p[STEP]) > 32 for p in problems])
back = gains("sparse_vector=4", STEP)
for step, ratios in ((STEP, alone), ("sparse_vector=4", back)):
    few = f"few warps {mean(ratios[~many]):.2f}x"
    print(
        f"{step:16} against the step before: {few}, many warps (more than 32 an SM) {mean(ratios[many]):.2f}x"
    )

print("\nwavefronts of shared loads, counted here for n=128:")
for w in (16, 8):
    for read in (1, 4):  # with 4, the rest of a row too
        variant = replace(ladder[STEP], subwarp=w, sparse_vector=read, unroll_residue=read == 4)
        without, with_pad = (
            count("spmm", a, 128, replace(variant, stage_pad=pad))["shared load wavefronts"].low
            for pad in (0, 4)
        )
        print(f"subwarp={w:2}, sparse_vector={read}: {without:6,}, with stage_pad=4 {with_pad:6,}")
        assert with_pad == without if (w, read) == (16, 4) else with_pad < 0.7 * without
assert mean(back[many]) > 1.15 * mean(back[~many]) and mean(back[~many]) < 0.9
faster = [int(sum(back[these] > 1)) for these in (many, ~many)]
print(
    f"the latter: faster in {faster[0]} of {sum(many)} with many warps, {faster[1]} of {sum(~many)} with few"
)
assert 0.95 < mean(back[many]) < 1 and faster[0] > 10 > 4 > faster[1]
last = gains("stage_pad=4", "uniform_trip=True")
print(f"\nstage_pad=4, when the ladder comes to it: from {min(last):.3f}x to {max(last):.3f}x")
assert max(abs(last - 1)) < 0.01

# %% [markdown]
# The banks have a part in it, and it is not proven how large. Where many warps keep L1 busy, that step is
# faster in some problems, and costs little on average; where there are few, it loses as much again. So
# something else is at work there. (By the time the ladder tries `stage_pad`, reads are of four, with
# sixteen lanes to a row, and there is nothing left to mend.)
#
# ## Third suspect: two ways at once
#
# A tile of 32 nonzeros is either full, and then a loop of known length takes it, or it is the rest of a
# row, and another loop does. Two subwarps may want different loops. A warp can follow only one at a time:
# the other lanes wait, and then it goes the other way, and waits for memory *again*.
#
# And there is the barrier. Rows of different lengths make different numbers of trips. So a barrier of the
# whole warp in the loop is wrong: a subwarp that is done would never come. What happens, if someone tries?


# %% tags=["exercise"]
def make_hanging(variant, types):
    """C = A @ B. One column a lane, one row a subwarp, its nonzeros staged `SUBWARP` at a time."""
    SUBWARP, ROWS = variant.subwarp, variant.rows_per_block
    STAGED = ROWS * SUBWARP

    def spmm(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        lane, subwarp = int32(cuda.threadIdx.x), int32(cuda.threadIdx.y)
        row = cuda.blockIdx.x * ROWS + subwarp
        column = cuda.blockIdx.y * SUBWARP + lane
        staged_values = cuda.shared.array(STAGED, float32)
        staged_columns = cuda.shared.array(STAGED, int32)
        slot = int32(subwarp * SUBWARP)
        first, stop = int32(0), int32(0)
        if row < m:
            first, stop = int32(offsets[row]), int32(offsets[row + 1])
        trips = int32((stop - first + SUBWARP - 1) // SUBWARP)
        total = float32(0)
        for t in range(trips):
            tile = int32(first + t * SUBWARP)
            cuda.syncwarp()  # of all 32 lanes: the tile before has been read
            if tile + lane < stop:
                staged_values[slot + lane] = values[tile + lane]
                staged_columns[slot + lane] = columns[tile + lane]
            cuda.syncwarp()  # the tile is there
            for j in range(min(SUBWARP, stop - tile)):
                b = B[int64(staged_columns[slot + j]) * ldb + column] if column < n else float32(0)
                total = lanes.fma(staged_values[slot + j], b, total)
        cuda.syncthreads()  # a real kernel may go on, as this library's does with the parts of a row
        if row < m and column < n:
            C[int64(row) * ldc + column] = total

    return spmm


EIGHT = sk.SpmmVariant(subwarp=8, rows_per_block=8)
b = rng.standard_normal((128, 128), dtype=np.float32)


def share(c, a, b):
    """The largest error of `c` as a share of what rounding to float32 may cost."""
    return error(c, *spmm_reference(a, b)) / tolerance(a.topology.row_lengths.max())


# %%
try:
    sk.spmm(a, b, EIGHT, make=make_hanging, backend="emulator")
except sk.EmulatorError as caught:
    print(f"{caught.kind}: {str(caught).splitlines()[0]}")
else:
    raise AssertionError("the emulator should have stopped this kernel")

# %% [markdown]
# A GPU would hang. So the paper's kernel, and ours without further toggles, uses a *mask*: each subwarp has
# a barrier of its own lanes. That is correct. But now nothing brings the subwarps of a warp together again.
# They may *drift*: one is a trip ahead of the other, and the warp has to issue each instruction for one,
# then for the other.
#
# The emulator cannot know whether they do. So its counts are ranges: `low` if subwarps go together as soon as
# they can, `high` if they never do unless a barrier names both. The record says what a GPU did.

# %%
CHAIN = ["subwarp=16", "sparse_vector=4", "roma=True", "unroll_residue=True", "bundle=True", "bin=True"]
CHAIN += ["uniform_branch=True", "uniform_trip=True"]
layer = layers[-1]
base = counted[layer, BEFORE]["multiply-adds"][2]
ranges = [np.array(counted[layer, step]["multiply-adds"]) / base for step in CHAIN]
axis = canvas.axes(None, 7, 3.6)
for at, (low, high, gpu) in enumerate(ranges):
    axis.plot([low, high], [at, at], color=canvas.shades(3)[1], linewidth=6, solid_capstyle="butt", zorder=1)
    axis.plot([low, low], [at - 0.25, at + 0.25], color="black", linewidth=1.5, zorder=2)
    axis.plot(gpu, at, "o", color="white", markeredgecolor="black", zorder=3)
canvas.rows(axis, CHAIN)
canvas.beside(axis, [f"{low:.2f} to {high:.2f}, GPU {gpu:.2f}" for low, high, gpu in ranges])
handles = [
    Patch(color=canvas.shades(3)[1], label="emulator, lowest to highest"),
    axis.plot([], [], "o", color="white", markeredgecolor="black", label="GPU")[0],
]
axis.set_xlim(0.95, max(high for _, high, _ in ranges) + 0.05)
canvas.legend_above(axis, handles)
canvas.label(axis, "multiply-adds, as a multiple of those with vector=4 and a row to a warp", "step")
axis = canvas.claim(
    axis,
    "With uniform_trip there is one count left, and the GPU agrees",
    f"SpMM, n=72: {layer}. {measured}",
    canvas.LINE,
)
for name in layers:
    steps = {step: counted[name, step]["multiply-adds"] for step in CHAIN}
    assert len(set(steps["uniform_trip=True"])) == 1
    assert (
        steps["uniform_branch=True"][0] == steps["uniform_branch=True"][2] < steps["uniform_branch=True"][1]
    )
    low, high, gpu = steps["subwarp=16"]
    assert low < high <= gpu < 1.02 * high
    assert all(steps[step][0] < steps[step][2] < steps[step][1] for step in ("roma=True", "bundle=True"))

# %% [markdown]
# Alone, `subwarp=16` costs the GPU as much as if its subwarps never met, and a little more: the compiler
# unrolls a loop, and two subwarps may be in different copies. `bundle`, which puts rows of like length side
# by side, moves the whole range down: fewer steps to wait. `uniform_branch` and `uniform_trip` shrink it.
#
# ## The kernel
#
# These are their lines. `warp_max` asks the other subwarps by a *shuffle*, an exchange of registers within
# a warp.

# %%
text = inspect.getsource(page.make_spmm)
start, stop = (
    text.index("            if UNIFORM_TRIP:  # New"),
    text.index("            for t in range(trips)"),
)
print(next(line for line in text.splitlines() if "mask = FULL_MASK if UNIFORM_TRIP" in line)[8:])
print("\n".join(line[8:] for line in text[start:stop].rstrip().splitlines()))
print("\n" + inspect.getsource(lanes.warp_max.py_func))

# %% [markdown]
# With `uniform_trip`, every subwarp makes as many trips as the longest of its warp, and the barrier is of
# all 32 lanes: at each trip they are together again. In trips past its own end, a subwarp finds no nonzero:
# `stop` is not above `start`, and it must not load B any more.
#
# With `uniform_branch`, a warp takes the loop for full tiles only while *all* its subwarps have one. Else
# all take the other, which masks. So never two ways.
#
# ## Check
#
# The same sums in the same order, for every width, with or without.

# %%
UNIFORM = dict(uniform_trip=True, uniform_branch=True)
hard = "one_giant_row", "long_and_empty_in_turn", "tiles_plus_and_minus_one", "first_and_last_row_empty"
assert check(
    sk.make_spmm, replace(ladder[STEP], **UNIFORM), matrices={name: ZOO[name].make() for name in hard}
)
results = [
    sk.spmm(a, b, variant, backend="emulator")
    for variant in (ladder[BEFORE], ladder[STEP], replace(ladder[STEP], subwarp=8, **UNIFORM))
]
assert all(np.array_equal(c, results[0]) for c in results) and share(results[0], a, b) <= 1
print("subwarp=32, 16 and 8 agree in every bit")

# %% [markdown]
# ## Evidence: what it was worth
#
# If the third suspect is guilty, then mending it should pay most where a warp that waits has no others to
# take its turn: where warps are few. Guess, then read. Below it, what the counters of the GPU changed by,
# for the same step.

# %%
for step, before in (("uniform_branch=True", "bin=True"), ("uniform_trip=True", "uniform_branch=True")):
    ratios = gains(step, before)
    print(
        f"{step:20} few warps {mean(ratios[~many]):.2f}x, many {mean(ratios[many]):.2f}x; "
        f"from {min(ratios):.2f}x, slower in {sum(ratios < 1)} of {len(ratios)}"
    )
    for name in layers:
        fewer = counted[name, before]["multiply-adds"][2] / counted[name, step]["multiply-adds"][2]
        assert step != "uniform_branch=True" or 1.09 < fewer < 1.13
        print(f"{'':20} multiply-adds on the GPU fell by {1 - 1 / fewer:.0%}: {name.split('/')[-1][:40]}")
branch, trip = gains("uniform_branch=True", "bin=True"), gains("uniform_trip=True", "uniform_branch=True")
assert min(branch) > 1 and mean(branch[~many]) > 1.25 and mean(branch[~many]) > 1.1 * mean(branch[many])
assert 1 < mean(trip) < 1.06 and sum(trip < 1) == 3

shuffles = {}
for step in ("bin=True", "uniform_branch=True"):
    code = codegen.sass(sk.make_spmm, ladder[step])
    shuffles[step] = sass.classes(code).get("shuffles", 0)
    registers = codegen.resources(sk.make_spmm, ladder[step]).registers
    print(f"{step:20} {shuffles[step]} shuffles in the code, {registers} registers")
assert shuffles["bin=True"] == 0 < shuffles["uniform_branch=True"]

# %% [markdown]
# So it is. With `uniform_branch`, multiply-adds fell by a tenth; where warps are few, time fell by twice
# that. What was saved there is waiting. That is as far as this record goes: it has no run of `subwarp=16`
# with `stage_pad` or the uniform toggles *right away*, which would tell how much of the loss belongs to
# whom. On a GPU, `climb` of chapter `00_start_here` takes any ladder: `climb("spmm", a, b, ladder=[("name",
# variant), ...])`.
#
# ## When it does not help
#
# **B is wide.** Then a strip of 128 columns is full, and the first prediction says it all. What width was
# fastest, in the record of the sweep?

# %%
fastest = defaultdict(Counter)
for row in best([row for row in load("sweep").rows if row.op == "spmm"]).values():
    fastest[row.n][parse_variant("spmm", row.variant).subwarp] += 1
for n in sorted(fastest):
    part = n % 128
    fill = "whole strips of 128" if part == 0 else f"the last strip of 128 has {part}"
    print(f"n={n:5}: {fill:30} fastest with", dict(fastest[n]))
assert set(fastest[4]) == {8} and set(fastest[52]) == {16}
assert set(fastest[2048]) == {32} and fastest[3136][16] > 0 and fastest[256][32] > 10 * fastest[256][16]

# %% [markdown]
# Four and 52 columns want narrow subwarps. With 3136, the last strip of 128 has 64, and 16 lanes sometimes do
# better. With 256 and 2048 hardly any does.
#
# **The other direction.** With few rows and narrow B there are few warps, and no width helps. `split` gives
# *several* subwarps to one row: each takes every second tile, or every fourth, and at the end they add up
# through shared memory. Where did the library choose it, and what was it worth?

# %%
split = ablations([row for row in load("ablation").rows if row.op == "spmm"])["split"]
assert not any(one.moved for one in split)
chosen = {one.row.problem for one in split}
others = [p[STEP] for p in problems if p[STEP].problem not in chosen]
for name, rows in (("with split", [one.row for one in split]), ("without", others)):
    middle = np.median([warps_per_sm(row) for row in rows])
    print(f"{name:10} {len(rows)} problems, {middle:.0f} warps an SM in the median, before any split")
times = [one.times for one in split]
print(
    f"split against none: {mean(times):.2f}x in geometric mean, from {min(times):.2f}x to {max(times):.2f}x"
)
assert min(times) > 1 and len(split) + len(others) == len(problems)
assert np.median([warps_per_sm(row) for row in others]) > 4 * np.median(
    [warps_per_sm(one.row) for one in split]
)

# %% [markdown]
# So `subwarp` is a dial with two directions: more rows to a warp where columns are few, more subwarps to a
# row where rows are few. Both were chosen where they paid; put on everywhere, as the last step of the
# ladder does with `split=4`, it is a gamble:

# %%
everywhere = gains("split=4", "rows_per_block=64")
print(f"from {min(everywhere):.2f}x to {max(everywhere):.2f}x")
assert min(everywhere) < 0.3 and max(everywhere) > 3

# %% [markdown]
# ## Exercise 1: thirty-two columns
#
# B has 32 columns, and the rows of `a` are as uneven as before. Choose toggles. Your cost is what the warps
# may have to do at most for each nonzero: loads from global memory, wavefronts of loads from shared memory,
# and multiply-adds. The launch must keep a warp for every four rows. One toggle of a chapter to come is
# welcome: `bundle` puts rows of like length side by side.

# %% tags=["exercise"]
GOAL_1 = 1.8
narrow = np.ascontiguousarray(b[:, :32])


def check_1(variant):
    try:
        c = sk.spmm(a, narrow, variant, backend="emulator")
        counters = count("spmm", a, 32, variant)
    except sk.VariantError as refused:
        return f"not yet: {refused}"
    if not share(c, a, narrow) <= 1:
        return "not yet: C is wrong"
    if counters.work.size < a.shape[0] // 4:
        return f"not yet: {counters.work.size} warps, and there must be {a.shape[0] // 4}"
    parts = "global load instructions", "shared load wavefronts", "multiply-adds"
    cost = sum(counters[name].high for name in parts) / a.nnz
    return f"{'solved' if cost <= GOAL_1 else 'not yet'}: cost {cost:.2f}, goal {GOAL_1}"


# %%
answer_1 = sk.SpmmVariant(vector=4, subwarp=32, rows_per_block=8, stage=True)
check_1(answer_1)

# %% [markdown]
# ## Exercise 2: make the trips uniform
#
# Mend `make_hanging`: keep its barriers of the whole warp, and make every subwarp come to them. You need
# `lanes.warp_max`. Finished rows must not go on loading B, and what a row of A does not touch must not
# reach C: row 0 of B is full of NaN here, and A has no nonzero in column 0. Your cost is the barriers of a
# warp, for each tile that its longest row has.

# %% tags=["exercise"]
GOAL_2 = 2.0
shifted = with_row_lengths([9, 0, 30, 3, 17, 8, 1, 0, 40, 2, 5], k=63, seed=4)
touching = sk.Csr.from_arrays(
    shifted.topology.offsets, shifted.topology.columns + 1, shifted.values, (11, 64)
)
poisoned = rng.standard_normal((64, 16), dtype=np.float32)
poisoned[0] = np.nan


def check_2(make):
    plan = sk.plan_spmm(touching, poisoned, EIGHT, make=make, backend="emulator")
    try:
        c = plan(touching.values, poisoned, out=np.full((11, 16), np.nan, np.float32))
        counters = count("spmm", touching, 16, EIGHT, make=make)
    except sk.EmulatorError as caught:
        return f"not yet: {str(caught).splitlines()[0]}"
    clean = poisoned.copy()
    clean[0] = 0
    if np.isnan(c).any():
        return f"not yet: {np.isnan(c).mean():.0%} of C is NaN"
    if not share(c, touching, clean) <= 1:
        return "not yet: C is wrong"
    loads, needed = counters.of("B")["lanes"].high, touching.nnz * 16
    if loads > needed:
        return f"not yet: lanes load B {loads} times, and {needed} would do"
    rows = np.append(touching.topology.row_lengths, [0] * 5).reshape(-1, 4)
    tiles = np.ceil(rows.max(axis=1) / 8).sum() * 2  # of all warps, in two strips
    blocks = 2 * 2 * 2  # the barrier of the block at the end, for each warp
    cost = (counters["barriers"].high - blocks) / tiles
    return f"{'solved' if cost <= GOAL_2 else 'not yet'}: cost {cost:.2f}, goal {GOAL_2}"


# %%
answer_2 = make_hanging
check_2(answer_2)

# %% [markdown]
# ## A question to go on with
#
# Staged nonzeros are now read four at a time. They are still *copied* to shared memory one by one: rows of
# A begin anywhere, and a load of 16 bytes has to start on a multiple of 16. Rows could be padded, but then
# A would have to be stored anew. Can a kernel load whole vectors of a row that starts in the middle of one?
# That is the next chapter, `05_reverse_offset_alignment`.
