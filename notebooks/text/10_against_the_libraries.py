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
# # Against the libraries
#
# Is a sparse kernel worth it? That depends on what else you could run. cuSPARSE and Sputnik multiply the same
# sparse matrix; cuBLAS multiplies the dense one, zeros and all, and that is often the rival to beat. The
# library's choice for each problem was timed against all of them on one GPU. This chapter reads that record.
#
# You will
#
# - predict, from two limits of the GPU, how sparse a matrix must be before it pays to skip its zeros;
# - read who wins where in the record, problem by problem, and by how much;
# - know which averages mislead, and where dense is the right answer.
#
# No cell needs a GPU: all times come from records.

# %% tags=["exercise"]
from statistics import geometric_mean, median

import sparsekern as sk
from sparsekern.datasets import look_alike
from sparsekern.naming import format_variant, parse_variant
from sparsekern.study import canvas
from sparsekern.study.compare import BANDS, FASTEST, RIVAL_TIMES, against, mean, rival_us
from sparsekern.study.cost import bounds, l1_bound_us
from sparsekern.study.gpus import GPUS
from sparsekern.study.records import load
from sparsekern.study.scorecard import SHORT_US, SPARSE

H200 = GPUS["h200"]
sweep = load("sweep")
spmm, sddmm = ([row for row in sweep.rows if row.op == op] for op in ("spmm", "sddmm"))
measured = f"{sweep.provenance['gpu']}, {sweep.provenance['date']}"

# %%
import inspect

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from sparsekern.generators import uniform
from sparsekern.select import H200_WARPS, select
from sparsekern.study import baselines
from sparsekern.study.bench import time_launches
from sparsekern.study.counters import count
from sparsekern.study.plot import crossover
from sparsekern.study.row_lengths import problems_of, read_row_lengths
from sparsekern.study.scaling import BAR
from sparsekern.study.scorecard import card, scores

# %% [markdown]
# ## The result first
#
# Each layer of the record is a pruned one of a Transformer or a ResNet-50, with the number of columns `n`
# that the network would give it. In each cell below are the problems of one range of sparsity and one `n`.
# The number is a speed-up: the time of the *fastest* of cuSPARSE, Sputnik and dense cuBLAS, all in float32,
# over ours. Above 1 we are faster. Several speed-ups are averaged by their geometric mean.

# %%
axis = crossover(sweep, measured)

sparse = [row for row in spmm if row.sparsity >= SPARSE]
less = [row for row in spmm if row.sparsity < SPARSE]
for name, rows in (("at least", sparse), ("less than", less)):
    found = against(rows, FASTEST)
    print(
        f"SpMM, {name} {SPARSE:.0%} sparse: {len(found)} problems, {mean(found):.2f}x the fastest rival, "
        f"from {min(r.times for r in found):.2f}x to {max(r.times for r in found):.2f}x"
    )
assert min(r.times for r in against(sparse, FASTEST)) > 1 > mean(against(less, FASTEST))

# %% [markdown]
# From 75% sparsity on, not one problem is lost. Below that, on average, dense wins. Why there?
#
# ## Predict
#
# Two limits are enough for a guess.
#
# - A dense kernel does a multiply-add for *every* element of A, at best at the float32 peak of the GPU.
# - A sparse kernel that gives a row of C to one group of lanes does one for each *nonzero*, and reads 4 bytes
#   of B for each. The L1 caches deliver so many bytes a clock, and no more (`03_vector_memory_access`).
#
# Suppose that each runs right at its limit. Which share of A must be zero for both to take the same time? And
# dense TF32 and float16 run on tensor cores, which are many times faster: where does sparse float32 meet
# those? Write down three sparsities before you read on. Ours:

# %%
TERA = 1e12
l1_cap = 2 * H200.l1_bytes_per_second / 4 / TERA  # 4 bytes for two flops
peak = 2 * H200.fp32_per_second / TERA
predicted = {"dense_fp32_us": 1 - l1_cap / peak}
print(f"sparse fp32, limit of L1: {l1_cap:.1f} TFLOP/s; dense fp32, peak: {peak:.1f} TFLOP/s")
print(f"equal at {predicted['dense_fp32_us']:.1%} sparsity")

