"""What the choice of a variant depends on: a few numbers of a problem, and of the GPU."""

WIDE, NARROW = 128, 32  # columns of C: what a warp takes, four to a lane, and a quarter of one
TILE = 16  # nonzeros of a row: what SDDMM takes at a time

FEATURES = {  # by operation, with what each is in words
    "spmm": {
        "warps": "warps of C per resident warp",
        "longest": "nonzeros in the longest row",
        "density": "of the elements of A nonzero",
        "cov": "CoV of row lengths",
    },
    "sddmm": {
        "strips": "strips of 16 nonzeros per resident warp",
        "k": "products in a sum",
        "longest": "nonzeros in the longest row",
    },
}


def features(problem, resident_warps):
    """{name: number} of `problem`, on a GPU that holds `resident_warps` (at least 1) at once; see FEATURES.

    Work is measured in what the GPU holds, so that a tree made on one GPU can serve another. A warp of C is
    128 columns of a row, or as many of several rows where C has 64 columns or fewer. CoV: coefficient of
    variation, standard deviation / mean.
    """
    p = problem
    if p.op == "spmm":
        tile = next((tile for tile in (NARROW, 2 * NARROW) if p.n <= tile), WIDE)
        warps = p.m * -(-p.n // tile) * tile / WIDE
        rows = {"longest": p.rows.longest, "density": 1 - p.sparsity, "cov": p.rows.cov}
        return {"warps": warps / resident_warps, **rows}
    strips = p.rows.strips_of(TILE) / resident_warps
    return {"strips": strips, "k": p.k, "longest": p.rows.longest}
