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
# # Vector memory access: solutions
#
# Of the exercises of [03_vector_memory_access](../03_vector_memory_access.ipynb). Try them there first. The
# next cell runs those cells of the chapter that the exercises need.

# %%
from sparsekern.study.notebooks import exercises

exercises("03_vector_memory_access", globals())

# %% [markdown]
# ## Exercise 1: fifty columns
#
# Fifty is no multiple of four, and rows of B may not be padded: `vector=4` is not legal, `vector=2` is. With
# two columns each, 32 lanes have room for 64. So do sixteen lanes with two vectors of two each, and then two
# rows of A share a warp: that is the half warp for each row which the launch must keep.

# %%
answer_1 = sk.SpmmVariant(vector=2, subwarp=16, items=2, rows_per_block=4)
verdict = check_1(answer_1)
assert verdict.startswith("solved"), verdict
verdict

# %% [markdown]
# The neighbours, and what is wrong with each: an illegal vector, a row for each warp, and too few warps.

# %%
vectors_of_4 = check_1(sk.SpmmVariant(vector=4, subwarp=16, rows_per_block=4))
a_warp_a_row = check_1(sk.SpmmVariant(vector=2, subwarp=32, rows_per_block=4))
four_rows_a_warp = check_1(sk.SpmmVariant(vector=2, subwarp=8, items=4, rows_per_block=4))
print(vectors_of_4, a_warp_a_row, four_rows_a_warp, sep="\n")
assert "needs ldb" in vectors_of_4 and "cost" in a_warp_a_row and "warps, and" in four_rows_a_warp

# %% [markdown]
# ## Exercise 2: spell it out
#
# Each row of B starts on 16 bytes here, since it has memory for 52 columns: `lanes.load` may take four
# everywhere, also the last four of a row, of which two are padding. It may not *store* four there: what lies
# between the rows of C is not ours. The last lane stores its two columns one by one.


# %%
def make_by_vectors(variant, types):
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
                lanes.axpy(values[p], lanes.load(B, start, VECTOR), acc, 0)
            at = int64(row) * ldc + column
            if column + VECTOR <= n:
                lanes.store(C, at, lanes.take(acc, 0, VECTOR))
            else:
                for v in range(VECTOR):
                    if column + v < n:
                        lanes.store(C, at + v, lanes.take(acc, v, 1))

    return spmm


# %%
verdict = check_2(make_by_vectors)
assert verdict.startswith("solved"), verdict
verdict