scaling = load("scaling")
large = [row for row in scaling.rows if row.op == "spmm"]


def dense_tflops(row, rival):
    """Of a dense library, which multiplies by the zeros, too."""
    return 2 * row.m * row.k * row.n / getattr(row, rival) / 1e6


ours = max(row.tflops for row in large)
fastest = {rival: max(dense_tflops(row, rival) for row in large) for rival in RIVAL_TIMES if "dense" in rival}
print(f"\nreached, at best, on large matrices: ours {ours:.1f} TFLOP/s ({ours / l1_cap:.0%} of its limit)")
for rival, best_of in fastest.items():
    if rival != "dense_fp32_us":
        predicted[rival] = 1 - ours / best_of
    said = f"  ({best_of / peak:.0%} of its peak)" if rival == "dense_fp32_us" else ""
    print(f"{rival:15} {best_of:6.1f} TFLOP/s: equal at {1 - ours / best_of:.1%} sparsity{said}")

assert predicted["dense_fp32_us"] == 0.75
assert abs(ours / l1_cap - fastest["dense_fp32_us"] / peak) < 0.02

# %% [markdown]
# The limit of L1 is a quarter of the peak. So the guess is: three quarters must be zero. Neither side reaches
# its limit; but on large matrices both come to about the same share of it, and the guess stands. Against
# tensor cores we used the speeds that the record has. Those sparsities are far higher.
#
# The 4 bytes are no guess. The emulator counts what the lanes ask for; here with the variant that the record
# has for its largest problem, on a small matrix:

# %%
row = next(row for row in large if row.problem == (*BAR, "warm"))
small, columns = uniform(16, 64, sparsity=0.8, seed=1), 512
counted = count("spmm", small, columns, parse_variant("spmm", row.variant))
vector = parse_variant("spmm", row.variant).vector
asked = counted.of("B")["lanes"].low * vector * 4
print(f"bytes of B that lanes ask for: {asked:,}; nonzeros times n: {small.nnz * columns:,}")
assert asked == 4 * small.nnz * columns

# %% [markdown]
# ## Who does what
#
# The picture shows the 512 x 512 layers of the Transformer with `n=2048`, from many networks. Dense does not
# care how sparse A is: its times lie on a level line. Ours fall with each zero. The two limits of the
# prediction are drawn, too: they cross at 75%.

# %%
SIDE, WIDTH = 512, 2048


def square(rows, width):
    """The layers of SIDE x SIDE, by sparsity."""
    some = [r for r in rows if r.width == width and r.m == (r.k if r.op == "spmm" else r.n) == SIDE]
    return sorted(some, key=lambda r: r.sparsity)


some = square(spmm, WIDTH)
axis = canvas.axes(None, 7, 4)
x = [row.sparsity for row in some]
lines = {"ours": "time_us", "cuSPARSE": "cusparse_us", "Sputnik": "sputnik_us"}
lines |= {"dense fp32": "dense_fp32_us", "dense TF32": "dense_tf32_us", "dense fp16": "dense_fp16_us"}
for (name, field), colour, marker in zip(
    lines.items(), canvas.shades(len(lines)), canvas.MARKERS, strict=False
):
    y = [getattr(row, field) for row in some]
    axis.plot(x, y, color=colour, marker=marker, linestyle="", markersize=4.5, label=name)
at = np.linspace(min(x), 0.99, 100)
axis.plot(
    at, 2 * (1 - at) * SIDE**2 * WIDTH / l1_cap / 1e6, color="black", linestyle="--", label="limit of L1"
)
axis.axhline(2 * SIDE**2 * WIDTH / peak / 1e6, color="black", linestyle=":", label="limit of dense fp32")
axis.set(ylim=(0, 110))
axis.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
canvas.label(axis, "sparsity of A", "time (µs)")
canvas.legend(axis)

