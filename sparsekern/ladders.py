"""Ways through the variants: from the plainest to the best, and to the nearest without a toggle."""

from dataclasses import fields, replace
from itertools import product

from sparsekern.toggles import VariantError
from sparsekern.variants import SddmmVariant, SpmmVariant


def without(variant, name):
    """The nearest legal variant with toggle `name` at its plainest, and what else had to move.

    Returns (variant, {field: (old, new)}), the dict without `name` itself. What builds on the toggle
    goes with it; the fields of `variant.adjustable` move as little as they can to make a legal block.

    Raises VariantError if there is no toggle of that name.
    """
    plainest = {f.name: f.default for f in fields(variant)}
    variant.check_name(name)
    changes = {name: plainest[name]}
    for toggle, base, values in variant.needs():
        if base in changes and changes[base] not in values:
            changes[toggle] = plainest[toggle]
    free = [f for f in fields(variant) if f.name in variant.adjustable and f.name not in changes]

    def distance(candidate):
        return sum(abs(new.bit_length() - getattr(variant, f.name).bit_length()) for f, new in candidate)

    candidates = product(*([(f, choice) for choice in f.metadata["choices"]] for f in free))
    for candidate in sorted(candidates, key=distance):
        try:
            nearest = replace(variant, **changes, **{f.name: new for f, new in candidate})
        except VariantError:
            continue
        pairs = {f.name: (getattr(variant, f.name), getattr(nearest, f.name)) for f in fields(variant)}
        return nearest, {field: pair for field, pair in pairs.items() if field != name and pair[0] != pair[1]}
    raise VariantError(f"no legal variant near {variant} has {name} at {plainest[name]}")


def _ladder(first, *steps):
    """[(what the step adds, variant)]: each sets one toggle of the variant before it, and what moves with it.

    steps: (toggle, value), or (toggle, value, {other field: what it moves to}).
    """
    rungs = [("plain", first)]
    for name, value, moved in ((*step, {})[:3] for step in steps):
        rungs.append((f"{name}={value}", replace(rungs[-1][1], **{name: value}, **moved)))
    return rungs


LADDERS = {
    "spmm": _ladder(
        SpmmVariant(subwarp=1, rows_per_block=32),  # one thread per element of C
        ("subwarp", 32),
        ("rows_per_block", 8),
        ("stage", True),
        ("prescale", True),
        ("vector", 4),
        ("subwarp", 16),
        ("sparse_vector", 4),
        ("roma", True),
        ("unroll_residue", True),
        ("bundle", True),
        ("bin", True),
        ("uniform_branch", True),
        ("uniform_trip", True),
        ("stage_pad", 4),
        ("in_flight", 8, {"roma": False, "unroll_residue": False, "uniform_branch": False}),
        ("prefetch", True),
        ("n_first", True),
        ("rows_per_block", 64),
        ("split", 4, {"rows_per_block": 8}),
    ),
    "sddmm": _ladder(
        SddmmVariant(subwarp=1, rows_per_block=32),  # one thread per nonzero
        ("tile_nnz", 32),
        ("subwarp", 8),
        ("vector", 4),
        ("reduction", "halving"),
        ("bundle", True),
        ("bin", True),
        ("work", "bounded"),
        ("work", "strips"),
        ("rows_per_block", 8),
        ("tile_nnz", 8),
        ("prescale", True),
        ("by_column", True),
        ("split", 2),
    ),
}
