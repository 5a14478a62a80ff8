"""Which variant for which problem, and why."""

from itertools import product

from sparsekern.naming import format_variant
from sparsekern.selection.features import features
from sparsekern.selection.fitting import fitted, widest_vector
from sparsekern.selection.table import in_words, tables
from sparsekern.toggles import MAX_GRID_Y, VariantError
from sparsekern.variants import SddmmVariant, SpmmVariant

H200_WARPS = 132 * 64  # resident at once
FEW_LANES = "few lanes, for the emulator pays for each: a GPU gets another variant"
WIDEST = {
    "spmm": "the widest that B, C and their leading dimensions allow",
    "sddmm": "the widest that lhs, rhs and their leading dimensions allow",
}


def select(problem, resident_warps=0, own_kernel=False):
    """(variant, reason): a legal variant for `problem`, and why it in a sentence.

    For a GPU it is the candidate that should cost least by a table of recorded times, between whose problems
    a few features of this one place it, made to fit the operands; see `sparsekern.selection`.

    resident_warps: how many warps the GPU holds at once; 0 on the emulator, where lanes cost most.
    own_kernel: for a kernel of the user's own, as a rule an edited `make_spmm`, which has no `in_flight`.
    """
    if not resident_warps:
        return _plain(problem, 0, FEW_LANES)
    if own_kernel and problem.op == "spmm":
        return _plain(problem, resident_warps, "a kernel of one's own")
    values = features(problem, resident_warps)
    table = tables()[problem.op]
    weights = table.weights(list(values.values()))
    candidate = table.variants[table.choice(weights)]
    try:
        variant = fitted(candidate, problem)
    except VariantError as refusal:
        return _plain(problem, resident_warps, f"not {format_variant(candidate)}: {refusal}")
    fit = "" if variant == candidate else f"; {format_variant(candidate)}, fitted to these operands"
    return variant, f"{_width(problem, variant)}; {in_words(problem.op, values, table, weights)}{fit}"


def _width(problem, variant):
    return f"vector={variant.vector}: {WIDEST[problem.op]}"


def _plain(problem, resident_warps, why):
    """(variant, reason) where no candidate will do: the paper's kernel with most of its toggles on."""
    choose = _plain_spmm if problem.op == "spmm" else _plain_sddmm
    variant = choose(problem, widest_vector(problem), resident_warps)
    return variant, f"{_width(problem, variant)}; {why}"


def _power_of_two(count, most):
    """The smallest power of two not below `count`, at most `most`."""
    size = 1
    while size < count and size < most:
        size *= 2
    return size


def _plain_spmm(p, vector, resident_warps):
    items = _power_of_two(-(-p.n // vector), 8)
    lanes = _power_of_two(-(-p.n // (vector * items)), 32)
    if resident_warps:
        items, lanes = 1, _power_of_two(-(-p.n // vector), 32)
    while -(-p.n // (lanes * vector * items)) > MAX_GRID_Y and items < 8:
        items *= 2
    tall = -(-p.n // (lanes * vector * items)) > MAX_GRID_Y
    fixed = dict(subwarp=lanes, items=items, rows_per_block=min(256 // lanes, 32), n_first=tall)
    helps = dict(stage=True, bundle=True, bin=True, uniform_trip=True, stage_pad=4)
    helps |= dict(unroll_residue=True, uniform_branch=True)
    for prescale, sparse_vector in product((True, False), (4, 2, 1)):
        reads = dict(sparse_vector=sparse_vector, roma=sparse_vector > 1, prescale=prescale)
        variant = SpmmVariant(vector=vector, **helps, **fixed, **reads)
        if not variant.check(p):
            break
    return variant


def _plain_sddmm(p, vector, resident_warps):
    lanes = 8 if resident_warps else 1
    helps = dict(work="strips", reduction="halving", bundle=True, bin=True)
    return SddmmVariant(vector=vector, subwarp=lanes, tile_nnz=8, rows_per_block=32, **helps)