lost = [row.sparsity for row in some if row.dense_fp32_us < row.time_us]
won = [row.sparsity for row in some if row.dense_fp32_us > row.time_us]
axis = canvas.claim(
    axis,
    f"n={WIDTH}: dense fp32 is faster up to {max(lost):.0%} sparsity, and slower from {min(won):.0%} on",
    f"SpMM, {len(some)} layers of {SIDE} x {SIDE}. {measured}",
)
assert max(lost) < predicted["dense_fp32_us"] < min(won)

# %% [markdown]
# The guess holds: the crossing lies between those two. Now the same layers, other widths, and SDDMM, where
# the dense rival computes every element of the result and throws most away. For each, between which
# sparsities does it cross?

# %%
for rows, widths in ((spmm, (256, 2048)), (sddmm, (64, 256, 1024))):
    for width in widths:
        for rival in predicted:
            layers = square(rows, width)
            behind = [r.sparsity for r in layers if getattr(r, rival) < r.time_us]
            ahead = [r.sparsity for r in layers if getattr(r, rival) > r.time_us]
            first = f"from {min(ahead):6.1%}" if ahead else "nowhere     "
            last = f"up to {max(behind):6.1%}" if behind else "nowhere"
            print(
                f"{layers[0].op:5} {width:4}  {rival.removesuffix('_us'):10}  faster {first}, slower {last}"
            )

narrow, wide = ([r for r in square(spmm, n) if r.dense_fp32_us < r.time_us] for n in (256, 2048))
assert max(r.sparsity for r in narrow) < 0.65 < max(r.sparsity for r in wide)
idle = median(dense_tflops(r, "dense_fp32_us") for r in square(spmm, 256)) / peak
busy = median(dense_tflops(r, "dense_fp32_us") for r in square(spmm, 2048)) / peak
print(f"\ndense fp32 on these layers: {idle:.0%} of peak at n=256, {busy:.0%} at n=2048")
assert idle < busy < fastest["dense_fp32_us"] / peak
lost_tf32 = [r.sparsity for r in square(spmm, 2048) if r.dense_tf32_us < r.time_us]
assert max(lost_tf32) < predicted["dense_tf32_us"] and max(lost_tf32) >= 0.95
assert all(r.dense_fp16_us < r.time_us for r in square(spmm, 2048))

# %% [markdown]
# At small widths sparse pays earlier: a small dense product cannot fill the GPU either. Where the two
# overlap, layers of like sparsity went either way. At `n=2048` TF32 stays ahead until about where we
# predicted. Float16 is ahead of us even at the highest sparsity there; the prediction said that, too.
#
# ## The naive summary
#
# "On average so many times faster" hides two choices: of the rival, and of the average. Here is the ratio of
# times on the problems with `n=2048`, averaged in the plain way.

# %%
some = against([row for row in spmm if row.n == 2048], FASTEST)
forward = sum(r.times for r in some) / len(some)
backward = sum(1 / r.times for r in some) / len(some)
print(f"their time / ours, arithmetic mean: {forward:.2f}")
print(f"our time / theirs, arithmetic mean: {backward:.2f}")
turned = geometric_mean(1 / r.times for r in some)
print(f"geometric means:                    {mean(some):.3f} and {turned:.3f}")
assert forward > 1.05 and backward > 1.05 and abs(mean(some) - 1) < 0.02

# %% [markdown]
# By the arithmetic mean we are faster than they, and they are faster than we. The geometric mean cannot do
# that: turn the ratio over, and its mean turns over. It says: at `n=2048`, over all sparsities, it is a draw.
#
# The other choice is the rival. Against each of them alone, and against the fastest in each problem:

# %%
print(f"{'geometric mean of speed-ups':30}{'all':>8}{'>= 75%':>8}{'< 75%':>8}{'worst':>8}{'lost':>12}")
table = {}
for rows in (spmm, sddmm):
    for rival in (*RIVAL_TIMES, FASTEST):
        ratios = against(rows, rival)
        parts = [[r for r in ratios if (r.row.sparsity >= SPARSE) == high] for high in (True, False)]
        table[rows[0].op, rival] = [mean(ratios), *map(mean, parts)]
        behind = sum(r.times < 1 for r in ratios)
        print(
            f"{rows[0].op:6} against {rival.removesuffix('_us'):15}"
            + "".join(f"{number:8.2f}" for number in table[rows[0].op, rival])
            + f"{min(r.times for r in ratios):8.2f}{f'{behind} of {len(ratios)}':>12}"
        )
