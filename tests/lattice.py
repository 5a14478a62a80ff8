"""The variants that tests run, and the problem that they run on."""

from dataclasses import fields
from itertools import combinations, product

import numpy as np

from sparsekern import Csr, SpmmVariant, VariantError

# Every legal combination of these is emulated ...
VALUES = dict(
    vector=(1, 4),
    subwarp=(8, 32),
    items=(1, 2),
    rows_per_block=(4,),
    stage=(False, True),
    tile_k=(8,),
    stage_pad=(0,),
    sparse_vector=(1, 2, 4),
    roma=(False, True),
    prescale=(False, True),
    unroll_residue=(False, True),
    bundle=(True,),
    bin=(False,),
    uniform_trip=(False, True),
    uniform_branch=(False, True),
    split=(1, 2),
)
# ... and so is a cover of all pairs of all values, which is also compiled.
ALL_VALUES = {
    field.name: field.metadata["choices"]
    for field in fields(SpmmVariant)
    if field.name != "faithful"  # leaks by design: tested by itself
}


def legal(**toggles):
    try:
        return SpmmVariant(**toggles)
    except VariantError:
        return None


def lattice():
    """Every legal combination of VALUES; `tile_k` counts only where it is used."""
    names = list(VALUES)
    variants = []
    for values in product(*VALUES.values()):
        toggles = dict(zip(names, values, strict=True))
        if not toggles["stage"]:
            toggles["tile_k"] = 32
        variants.append(legal(**toggles))
    return list(dict.fromkeys(filter(None, variants)))


def pairwise_cover(tries=60, seed=0):
    """Legal variants in which every two values that can meet do. Greedy: the best of `tries` each time."""
    rng = np.random.default_rng(seed)
    candidates = []
    while len(candidates) < 4000:
        toggles = {name: choices[rng.integers(len(choices))] for name, choices in ALL_VALUES.items()}
        if variant := legal(**toggles):
            candidates.append(variant)
    pairs_of = [
        frozenset(combinations([(name, getattr(v, name)) for name in ALL_VALUES], 2)) for v in candidates
    ]
    missing, cover = set().union(*pairs_of), []
    while missing:
        tried = rng.choice(len(candidates), tries, replace=False)
        best = max(tried, key=lambda i: len(missing & pairs_of[i]))
        if not missing & pairs_of[best]:
            best = next(i for i, pairs in enumerate(pairs_of) if missing & pairs)
        cover.append(candidates[best])
        missing -= pairs_of[best]
    return cover


SHORT = 50  # nonzeros: tiles of 8 dealt to 2 parts come to each at least 3 times, with a residue
LONG = 1100  # the same for tiles of 64 and 8 parts
COLUMNS, PADDED = 10, 12  # n, ldb and ldc: vectors of 4 fit, and the last one has a tail


def problem(longest=LONG):
    """(a, b): rows of 0 to `longest` nonzeros around tiles of 8, starting on every residue of 4.

    No row of `a` touches rows 0 and 9 of b, which hold NaN and infinity; row 4 of `a` ends in NaN. None of
    them may reach another row of C.
    """
    rng = np.random.default_rng(5)
    lengths = [0, 9, 1, 8, 17, 3, longest, 7]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    touched = np.setdiff1d(np.arange(24), [0, 9])
    columns = rng.choice(touched, offsets[-1]).astype(np.int32)
    a = Csr.from_arrays(offsets, columns, rng.standard_normal(len(columns), np.float32), (len(lengths), 24))
    a.values[offsets[5] - 1] = np.nan
    b = rng.standard_normal((24, PADDED), np.float32)
    b[0], b[9] = np.nan, np.inf
    return a, b[:, :COLUMNS]


def poisoned(m):
    """An output full of NaN, its rows padded as those of b."""
    return np.full((m, PADDED), np.nan, np.float32)[:, :COLUMNS]
