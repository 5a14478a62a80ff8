"""Which variant for which problem, and why."""

from itertools import product

from sparsekern.variants import MAX_GRID_Y, SddmmVariant, SpmmVariant

H200_WARPS = 132 * 64  # resident at once


def _power_of_two(count, most):
    """The smallest power of two not below `count`, at most `most`."""
    size = 1
    while size < count and size < most:
        size *= 2
    return size


FEW_LANES = "few lanes, for the emulator pays for each: a GPU gets another variant"


def select(problem, resident_warps=0):
    """(variant, reason): a legal variant for `problem`, and why it in a sentence.

    resident_warps: how many warps the GPU holds at once; 0 on the emulator, where lanes cost most.
    """
    return _RULES[problem.op](problem, resident_warps)


def _select_spmm(p, resident_warps):
    """Widest vectors that the operands allow; a strip wide enough for one warp to fill, narrower when n
    is small; a row split over several subwarps when there are too few rows to fill half the GPU.
    """
    vector = max((v for v in (1, 2, 4) if not SpmmVariant(vector=v).check(p)), default=1)
    lanes = _power_of_two(-(-p.n // vector), 32)
    if vector * 16 < p.n <= 512:
        lanes = 16
    items = 2 if p.n > 512 and p.rows.mean >= 32 else 1
    warps = p.m * -(-p.n // (lanes * vector * items)) * lanes / 32
    split = 4 if warps < resident_warps / 2 and p.rows.mean >= 16 else 1
    if not resident_warps:
        items = _power_of_two(-(-p.n // vector), 8)
        lanes = _power_of_two(-(-p.n // (vector * items)), 32)
    rows = min(256 // (lanes * split), 32)
    while -(-p.n // (lanes * vector * items)) > MAX_GRID_Y and items < 8:
        items *= 2
    fixed = dict(vector=vector, subwarp=lanes, items=items, rows_per_block=rows, split=split)
    staged = dict(
        stage=True, tile_k=16 if split > 1 else 32, stage_pad=4, unroll_residue=True,
        bundle=True, bin=True, uniform_trip=True, uniform_branch=True,
    )  # fmt: skip
    for prescale, sparse_vector in product((True, False), (4, 2, 1)):
        roma = sparse_vector > 1
        variant = SpmmVariant(**fixed, **staged, sparse_vector=sparse_vector, roma=roma, prescale=prescale)
        if not variant.check(p):
            break
    why_split = f"{warps:.0f} warps unsplit" if resident_warps else FEW_LANES
    reason = (
        f"vector={vector}: the widest that B, C and their leading dimensions allow; {lanes} lanes and "
        f"items={items} for n={p.n}; split={split}: {why_split}, rows of {p.rows.mean:.1f} nonzeros"
    )
    return variant, reason


def _select_sddmm(p, resident_warps):
    """Listed strips, as wide as a subwarp, 64 threads to a block; the inner dimension of each split when the
    strips are too few to fill the GPU.
    """
    best = dict(work="strips", reduction="halving", bundle=True, bin=True)
    vector = max(
        (v for v in (1, 2, 4) if v <= p.k and not SddmmVariant(vector=v, tile_nnz=8, work="strips").check(p)),
        default=1,
    )
    widest = f"vector={vector}: the widest that lhs, rhs and their leading dimensions allow"
    if not resident_warps:
        variant = SddmmVariant(vector=vector, subwarp=1, tile_nnz=8, rows_per_block=32, **best)
        return variant, f"{widest}; {FEW_LANES}"
    lanes = tile = 16 if p.k >= 1024 else 8
    warps = p.rows.strips_of(tile) * lanes / 32
    split = _power_of_two(min(p.k // (lanes * vector), 4), 4) if warps < resident_warps else 1
    rows = max(64 // (lanes * split), 4)
    variant = SddmmVariant(
        vector=vector, subwarp=lanes, tile_nnz=tile, rows_per_block=rows, split=split, **best
    )
    reason = (
        f"{widest}; subwarp={lanes} and tile_nnz={tile} for k={p.k}; split={split}: {warps:.0f} warps "
        f"unsplit, {p.rows.strips_of(tile)} strips"
    )
    return variant, reason


_RULES = {"spmm": _select_spmm, "sddmm": _select_sddmm}