for op in ("spmm", "sddmm"):
    assert all(table[op, FASTEST][0] < table[op, rival][0] for rival in RIVAL_TIMES[:3])
assert all(row.cusparse_us > row.time_us and row.sputnik_us > row.time_us for row in spmm)

# %% [markdown]
# In SpMM no problem is lost to a sparse library. An article could stop there. But nobody has to use a sparse
# kernel, so the line that counts is that of the fastest. It is lower than each of the three above it.
#
# ## The measurement
#
# Nothing is worth more care than the rivals' code. These are the lines that run cuSPARSE, and what its
# time does not include. (`sp_mm_preprocess` comes before; each of three algorithms was tried, and the fastest
# counts.)

# %%
print(inspect.getsource(baselines.Libraries.spmm))
print(inspect.getdoc(time_launches))
print("\nthe fastest algorithm, in so many problems:")
algorithms = [row.cusparse_alg for row in spmm]
print({name: algorithms.count(name) for name in sorted(set(algorithms))})
print("\nabout Sputnik the record says:", sweep.provenance["sputnik_us"])
print("L2 is", sweep.provenance["l2"])
assert {row.l2 for row in sweep.rows} == {"warm"} and "not measured in this process" in sweep.provenance[
    "sputnik_us"
]
assert max(algorithms.count(name) for name in set(algorithms)) > 0.8 * len(algorithms)

# %% [markdown]
# Two things to keep in mind. Sputnik's times come from an earlier run. And the L2 cache is
# warm, for all alike: each launch finds what the one before it left. In a network, where other layers run in
# between, all would be slower, and not all by as much.
#
# ## Check
#
# A record can be wrong. What can be checked without a GPU: that no time is below its bound; that the variants
# are what the library would choose today; and how far two measurements of one thing lie apart. The ablation
# of the chapter before timed the same choices again.

# %%
everything = sweep.rows + scaling.rows
worst = max(l1_bound_us(row, H200) / row.time_us for row in everything)
print(f"nearest to the limit of L1: {worst:.0%} of it, of {len(everything)} rows")
assert worst < 1 and min(row.time_us for row in everything) > H200.launch_us


choices = [format_variant(select(p, H200_WARPS)[0]) for p in problems_of(sweep.rows, read_row_lengths())]
same = sum(choice == row.variant for choice, row in zip(choices, sweep.rows, strict=True))
print(f"chosen today as recorded: {same} of {len(choices)}")

once = {(row.problem, row.variant): row.time_us for row in sweep.rows}
again = {(row.problem, row.variant): row.time_us for row in load("ablation").rows}
apart = sorted(max(once[key] / again[key], again[key] / once[key]) - 1 for key in once.keys() & again.keys())
print(f"timed twice: {len(apart)} choices, {median(apart):.1%} apart in the median, {apart[-1]:.1%} at most")
print(f"19 of 20 are within {apart[int(0.95 * len(apart))]:.1%}")
assert same == len(choices) and median(apart) < 0.01 and apart[-1] > 0.1

# %% [markdown]
# So a win or loss by less than a few percent is a draw; and once in a while a time is just off, though each
# is the median of many launches. No single problem proves anything.
#
# ## Evidence: problem by problem
#
# A mean hides its worst. Here is every problem, against the fastest rival in float32. Hollow marks are
# problems that take us less than 8 µs. There much of the time is launching, filling and draining the
# GPU, which all kernels pay; they deserve a mean of their own.


# %%
def ticks(axis, at):
    for one in (axis.yaxis,):
        one.set_major_locator(FixedLocator(at))
        one.set_minor_locator(NullLocator())
        one.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


