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
# # Start here
#
# A pruned layer of a neural network multiplies a sparse matrix by a dense one, `C = A @ B`, called SpMM.
# This notebook runs such kernels, watches what every lane of the GPU would do, and changes them. It
# needs no GPU: kernels are plain Python functions, and an emulator runs the same functions exactly.
#
# You will
#
# - run a kernel and check it against SciPy;
# - see which lane loads what, and predict a count before it is measured;
# - edit a kernel, and let the emulator find a bug in another.

# %% tags=["exercise"]
import inspect
import linecache
from collections import Counter

import numba  # noqa: F401 (the kernel below needs it)
import numpy as np
from numba import cuda, float32, int32, int64, njit  # noqa: F401 (the kernel below needs them all)

import sparsekern as sk
from sparsekern.datasets import look_alike
from sparsekern.generators import uniform, with_row_lengths
from sparsekern.kernels import spmm as page
from sparsekern.machine import lanes
from sparsekern.reference import error, spmm_reference, tolerance
from sparsekern.study.ladder import climb
from sparsekern.study.plot import lane_map, trace

rng = np.random.default_rng(0)

# %%
print("kernels run on:", sk.backend())

# %% [markdown]
# ## The result first
#
# Below, the plainest kernel becomes the library's, one toggle in each line. A kernel that gives every
# row of C to one group of lanes has to load, for each nonzero of A, a row of B: with B of `n` columns,
# `n / 4` loads of 16 bytes, and then `n` multiply-adds. Call that *the least*. The first three columns
# are multiples of it, with what A costs included. `staged` counts loads from shared memory. `error` is
# the largest against SciPy in float64, as a share of what rounding to float32 may cost.

# %%
layer = look_alike("rn50/extended_magnitude_pruning/0.8/bottleneck_2_block_group1_1_1.smtx")
start = layer.topology.offsets[:17]  # of its first 16 rows, which will do
a = sk.Csr.from_arrays(start, layer.topology.columns, layer.values, (16, layer.shape[1]))
b = rng.standard_normal((a.shape[1], 64), dtype=np.float32)
needed = a.nnz * b.shape[1]  # numbers of B
allowed = tolerance(a.topology.row_lengths.max())
print(f"{a} @ B {b.shape}\n")

print(f"{'':24}  --- x the least ---    per nonzero of A")
print(f"{'':24}{'loads':>7}{'bytes':>7}{'fma':>7}{'staged':>9}{'barriers':>10}{'error':>8}")
loads, fma, staged = {}, {}, {}
for rung in climb("spmm", a, b, backend="emulator"):
    step, counts = rung.step, rung.counts
    loads[step] = counts.accesses("global")[0] / (needed / 4)
    fma[step] = counts.fma / needed
    size = counts.bytes("global")[0] / (needed * 4)
    staged[step] = counts.accesses("shared")[0] / a.nnz
    print(
        f"{step:24}{loads[step]:7.2f}{size:7.2f}{fma[step]:7.2f}"
        f"{staged[step]:9.1f}{counts.barriers / a.nnz:10.1f}{rung.error / allowed:8.3f}"
    )
    assert rung.error <= allowed

# What is said of it below:
assert loads["plain"] > 10 * loads["split=4"] and loads["split=4"] < 1.2
assert loads["rows_per_block=8"] > 2 * loads["stage=True"] and loads["prescale=True"] > 3 * loads["vector=4"]
assert fma["vector=4"] > 1.9 and fma["subwarp=16"] < 1.1
assert staged["stage=True"] > 10 * staged["split=4"]
assert abs(loads["unroll_residue=True"] / loads["stage_pad=4"] - 1) < 0.1

# %% [markdown]
# More than ten times fewer loads, and close to the least: what remains is A itself. Two steps did it.
# `stage` reads A once for a strip of C instead of once for each lane; `vector=4` loads four columns at
# a time. What `stage` saves in global loads it first pays for in shared ones, since every lane reads
# every staged nonzero; fewer lanes a row, and staged nonzeros read four at a time, bring that down, too.
#
# No step helps always. With four columns in each lane, a warp covers twice the columns that
# B has here, and half its lanes work on nothing: look at `fma`. `subwarp=16` repairs that, by giving
# the lanes of a warp to several rows. The steps from `bundle` on leave the counts nearly as they were:
# they change *when* things happen, and only time on a GPU shows it. `split=4` even adds some, for four
# subwarps now look up each row: it pays where a GPU has more room than rows.

# %% [markdown]
# ## A matrix of your own
#
# Without a variant, `spmm` chooses one that fits the operands, and `plan_spmm(...).explain()` says why.

# %% tags=["exercise"]
a = uniform(64, 64, sparsity=0.9, seed=1)
b = rng.standard_normal((64, 32), dtype=np.float32)


def share(c, reference, scale, a):
    """The error of `c` as a share of what rounding may cost."""
    return error(c, reference, scale) / tolerance(a.topology.row_lengths.max())

