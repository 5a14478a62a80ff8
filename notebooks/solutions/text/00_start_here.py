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
# # Start here: solutions
#
# Of the exercises of [00_start_here](../00_start_here.ipynb). Try them there first. The next cell runs those
# cells of the chapter that the exercises need.

# %%
from sparsekern.study.notebooks import exercises

exercises("00_start_here", globals())

# %% [markdown]
# ## Exercise 1: the right shape
#
# With `vector=4`, the 16 columns of B are four lanes' work: `subwarp=4`, and no lane is idle. Then the loads
# of B are the least, and the rest is what A costs: without staging, each of the four lanes reads each value
# and each column index. `stage` reads them once for the subwarp. Rows are short, so tiles should be, too;
# `sparse_vector=4` reads four nonzeros at a time, which `roma` allows where a row starts anywhere.

# %%
answer_1 = sk.SpmmVariant(
    vector=4, subwarp=4, rows_per_block=8, stage=True, tile_k=8, sparse_vector=4, roma=True
)
verdict = check_1(answer_1)
assert verdict.startswith("solved"), verdict
verdict

# %% [markdown]
# The loads of B, and how much each of the last two steps does:

# %%
unstaged = sk.SpmmVariant(vector=4, subwarp=4, rows_per_block=8)
by_one = sk.SpmmVariant(vector=4, subwarp=4, rows_per_block=8, stage=True, tile_k=8)
costs = []
for variant in (unstaged, by_one, answer_1):
    _, counts = run(a, narrow, variant)
    costs.append(counts.accesses("global")[0] / (a.nnz * 16 / 4))
    print(f"{costs[-1]:.2f} times the least: {variant}")
assert costs[0] > costs[1] > GOAL_1 >= costs[2]

plan = sk.plan_spmm(a, narrow, answer_1, backend="emulator")
loads_of_b = sum(x.kind == "load" and x.array == "B" for x in trace(plan, a.values, narrow))
print(f"{loads_of_b} loads of B for {a.nnz} nonzeros with {narrow.shape[1]} columns each")
assert loads_of_b == a.nnz * narrow.shape[1] / 4

# %% [markdown]
# ## Exercise 2: wider strips
#
# A lane owns `ITEMS` vectors of C. It reads a nonzero once, and uses it for each of them; B and C are met
# `STRIDE` columns further on each time, so that a subwarp still loads columns that lie side by side. The grid
# has a strip for each `STRIDE * ITEMS` columns. A vector may lie past the end of B: `load_if` loads nothing
# there.


# %%
def make_wider(variant, types):
    VECTOR, SUBWARP, ROWS, ITEMS = variant.vector, variant.subwarp, variant.rows_per_block, variant.items
    STRIDE = SUBWARP * VECTOR  # columns between the vectors of a lane
    SUMS = ITEMS * VECTOR

    def spmm(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
        column = cuda.blockIdx.y * STRIDE * ITEMS + cuda.threadIdx.x * VECTOR  # the first of mine
        if row < m:
            acc = cuda.local.array(SUMS, float32)  # registers
            for v in range(SUMS):
                acc[v] = float32(0)
            for p in range(offsets[row], offsets[row + 1]):
                value, start = values[p], int64(columns[p]) * ldb + column
                for i in range(ITEMS):
                    x = lanes.load_if(column + i * STRIDE < n, B, start + i * STRIDE, VECTOR)
                    lanes.axpy(value, x, acc, i * VECTOR)
            for v in range(SUMS):
                acc[v] = max(acc[v], float32(0))
            for i in range(ITEMS):
                if column + i * STRIDE < n:
                    at = int64(row) * ldc + column + i * STRIDE
                    lanes.store(C, at, lanes.take(acc, i * VECTOR, VECTOR))

    return spmm


# %%
verdict = check_2(make_wider)
assert verdict.startswith("solved"), verdict
verdict
