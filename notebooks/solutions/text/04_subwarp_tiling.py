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
# # Subwarp tiling: the exercises solved

# %%
from sparsekern.study.notebooks import exercises

exercises("04_subwarp_tiling", globals())

# %% [markdown]
# ## Exercise 1: thirty-two columns
#
# Eight lanes with vectors of four are 32 columns: no lane is past the end of B. `bundle` puts rows of like
# length in one warp, so that few lanes wait. Staging pays here only with reads of four, and then four words
# of padding keep the four slices out of each other's banks. The uniform toggles take the drift away, so
# that the highest count is the lowest.

# %%
answer_1 = sk.SpmmVariant(
    vector=4,
    subwarp=8,
    rows_per_block=8,
    stage=True,
    stage_pad=4,
    sparse_vector=4,
    unroll_residue=True,
    bundle=True,
    uniform_trip=True,
    uniform_branch=True,
)
print(check_1(answer_1))
assert check_1(answer_1).startswith("solved")
for name, less in (("bundle", {"bundle": False}), ("stage_pad", {"stage_pad": 0})):
    print(f"without {name}:", check_1(replace(answer_1, **less)))

# %% [markdown]
# ## Exercise 2: make the trips uniform
#
# One line: the trips of the longest row of the warp, which every subwarp asks of the others before the loop.
# In trips past its end, `stop - tile` is not above zero, so that a row loads nothing and adds nothing.


# %%
def make_uniform(variant, types):
    """C = A @ B. One column a lane, one row a subwarp; all subwarps of a warp make as many trips."""
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
        trips = lanes.warp_max(trips, SUBWARP)  # New
        total = float32(0)
        for t in range(trips):
            tile = int32(first + t * SUBWARP)
            cuda.syncwarp()
            if tile + lane < stop:
                staged_values[slot + lane] = values[tile + lane]
                staged_columns[slot + lane] = columns[tile + lane]
            cuda.syncwarp()
            for j in range(min(SUBWARP, stop - tile)):
                b = B[int64(staged_columns[slot + j]) * ldb + column] if column < n else float32(0)
                total = lanes.fma(staged_values[slot + j], b, total)
        cuda.syncthreads()
        if row < m and column < n:
            C[int64(row) * ldc + column] = total

    return spmm


print(check_2(make_uniform))
assert check_2(make_uniform).startswith("solved")

# %% [markdown]
# A mask for each subwarp, in place of the uniform trips, would be right, too. Here subwarps part only in
# the last trip of the shorter one, after which it does nothing. In the library's kernel they part in the
# middle, where one has a full tile and the other has not.
#
# Two near misses. The first pads every tile with zeros in column 0, as the paper's kernel does: then row 0
# of B reaches rows of C that do not want it, and zero times NaN is NaN. The second pads with column 1,
# where B happens to be finite. C is right, and rows that are done go on loading B.


# %%
def make_leaking(variant, types):
    """Pads each tile with zeros, in column 0."""
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
        trips = lanes.warp_max(trips, SUBWARP)  # New
        total = float32(0)
        for t in range(trips):
            tile = int32(first + t * SUBWARP)
            cuda.syncwarp()
            staged_values[slot + lane] = values[tile + lane] if tile + lane < stop else float32(0)
            staged_columns[slot + lane] = columns[tile + lane] if tile + lane < stop else int32(0)
            cuda.syncwarp()
            for j in range(SUBWARP):
                b = B[int64(staged_columns[slot + j]) * ldb + column] if column < n else float32(0)
                total = lanes.fma(staged_values[slot + j], b, total)
        cuda.syncthreads()
        if row < m and column < n:
            C[int64(row) * ldc + column] = total

    return spmm


def make_generous(variant, types):
    """Pads each tile with zeros, in column 1."""
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
        trips = lanes.warp_max(trips, SUBWARP)  # New
        total = float32(0)
        for t in range(trips):
            tile = int32(first + t * SUBWARP)
            cuda.syncwarp()
            staged_values[slot + lane] = values[tile + lane] if tile + lane < stop else float32(0)
            staged_columns[slot + lane] = columns[tile + lane] if tile + lane < stop else int32(1)
            cuda.syncwarp()
            for j in range(SUBWARP):
                b = B[int64(staged_columns[slot + j]) * ldb + column] if column < n else float32(0)
                total = lanes.fma(staged_values[slot + j], b, total)
        cuda.syncthreads()
        if row < m and column < n:
            C[int64(row) * ldc + column] = total

    return spmm


for make in (make_leaking, make_generous):
    print(f"{make.__name__}: {check_2(make)}")
    assert check_2(make).startswith("not yet")
