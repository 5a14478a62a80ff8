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
# # One-dimensional tiling: the exercises solved

# %%
from sparsekern.study.notebooks import exercises

exercises("02_one_dimensional_tiling", globals())

# %% [markdown]
# ## Exercise 1: the formula
#
# A strip is `32 * vector` columns wide, and the last one may not be full. Every strip of a row goes over
# the row's tiles. A tile is copied by as many loads as it has groups of 32 nonzeros: the last tile of a row
# may be short, so that of a tile of 64 the second load finds nobody who wants anything. Each lane then
# reads a value and a column index for each nonzero, whatever the tile. Two barriers a tile, but for the
# first of a row; and a row without nonzeros has no first tile.


# %%
def answer_1(lengths, n, vector, tile_k):
    strips = ceil(n / (32 * vector))
    tiles = [min(tile_k, length - at) for length in lengths for at in range(0, length, tile_k)]
    rows = sum(length > 0 for length in lengths)
    loads = sum(ceil(tile / 32) for tile in tiles)
    return strips * loads, strips * 2 * sum(lengths), strips * (2 * len(tiles) - rows)


print(check_1(answer_1))
assert check_1(answer_1).startswith("solved")

# %% [markdown]
# ## Exercise 2: two rows high
#
# Merge the two rows as one merges sorted lists: take the smaller of the two next columns, load that row of B,
# and give it to whichever row has it. All lanes of a warp take the same way, since they share both rows. A
# second row that does not exist has no nonzeros.
#
# For this, loads fell to seven for each twelve nonzeros: fourteen columns for twenty-four. Each of them now
# needs comparisons and branches, which a nonzero of a single row does not.


# %%
def make_pairs(variant, types):
    """C = A @ B. A warp for 32 columns of two rows, 2i and 2i + 1; columns of a row ascend."""
    ROWS = variant.rows_per_block

    def spmm(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
        column = cuda.blockIdx.y * 32 + cuda.threadIdx.x
        if row % 2 == 0 and row < m and column < n:
            both = row + 1 < m
            p, q = offsets[row], offsets[row + 1]
            p_stop, q_stop = q, offsets[row + 2] if both else q
            upper, lower = float32(0), float32(0)
            while p < p_stop or q < q_stop:
                index = columns[p] if p < p_stop else columns[q]
                if q < q_stop:
                    index = min(index, columns[q])
                b = B[int64(index) * ldb + column]
                if p < p_stop and columns[p] == index:
                    upper = lanes.fma(values[p], b, upper)
                    p += 1
                if q < q_stop and columns[q] == index:
                    lower = lanes.fma(values[q], b, lower)
                    q += 1
            C[int64(row) * ldc + column] = upper
            if both:
                C[int64(row + 1) * ldc + column] = lower

    return spmm


print(check_2(make_pairs))
assert check_2(make_pairs).startswith("solved")
assert round(
    count("spmm", alike, 64, STRIPS, make=make_pairs).of("B")["requests"].low / 2 / alike.nnz, 4
) == round(7 / 12, 4)