# %%
c = sk.spmm(a, b)  # also a @ b; A may be a SciPy csr_array, too
print(sk.plan_spmm(a, b).explain())

against_scipy = share(c, *spmm_reference(a, b), a)
print(f"\nerror / allowed: {against_scipy:.3f}, largest difference: {abs(c - a.to_scipy() @ b).max():.1e}")
assert against_scipy <= 1

# %% [markdown]
# ## Who loads what
#
# A warp has 32 lanes. Here four *subwarps* of eight share it, each with a row of A. A lane keeps four
# columns of C in registers. The picture is drawn from the accesses that the emulator saw, so it shows
# what the kernel does and not what it was meant to do. Follow one nonzero: its column index, in A, is
# the row of B that its subwarp reads.

# %%
picture = sk.SpmmVariant(vector=4, subwarp=8, rows_per_block=4, stage=True, tile_k=8)
tiny = with_row_lengths([3, 2, 4, 1, 3, 5, 0, 2], k=12, seed=1)
axes = lane_map(tiny, n=32, variant=picture)

# %% [markdown]
# The white rows belong to the next block: `block=(1, 0)` shows them. Other variants worth a look:
# `vector=1, subwarp=32`, and `sparse_vector=4, roma=True` on a matrix with rows of eight or more.
#
# ## Predict, then count
#
# Each nonzero needs `n` numbers of B, `vector` in each load. So the loads of B must come to
# `nnz * n / vector`, and their bytes must not change. Without staging, each lane of a subwarp also reads
# the nonzero's value and column index for itself: what should fewer lanes do to those?

# %%
n = b.shape[1]
for vector, subwarp in ((1, 32), (4, 8)):
    predicted = a.nnz * n // vector
    variant = sk.SpmmVariant(vector=vector, subwarp=subwarp, rows_per_block=4)
    plan = sk.plan_spmm(a, b, variant, backend="emulator")
    seen = [x for x in trace(plan, a.values, b) if x.kind == "load"]
    loads = Counter(x.array for x in seen)
    print(
        f"vector={vector}, subwarp={subwarp:2}:  B predicted {predicted:6}, counted {loads['B']:6};  "
        f"values {loads['values']:6};  columns {loads['columns']:6}"
    )
    assert loads["B"] == predicted
    assert sum(4 * x.width for x in seen if x.array == "B") == 4 * a.nnz * n
    assert loads["values"] == loads["columns"] == a.nnz * subwarp

# %% [markdown]
# ## Read the kernel
#
# A kernel is a page: who am I, where is my tile, registers, main loop, residue, store. A *factory*
# takes the toggles out of a variant and returns the kernel; the compiler then drops every branch that is
# off. This is what it does to one nonzero, and the lines that the toggles add:

# %%
source = inspect.getsource(page.make_spmm)
print(source[source.index("    @njit") : source.index("    def spmm(")].rstrip(), "\n")
print(*(line.strip() for line in source.splitlines() if "# New:" in line), sep="\n")

# %% [markdown]
# To have all of it in a cell, and change it, type this in an empty one and run it:
#
# ```
# %load -s make_spmm ../sparsekern/kernels/spmm.py
# ```
#
# The cell at the top has the imports that it needs. Run it again after an edit, and pass
# `make=make_spmm` to `spmm`.
#
# ## Edit it
#
# Here is a smaller kernel: one row for each subwarp, `VECTOR` columns for each lane, nothing staged.
# It has the signature of the library's, so grid, block and arguments come from the variant as always.
# One line is ours: it clamps C at zero, as a layer with ReLU would. `lane_map` takes `make=`, too.

