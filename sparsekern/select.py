"""Which variant for which problem, and why."""

from itertools import product

from sparsekern.toggles import MAX_GRID_Y
from sparsekern.variants import SddmmVariant, SpmmVariant

H200_WARPS = 132 * 64  # resident at once


def _power_of_two(count, most):
    """The smallest power of two not below `count`, at most `most`."""
    size = 1
    while size < count and size < most:
        size *= 2
    return size


FEW_LANES = "few lanes, for the emulator pays for each: a GPU gets another variant"


def select(problem, resident_warps=0, own_kernel=False):
    """(variant, reason): a legal variant for `problem`, and why it in a sentence.

    resident_warps: how many warps the GPU holds at once; 0 on the emulator, where lanes cost most.
    own_kernel: for a kernel of the user's own, as a rule an edited `make_spmm`, which has no `in_flight`.
    """
    if problem.op == "sddmm":
        return _select_sddmm(problem, resident_warps)
    return _select_spmm(problem, resident_warps, own_kernel)


def _select_spmm(p, resident_warps, own_kernel):
    """Widest vectors that the operands allow, and many loads in flight; see `_shape`."""
    vector = max((v for v in (2, 4) if not SpmmVariant(vector=v).check_operands(p)), default=1)
    staged = dict(vector=vector, stage=True, bundle=True, bin=True, uniform_trip=True)
    widest = f"vector={vector}: the widest that B, C and their leading dimensions allow"
    if resident_warps and not own_kernel:
        shape, why = _shape(p, vector, resident_warps)
        shape |= dict(sparse_vector=4, prescale=True, prefetch=True)
        # Of the blocks of rows and the tiles of columns, those on y may be too many.
        for n_first in dict.fromkeys((shape["n_first"], False, True)):
            variant = SpmmVariant(**staged, **{**shape, "n_first": n_first})
            refusal = variant.check(p)
            if not refusal:
                rows = f"rows of {p.rows.mean:.1f} nonzeros, the longest {p.rows.longest}"
                return variant, f"{widest}; {why}, {rows}"
    items = _power_of_two(-(-p.n // vector), 8)
    lanes = _power_of_two(-(-p.n // (vector * items)), 32)
    if resident_warps:
        items, lanes = 1, _power_of_two(-(-p.n // vector), 32)
    while -(-p.n // (lanes * vector * items)) > MAX_GRID_Y and items < 8:
        items *= 2
    tall = -(-p.n // (lanes * vector * items)) > MAX_GRID_Y
    fixed = dict(subwarp=lanes, items=items, rows_per_block=min(256 // lanes, 32), n_first=tall)
    paper = dict(stage_pad=4, unroll_residue=True, uniform_branch=True)
    for prescale, sparse_vector in product((True, False), (4, 2, 1)):
        reads = dict(sparse_vector=sparse_vector, roma=sparse_vector > 1, prescale=prescale)
        variant = SpmmVariant(**staged, **fixed, **paper, **reads)
        if not variant.check(p):
            break
    why = FEW_LANES
    if resident_warps:
        why = "a kernel of one's own" if own_kernel else f"no in_flight: {refusal}"
    return variant, f"{widest}; {why}"


def _shape(p, vector, resident_warps):
    """(toggles, why): who works on what. The bounds between one choice and the next were found on an H200.

    Wide tiles need many rows or columns. Too few warps to fill the GPU hide little latency: then parts of a
    row go to different warps, unless rows are short, or more loads are in flight at once.
    """
    short, uneven = p.rows.longest <= 48, p.rows.cov > 0.25

    def of(columns, items=1, split=1, threads=256, in_flight=8, n_first=False, tile_k=32):
        lanes = _power_of_two(max(-(-columns // vector), 8), 32)
        items *= max(columns // (lanes * vector), 1)
        tile = lanes * vector * items
        return dict(
            subwarp=lanes, items=items, split=split, rows_per_block=max(threads // (lanes * split), 1),
            in_flight=in_flight, tile_k=tile_k, stage_pad=0 if lanes == 32 else 4,
            n_first=n_first and -(-p.n // tile) > 1,
        )  # fmt: skip

    warps = p.m * -(-p.n // 128)
    size = f"{warps} strips of 128 columns"
    if p.n <= 64:
        columns = 32 if p.n <= 32 else 64
        if short or p.m * columns / 128 > resident_warps / 4:
            return of(columns, threads=128), f"{columns} columns in a tile for n={p.n}"
        return of(columns, split=8, tile_k=16, in_flight=8 if p.n <= 32 else 16), (
            f"{columns} columns in a tile for n={p.n}; split=8: rows alone do not fill the GPU"
        )
    if warps < resident_warps / 4:
        enough = warps >= resident_warps / 6  # of rows that end at the same time
        if short or (enough and not uneven):
            return of(128, threads=128, in_flight=16), f"{size}, of short or even rows: 16 loads in flight"
        if enough or (p.rows.mean < 80 and not uneven):
            return of(128, split=2), f"{size} do not fill the GPU: split=2"
        if p.n >= 256 and p.rows.mean >= 80:
            return of(128, items=2, split=4), f"{size} do not fill the GPU, and rows are long: split=4"
        if warps < resident_warps / 12 and p.rows.mean >= 80:
            return of(128, split=8, tile_k=16), f"{size} of long rows: split=8"
        tile_k = 16 if p.rows.mean > 50 else 32
        return of(128, split=4, tile_k=tile_k), f"{size} do not fill the GPU, of uneven rows: split=4"
    if warps < resident_warps * 2 / 3:
        if p.rows.cov > 1:
            return of(128, items=2, split=4), f"{size}, of very uneven rows: split=4"
        return of(128, threads=128, in_flight=16), f"{size}: 16 loads in flight"
    if p.rows.cov > 0.9 and p.rows.longest > 100 and p.m < 2048:
        return of(128, n_first=True), f"{size}, of very uneven rows: all columns of the longest first"
    if short and p.rows.cov < 0.8:
        few = of(128, items=2, threads=128, in_flight=4, n_first=True)
        return few, f"{size} of short rows fill the GPU: two vectors a lane, 4 rows of B at a time"
    first = uneven or p.rows.mean > 150
    return of(128, items=2, n_first=first), f"{size} fill the GPU: two vectors a lane"


def _select_sddmm(p, resident_warps):
    """Listed strips, as long as a subwarp is wide, 64 threads to a block; the inner dimension of each split
    when the strips are too few to fill the GPU.
    """
    best = dict(work="strips", reduction="halving", bundle=True, bin=True)
    wide = (v for v in (2, 4) if v <= p.k and not SddmmVariant(vector=v).check_operands(p))
    vector = max(wide, default=1)
    widest = f"vector={vector}: the widest that lhs, rhs and their leading dimensions allow"
    if not resident_warps:
        variant = SddmmVariant(vector=vector, subwarp=1, tile_nnz=8, rows_per_block=32, **best)
        return variant, f"{widest}; {FEW_LANES}"
    lanes = tile = _lanes_of_strips(p, resident_warps)
    strips = p.rows.strips_of(tile)
    split = 8
    while split > 1 and (strips * split > resident_warps / 3 or split > p.k // (lanes * vector)):
        split //= 2
    split = split if split >= 4 else 1  # two parts gain less than adding them up costs
    rows = max(64 // (lanes * split), 1)
    fixed = dict(vector=vector, subwarp=lanes, tile_nnz=tile, rows_per_block=rows, split=split, **best)
    variant = SddmmVariant(**fixed, prescale=True)
    if variant.check(p):
        variant = SddmmVariant(**fixed)  # positions in rhs need int64
    return variant, f"{widest}; {strips} strips of {tile}, split={split} for k={p.k}"


def _lanes_of_strips(p, resident_warps):
    """16 lanes and nonzeros hide more latency; 8 take fewer registers, so that more strips are resident.

    Which is better, when there are more strips than that, is a matter of how full their last wave is.
    """
    wave16, wave8 = resident_warps / 2, resident_warps * 3 / 2  # strips
    waves = p.rows.strips_of(16) / wave16
    if waves <= 1:
        return 16
    shorter = 3 * -(-p.rows.strips_of(8) // wave8) < 2 * -(-waves // 1)
    return 8 if p.k <= 64 or waves > 4 or shorter else 16
