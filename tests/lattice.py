"""The variants that tests run, and the problems that they run on."""

from dataclasses import fields
from functools import cache
from itertools import combinations, product

import numpy as np

from sparsekern import Csr, Topology, VariantError
from sparsekern.variants import KINDS

# Every legal combination of these is emulated ...
VALUES = {
    "spmm": dict(
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
        in_flight=(0, 8),
        prefetch=(False, True),
    ),
    "sddmm": dict(
        vector=(1, 4),
        subwarp=(8, 32),
        tile_nnz=(1, 8, 32),
        rows_per_block=(4,),
        bundle=(True,),
        bin=(False,),
        work=("grid", "bounded", "strips"),
        by_column=(False, True),
        reduction=("butterfly", "halving"),
        split=(1, 2),
        prescale=(False, True),
    ),
}
# ... and so is a cover of all pairs of all values, which is also compiled.
ALL_VALUES = {
    op: {
        field.name: field.metadata["choices"]
        for field in fields(kind)
        if field.name != "faithful"  # leaks by design: tested by itself
    }
    for op, kind in KINDS.items()
}


def legal(op, **toggles):
    try:
        return KINDS[op](**toggles)
    except VariantError:
        return None


@cache
def lattice(op):
    """Every legal combination of VALUES[op]; `tile_k` counts only where it is used."""
    names = list(VALUES[op])
    variants = []
    for values in product(*VALUES[op].values()):
        toggles = dict(zip(names, values, strict=True))
        if not toggles.get("stage", True):
            toggles["tile_k"] = 32
        variants.append(legal(op, **toggles))
    return list(dict.fromkeys(filter(None, variants)))


@cache
def drawn(op, count=4000, seed=0):
    """That many legal variants, drawn at random from ALL_VALUES[op]."""
    rng, values, variants = np.random.default_rng(seed), ALL_VALUES[op], []
    while len(variants) < count:
        toggles = {name: choices[rng.integers(len(choices))] for name, choices in values.items()}
        if variant := legal(op, **toggles):
            variants.append(variant)
    return variants


@cache
def pairwise_cover(op, tries=60, seed=0):
    """Legal variants in which every two values that can meet do. Greedy: the best of `tries` each time."""
    rng, names, candidates = np.random.default_rng(seed), list(ALL_VALUES[op]), drawn(op)
    pairs_of = [frozenset(combinations([(name, getattr(v, name)) for name in names], 2)) for v in candidates]
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


def depth(variant):
    """An inner dimension for an `SddmmVariant`: two whole steps for each part of a split, one more for the
    first, and a residue of all elements but one. It is odd: no row is a whole number of vectors.
    """
    step = variant.subwarp * variant.vector
    return (2 * variant.split + 1) * step + step - 1


NAN_ROW = 4  # of lhs, and of the result


@cache
def sampled(tile, k):
    """(topology, lhs, rhs): rows of two strips of `tile` and one nonzero more, of one, of three, and of none.

    No nonzero touches the first and the last row of rhs, which hold NaN and infinity. Row NAN_ROW of lhs ends
    in NaN. All rows are padded to vectors of 4, with NaN. None of them may reach another row of the result.
    """
    rng = np.random.default_rng(5)
    lengths, n = [0, 2 * tile + 1, 1, 0, 3], 3 * tile + 4
    offsets = np.cumsum([0, *lengths], dtype=np.int32)
    columns = [1 + rng.permutation(n - 2)[:length] for length in lengths]
    topology = Topology(offsets, np.concatenate(columns).astype(np.int32), (len(lengths), n))
    lhs, rhs = (np.full((rows, -(-k // 4) * 4), np.nan, np.float32)[:, :k] for rows in topology.shape)
    for x in (lhs, rhs):
        x[...] = rng.standard_normal(x.shape, np.float32)
    lhs[NAN_ROW, -1], rhs[0], rhs[-1] = np.nan, np.nan, np.inf
    return topology, lhs, rhs