for rows, name in ((spmm, "SpMM"), (sddmm, "SDDMM")):
    axis = canvas.axes(None, 7, 4.3)
    ratios = against(rows, FASTEST)
    for short, look in ((False, {}), (True, dict(markerfacecolor="none"))):
        part = [r for r in ratios if (r.row.time_us < SHORT_US) == short]
        label = f"{'below' if short else 'from'} {SHORT_US:g} µs: {len(part)} problems, {mean(part):.2f}x"
        x, y = [r.row.sparsity for r in part], [r.times for r in part]
        marker = dict(marker="o", linestyle="", color=canvas.shades(3)[0], alpha=0.75, label=label)
        axis.plot(x, y, **marker, **look)
    axis.axhline(1, color="black", linewidth=1)
    axis.set(yscale="log", ylim=(0.4, 5))
    ticks(axis, [0.5, 0.7, 1, 1.4, 2, 2.8, 4])
    axis.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    canvas.label(axis, "sparsity of the matrix", "time of the fastest fp32 rival / ours (log scale)")
    canvas.legend_above(axis)
    behind = [r for r in ratios if r.times < 1]
    highest = max(r.row.sparsity for r in behind)
    axis = canvas.claim(
        axis,
        f"{name}: faster in {len(ratios) - len(behind)} of {len(ratios)} problems; "
        f"slower in {len(behind)}, none above {highest:.0%} sparsity",
        f"The paper's problems on the layers of the record. {measured}",
        canvas.LINE,
    )

short, long = ([r for r in against(spmm, FASTEST) if (r.row.time_us < SHORT_US) == s] for s in (True, False))
sparse_short, sparse_long = ([r for r in part if r.row.sparsity >= SPARSE] for part in (short, long))
print(f"SpMM, all:              {mean(short):.2f}x below {SHORT_US:g} µs, {mean(long):.2f}x from there on")
print(f"SpMM, at least {SPARSE:.0%}:    {mean(sparse_short):.2f}x and {mean(sparse_long):.2f}x")
shares = [sum(r.row.sparsity >= SPARSE for r in part) / len(part) for part in (short, long)]
print(f"share at least {SPARSE:.0%} sparse: {shares[0]:.0%} and {shares[1]:.0%}")
assert mean(short) - mean(long) > 3 * (mean(sparse_short) - mean(sparse_long)) > 0
assert shares[0] > 2 * shares[1] and mean(long) < 1 < mean(sparse_long)

# %% [markdown]
# The short problems look far better, but mostly because they are the sparse ones. Among sparse problems alone
# the difference is small. So our lead is not an artefact of tiny problems. The mean of the *long* problems
# over all sparsities is below 1, because most of them are not sparse enough.
#
# SDDMM crosses earlier. Its map:

# %%
axis = crossover(sweep, measured, op="sddmm")

# %% [markdown]
# ## Evidence: how it scales
#
# Pruned layers are small. Uniform random matrices can have any size, and here one size at a time was varied,
# and then several together. How near do we come to the limit of L1, and when?

# %%
axis = canvas.axes(None, 7, 3.8)
for sparsity, colour, marker in zip((0.8, 0.9, 0.95), canvas.shades(4), canvas.MARKERS, strict=False):
    part = [row for row in large if abs(row.sparsity - sparsity) < 0.01]
    x, y = [row.nnz * row.n for row in part], [l1_bound_us(row, H200) / row.time_us for row in part]
    axis.plot(x, y, marker, color=colour, label=f"{sparsity:.0%} sparse")
axis.set(xscale="log", ylim=(0, 1))
axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
canvas.label(axis, "multiply-adds: nonzeros of A times n (log scale)", "share of the L1 bound")
canvas.legend_above(axis, axis.get_legend_handles_labels()[0])
share = {row.problem: l1_bound_us(row, H200) / row.time_us for row in large}
low, high = min(share.values()), max(share.values())
decades = np.log10(max(r.nnz * r.n for r in large) / min(r.nnz * r.n for r in large))
axis = canvas.claim(
    axis,
    f"Over {decades:.0f} decades of work, from {low:.0%} to {high:.0%} of the L1 bound",
    f"SpMM on {len(large)} uniform random matrices. {measured}",
    canvas.LINE,
)
behind = [row for row in large if rival_us(row, FASTEST) < row.time_us]
print(f"lost to the fastest fp32 rival: {len(behind)} of {len(large)}")
ends = {
    s: [share[r.problem] for r in large if r.n == 4096 and abs(r.sparsity - s) < 0.01] for s in (0.8, 0.95)
}
assert max(share[r.problem] for r in large if r.nnz * r.n < 1e7) < 1 / 3
assert not behind and 4 < decades < 4.5 and min(ends[0.8]) > 1.3 * max(ends[0.95])