# %% tags=["exercise"]
def make_relu(variant, types):
    """C = max(A @ B, 0), for n a multiple of `vector`."""
    VECTOR, SUBWARP, ROWS = variant.vector, variant.subwarp, variant.rows_per_block

    @njit(inline="always")
    def finish(total):
        return max(total, float32(0))  # New: ReLU

    def spmm(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
        column = (cuda.blockIdx.y * SUBWARP + cuda.threadIdx.x) * VECTOR  # the first of mine
        if row < m and column < n:
            acc = cuda.local.array(VECTOR, float32)  # registers
            for v in range(VECTOR):
                acc[v] = float32(0)
            for p in range(offsets[row], offsets[row + 1]):
                start = int64(columns[p]) * ldb + column
                lanes.axpy(values[p], lanes.load(B, start, VECTOR), acc, 0)
            for v in range(VECTOR):
                acc[v] = finish(acc[v])
            lanes.store(C, int64(row) * ldc + column, lanes.take(acc, 0, VECTOR))

    return spmm

# %% tags=["exercise"]
def relu_reference(a, b):
    reference, scale = spmm_reference(a, b)
    return np.maximum(reference, 0), scale


plain = sk.SpmmVariant(vector=4, subwarp=8, rows_per_block=4)

# %%
c = sk.spmm(a, b, plain, make=make_relu)
print(f"error / allowed: {share(c, *relu_reference(a, b), a):.3f}, least of C: {c.min()}")
assert share(c, *relu_reference(a, b), a) <= 1 and c.min() == 0

# %% [markdown]
# ## Break it
#
# One line of the next kernel is wrong. Find it before you run the cell.

# %%
def make_planted(variant, types):
    SUBWARP, ROWS = variant.subwarp, variant.rows_per_block

    def spmm(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
        column = cuda.blockIdx.y * SUBWARP + cuda.threadIdx.x
        if row < m and column < n:
            total = float32(0)
            p = offsets[row]
            while p <= offsets[row + 1]:
                total += values[p] * B[int64(columns[p]) * ldb + column]
                p += 1
            C[int64(row) * ldc + column] = total

    return spmm


try:
    sk.spmm(a, b, sk.SpmmVariant(), make=make_planted, backend="emulator")
except sk.EmulatorError as caught:
    print(str(caught).splitlines()[0])
    print(f"block {caught.block}, thread {caught.thread}, line {caught.line} of the cell:")
    print(linecache.getline(caught.file, caught.line).rstrip())
    assert caught.kind == "out of bounds"
else:
    raise AssertionError("the emulator should have stopped this kernel")

# %% [markdown]
# Every row took one nonzero too many, from the row after it. The last row has none after it, and there
# the emulator stopped, at the line that read. A GPU would most likely have gone on, and been wrong in
# silence. The emulator also stops at misaligned vectors, at memory that nothing was written to, and at
# barriers that some lanes never reach.
#
# ## Exercise 1: the right shape
#
# B now has 16 columns. Find toggles that bring the loads from global memory near the least, with no lane
# idle: replace `answer_1` until `check_1` is content. Your cost is the loads, as a multiple of the least.
# Mind how short the rows are.
#
# Stuck? [solutions/00_start_here](solutions/00_start_here.ipynb) has an answer to each exercise, and why.

# %% tags=["exercise"]
GOAL_1 = 1.7
narrow = np.ascontiguousarray(b[:, :16])


def run(a, b, variant, make=sk.make_spmm):
    """C = a @ b on the emulator, and what it counted. C is NaN wherever the kernel does not write."""
    plan = sk.plan_spmm(a, b, variant, make=make, backend="emulator")
    return plan.count(a.values, b, out=np.full((a.shape[0], b.shape[1]), np.nan, np.float32))


def check_1(variant):
    c, counts = run(a, narrow, variant)
    needed = a.nnz * narrow.shape[1]
    cost, idle = counts.accesses("global")[0] / (needed / 4), 1 - needed / counts.fma
    if share(c, *spmm_reference(a, narrow), a) > 1:
        return "not yet: C is wrong"
    if idle > 0.01:
        return f"not yet: {idle:.0%} of the multiply-adds are idle"
    return f"{'solved' if cost <= GOAL_1 else 'not yet'}: cost {cost:.2f}, goal {GOAL_1}"

# %%
answer_1 = sk.SpmmVariant(vector=1, subwarp=16, rows_per_block=4)
check_1(answer_1)

# %% [markdown]
# ## Exercise 2: wider strips
#
# `make_relu` reads A again for every strip of C. With `items=2`, the grid has half as many strips, and
# each lane should own two vectors of columns, `SUBWARP * VECTOR` columns apart. Copy `make_relu`, and
# make it honour `variant.items`. Your cost is the loads of A for each nonzero.

# %% tags=["exercise"]
wide = rng.standard_normal((64, 64), dtype=np.float32)


def loads_of_a(variant, make):
    plan = sk.plan_spmm(a, wide, variant, make=make, backend="emulator")
    return sum(x.array in ("values", "columns") for x in trace(plan, a.values, wide)) / a.nnz


GOAL_2 = loads_of_a(plain, make_relu) / 2


def check_2(make):
    variant = sk.SpmmVariant(vector=4, subwarp=8, items=2, rows_per_block=4)
    try:
        c, _ = run(a, wide, variant, make)
    except sk.EmulatorError as caught:
        return f"not yet: {str(caught).splitlines()[0]}"
    if share(c, *relu_reference(a, wide), a) > 1:
        return f"not yet: C is wrong, and {np.isnan(c).mean():.0%} of it never written"
    cost = loads_of_a(variant, make)
    return f"{'solved' if cost <= GOAL_2 else 'not yet'}: cost {cost:.1f}, goal {GOAL_2:.1f}"

# %%
answer_2 = make_relu
check_2(answer_2)

# %% [markdown]
# ## A question to go on with
#
# The ladder cut the *loads* of B, and not one *byte*: each nonzero still reads its whole row of B. On a
# GPU that is the wall these kernels meet first. Two rows of A with a nonzero in the same column read the
# same row of B. What would a kernel have to look like to read it once for both, and how would A have to
# look for that to pay?
