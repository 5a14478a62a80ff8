"""What the choice of a variant depends on: a few numbers of a problem, and of the GPU.

Of SpMM: how full the GPU is, and by columns or rows; the longest chain of sums; how many rows share a row of
B; how uneven rows are. Of SDDMM, whose strips are alike: how full the GPU is, and how long a sum is to split.
"""

WIDE, NARROW = 128, 32  # columns of C: what a warp takes, four to a lane, and a quarter of one
TILE = 16  # nonzeros of a row: what SDDMM takes at a time
EVEN = 0.1  # CoV of row lengths up to which rows are all alike to a block

FEATURES = {  # by operation, with what each is in words
    "spmm": {
        "warps": "warps of C per resident warp",
        "n": "columns of C",
        "longest": "nonzeros in the longest row",
        "density": "of the elements of A nonzero",
        "cov": "CoV of row lengths",
    },
    "sddmm": {
        "strips": "strips of 16 nonzeros per resident warp",
        "k": "products in a sum",
    },
}


def features(problem, resident_warps):
    """{name: number} of `problem`, on a GPU that holds `resident_warps` (at least 1) at once; see FEATURES.

    Work is measured in what the GPU holds, so that a table made on one GPU can serve another. A warp of C is
    128 columns of a row, or as many of several rows where C has 64 columns or fewer. CoV: coefficient of
    variation, standard deviation / mean; at least EVEN.
    """
    p = problem
    if p.op == "spmm":
        tile = next((tile for tile in (NARROW, 2 * NARROW) if p.n <= tile), WIDE)
        warps = p.m * -(-p.n // tile) * tile / WIDE
        rows = {"longest": p.rows.longest, "density": 1 - p.sparsity, "cov": max(p.rows.cov, EVEN)}
        return {"warps": warps / resident_warps, "n": p.n, **rows}
    return {"strips": p.rows.strips_of(TILE) / resident_warps, "k": p.k}