# %% [markdown]
# Below ten million multiply-adds we reach less than a third of the bound: there is not enough work to fill
# the GPU. In the largest, time grows with the work. But more zeros then cost efficiency: at 95% we stay
# further from the bound than at 80%. Rows are shorter, so that their start and end weigh more; and each row
# of B is used less often while it is in a cache. Which of the two it is, these times do not say.
#
# ## When it does not help
#
# Where dense wins, by how much? The median and the worst of each range, and what share of problems is lost:

# %%
print(f"{'SpMM, sparsity':16}" + "".join(f"{name.removesuffix('_us'):>26}" for name in predicted))
said = {}
for band in BANDS:
    cells = ""
    for rival in predicted:
        times = sorted(r.times for r in against(spmm, rival) if r.band == band)
        said[band, rival] = times
        cells += f"{median(times):8.2f}, {times[0]:.2f}, {sum(t < 1 for t in times):2} of {len(times)}"
    print(f"{band:16}      {cells}")

below, top = BANDS[0], BANDS[-1]
halves = [r for r in against(spmm, "dense_fp16_us") if r.times > 1]
at = sorted({r.row.n for r in halves})
print(f"\nfaster than dense fp16 in {len(halves)} of {len(spmm)} problems, with n =", at)
assert median(said[below, "dense_fp32_us"]) < 0.8 and said[below, "dense_fp32_us"][0] < 0.5
assert max(r.row.sparsity for r in against(spmm, "dense_tf32_us") if r.times < 1) > 0.94
assert said[top, "dense_tf32_us"][0] > 1 and said[BANDS[-2], "dense_tf32_us"][0] < 1
assert len(halves) < len(spmm) / 4 and 2048 not in at

# %% [markdown]
# (Median, worst, problems lost.) Be plain about it:
#
# - Below 60% sparsity a dense product in float32 is faster, at worst more than twice.
# - If your network bears TF32, which keeps 10 bits of a number's fraction, you need far more zeros: only from
#   96.5% on is no problem lost.
# - In most problems of the record dense float16 on tensor cores is faster than we are in float32; at `n=2048`
#   in all, however sparse.
# - What sparse still saves there is memory: a matrix at 90% sparsity needs, with its indices, a fifth of the
#   bytes of the dense float32 one. That was not measured here; it is arithmetic (4 + 4 bytes a nonzero).
#
# The library keeps a score of what it set out to reach, missed goals included:

# %%
found = scores()
print(*card(found), sep="\n")
missed = [score.goal.what for score in found if not score.reaches(score.goal.bar)]
assert (4 + 4) * 0.1 / 4 == 0.2

# %% [markdown]
# ## Exercise 1: where dense catches up
#
# Write a function that finds the crossing. It is given `points`, a list of (sparsity, our time, time of
# dense), sorted by sparsity, and returns the sparsity above which dense is never faster again. Take times
# to go on a straight line from point to point. If dense is faster nowhere, return None. The check has points
# of the record, and made-up ones whose crossing it knows. Your cost is how far off you are at most, in
# points of sparsity.

# %% tags=["exercise"]
GOAL_1 = 0.1


def _points(rows, rival="dense_fp32_us"):
    """(sparsity, ours, dense) of some rows; of several at one sparsity, the first."""
    found = {round(r.sparsity, 4): (r.sparsity, r.time_us, getattr(r, rival)) for r in reversed(rows)}
    return [found[sparsity] for sparsity in sorted(found)]


def _meets(points):
    """Where the last change of sign lies."""
    for (s0, ours0, dense0), (s1, ours1, dense1) in reversed(list(zip(points, points[1:], strict=False))):
        if ours0 > dense0 and ours1 <= dense1:
            behind, ahead = ours0 - dense0, dense1 - ours1
            return s0 + (s1 - s0) * behind / (behind + ahead)
    return None


