"""A candidate made to fit operands: vectors no wider than they allow, tiles no wider than they are."""

from dataclasses import replace

from sparsekern.toggles import VariantError
from sparsekern.variants import KINDS

NARROWEST = 32  # columns: tiles of C are cut to that, not further
MOST_ITEMS = 8  # vectors of a lane, of which there are no variants with more


def widest_vector(problem):
    """The most elements to a vector, 1, 2 or 4, that the operands of `problem` allow."""
    kind = KINDS[problem.op]
    wide = (v for v in (4, 2) if not kind(vector=v).check_operands(problem))
    return next((v for v in wide if problem.op == "spmm" or v <= problem.k), 1)


def fitted(variant, problem):
    """The variant nearest to `variant` that runs `problem` and leaves few lanes idle.

    Vectors are as wide as the operands allow, up to those of `variant`; more lanes, or more vectors to a
    lane up to MOST_ITEMS, make up for narrower ones. A tile that would be twice as wide as C or more is cut,
    and an inner dimension is split no further than its parts have a vector for each lane; the lanes that this
    frees take more rows. Raises VariantError if what comes out cannot run `problem`.
    """
    vector = min(widest_vector(problem), variant.vector)
    changed = _fitted_spmm if problem.op == "spmm" else _fitted_sddmm
    return changed(variant, problem, vector)


def _fitted_spmm(variant, p, vector):
    items, lanes = variant.items, variant.subwarp
    for _ in range((variant.vector // vector).bit_length() - 1):
        lanes, items = (2 * lanes, items) if lanes < 32 else (lanes, min(2 * items, MOST_ITEMS))
    tile = lanes * items * vector
    while tile >= 2 * p.n and tile > NARROWEST and items * lanes > 1:
        lanes, items = (lanes, items // 2) if items > 1 else (lanes // 2, items)
        tile //= 2
    pad = variant.stage_pad if lanes == variant.subwarp else 4 if variant.stage and lanes < 32 else 0
    shape = dict(vector=vector, subwarp=lanes, items=items, stage_pad=pad)
    rows = variant.threads // (lanes * variant.split)
    # Of the blocks of rows and the tiles of columns, those on y may be too many.
    orders = dict.fromkeys((variant.n_first, False, True))
    return _first_legal(variant, p, rows, [shape | {"n_first": first} for first in orders])


def _fitted_sddmm(variant, p, vector):
    split = variant.split
    while split > 1 and split > p.k // (variant.subwarp * vector):
        split //= 2
    rows = variant.threads // (variant.subwarp * split)
    # Positions in rhs may need int64, which prescale does without.
    scales = dict.fromkeys((variant.prescale, False))
    return _first_legal(variant, p, rows, [dict(vector=vector, split=split, prescale=s) for s in scales])


def _first_legal(variant, problem, rows, choices):
    """`variant` with the first of `choices`, each {toggle: value}, that runs `problem`, in blocks of `rows`
    rows, or of fewer if need be. Raises VariantError if there is none: with the last refusal of the problem,
    or of the toggles if none are legal.
    """
    sizes = type(variant).__dataclass_fields__["rows_per_block"].metadata["choices"]
    refusal = None
    for size in sorted({size for size in sizes if size <= max(rows, 1)}, reverse=True):
        for changes in choices:
            try:
                found = replace(variant, rows_per_block=size, **changes)
                refusal = found.check(problem)
            except VariantError as error:
                refusal = refusal or str(error)
            if not refusal:
                return found
    raise VariantError(refusal)