def check_1(crossing):
    made_up = [
        ("made up, bent", [(0.5, 60.0, 30.0), (0.7, 40.0, 30.0), (0.8, 25.0, 30.0), (0.98, 21.0, 30.0)]),
        ("made up, twice", [(0.5, 9.0, 10.0), (0.6, 11.0, 10.0), (0.7, 8.0, 9.0), (0.9, 4.0, 9.0)]),
        ("made up, sparse alone", [(0.8, 20.0, 30.0), (0.9, 11.0, 30.0), (0.98, 6.0, 30.0)]),
    ]
    of_record = [
        (
            f"{rows[0].op} {width}",
            _points([r for r in rows if r.width == width and r.m == 512 and "transformer" in r.matrix]),
        )
        for rows, widths in ((spmm, (256, 2048)), (sddmm, (256, 1024)))
        for width in widths
    ]
    worst, where = 0.0, ""
    for name, points in made_up + of_record:
        answer, right = crossing(points), _meets(points)
        if right is None and answer is not None:
            return f"not yet: {name}: dense is faster nowhere, so it is None and not {answer}"
        if right is not None and not isinstance(answer, (int, float)):
            return f"not yet: {name}: {answer!r} is no sparsity"
        if right is not None and 100 * abs(answer - right) > worst:
            worst, where = 100 * abs(answer - right), f" ({name}: {answer:.3f})"
    if worst > GOAL_1:
        return f"not yet: cost {worst:.2f} points, goal {GOAL_1}{where}"
    return f"solved: cost {worst:.2f}, goal {GOAL_1}"


# %%
def nearest_point(points):
    """The highest sparsity at which dense was seen to be faster."""
    return max((sparsity for sparsity, ours, dense in points if dense < ours), default=None)


answer_1 = nearest_point
check_1(answer_1)

# %% [markdown]
# ## Exercise 2: choose before you measure
#
# For this layer the record has times of many variants; `variants_2` lists them, without their times. Choose
# one that beats cuSPARSE. `bounds("spmm", layer, N_2, variant)` is what you know beforehand: `bound_us`,
# `binding`, and `predicted_us`, which is fitted to other records of this GPU. The check looks up the
# measured time of your choice. That is your cost, in µs.

# %% tags=["exercise"]
LAYER_2 = (
    "transformer/random_pruning/0.9/"
    "body_decoder_layer_2_encdec_attention_multihead_attention_v_fully_connected.smtx"
)
N_2, GOAL_2 = 256, 4.5
layer = look_alike(LAYER_2)
_times = {
    parse_variant("spmm", row.variant): row.time_us
    for study in ("ladder", "candidates")
    for row in load(study).rows
    if (row.op, row.matrix, row.n) == ("spmm", LAYER_2, N_2)
}
variants_2 = list(_times)


def check_2(variant):
    if not isinstance(variant, sk.SpmmVariant):
        return f"not yet: {variant!r} is no SpmmVariant"
    if variant not in _times:
        return "not yet: the record has no time of this variant; choose one of variants_2"
    cost, best_us = _times[variant], min(_times.values())
    verdict = "solved" if cost <= GOAL_2 else "not yet"
    return f"{verdict}: cost {cost:.2f}, goal {GOAL_2} (the best of the record is {best_us:.2f})"


# %%
cusparse = next(row.cusparse_us for row in spmm if (row.matrix, row.n) == (LAYER_2, N_2))
print(f"cuSPARSE takes {cusparse:.2f} µs; the goal is {GOAL_2} µs; {len(variants_2)} variants have times")
assert GOAL_2 < cusparse
print(bounds("spmm", layer, N_2, variants_2[5]))

answer_2 = dict(sk.LADDERS["spmm"])["bin=True"]
check_2(answer_2)

# %% [markdown]
# ## A question to go on with
#
# The guess at the top rests on one thing: four bytes of B from L1 for each multiply-add. A kernel that reads
# a row of B once and uses it for *two* rows of A would be under another limit. Rows that share columns would
# have to come together. You have the kernels as plain functions, an emulator that counts, and a compiler
# that shows the code: how would you begin? That is the next chapter, `11_your_own_kernel`.
