"""Kernel variants: frozen sets of toggles, the rules between them, and the sizes they imply.

A variant says how a kernel works and nothing about what it works on: `check(problem)` brings the two
together. `dataclasses.replace` makes a neighbour, `without` the nearest one with a toggle off.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from itertools import chain, product
from typing import ClassVar

WARP = 32
MAX_THREADS = 1024  # per block
MAX_SHARED = 48 * 1024  # bytes of static shared memory per block
MAX_GRID_X = 2**31 - 1  # blocks
MAX_GRID_Y = 65_535  # blocks
WORD = 4  # bytes of a float32 or an int32


class VariantError(ValueError):
    """A toggle has a value that does not exist, lacks what it builds on, or does not fit the operands."""


def toggle(default, *choices, doc):
    """A field of a variant. `default` is off or plainest; no `choices` means off or on."""
    choices = choices or (False, True)
    return field(default=default, metadata={"choices": choices, "doc": doc})


@dataclass(frozen=True, kw_only=True)
class Variant(ABC):
    """Base of all variants. Raises VariantError for an unknown value or a missing prerequisite."""

    op: ClassVar[str]
    prerequisites: ClassVar[dict]  # toggle -> (field that it builds on, values of that field that do)
    adjustable: ClassVar[tuple]  # fields that may move so that a block stays legal: see `without`

    def __post_init__(self):
        for f in fields(self):
            value, choices = getattr(self, f.name), f.metadata["choices"]
            if type(value) is not type(choices[0]) or value not in choices:
                allowed = ", ".join(map(str, choices))
                raise VariantError(
                    f"{f.name} is {value!r}; it must be one of {allowed} ({f.metadata['doc']})"
                )
        for name, (base, values) in self.prerequisites.items():
            if self.is_on(name) and getattr(self, base) not in values:
                raise VariantError(
                    f"{name}={getattr(self, name)!r} needs {base} to be {' or '.join(map(str, values))}; "
                    f"it is {getattr(self, base)!r}"
                )
        reason = self.illegal()
        if reason:
            raise VariantError(reason)

    def is_on(self, name):
        """Whether toggle `name` differs from its plainest value."""
        return getattr(self, name) != type(self).__dataclass_fields__[name].default

    @abstractmethod
    def illegal(self):
        """Why no block of any problem could run this variant, or None."""

    @abstractmethod
    def check(self, problem):
        """Why this variant cannot run `problem`, with the numbers, or None."""

    def __str__(self):
        on = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if self.is_on(f.name)]
        return ", ".join(on) or "plain"


@dataclass(frozen=True, kw_only=True)
class SpmmVariant(Variant):
    """Toggles of the SpMM kernel. The default is one warp per strip of C, one column per lane."""

    op: ClassVar[str] = "spmm"
    prerequisites: ClassVar[dict] = {
        "tile_k": ("stage", (True,)),
        "stage_pad": ("stage", (True,)),
        "sparse_vector": ("stage", (True,)),
        "roma": ("sparse_vector", (2, 4)),
        "prescale": ("stage", (True,)),
        "unroll_residue": ("stage", (True,)),
        "uniform_trip": ("stage", (True,)),
        "uniform_branch": ("stage", (True,)),
        "faithful": ("unroll_residue", (True,)),
    }
    adjustable: ClassVar[tuple] = ("rows_per_block", "subwarp")

    vector: int = toggle(1, 1, 2, 4, doc="elements per load of B and store of C")
    subwarp: int = toggle(32, 1, 2, 4, 8, 16, 32, doc="lanes that share a strip of C")
    items: int = toggle(1, 1, 2, 4, 8, doc="vectors per lane")
    rows_per_block: int = toggle(1, 1, 2, 4, 8, 16, 32, doc="rows of C in a block")
    stage: bool = toggle(False, doc="copy A to shared memory, a tile of nonzeros at a time")
    tile_k: int = toggle(32, 8, 16, 32, 64, doc="nonzeros per staging step")
    stage_pad: int = toggle(0, 0, 4, doc="words between the slices of two subwarps in shared memory")
    sparse_vector: int = toggle(1, 1, 2, 4, doc="elements per staged read, and with roma per load of A")
    roma: bool = toggle(False, doc="back up each row to an aligned start: reverse-offset memory alignment")
    prescale: bool = toggle(False, doc="multiply column indices by the row stride of B while staging")
    unroll_residue: bool = toggle(False, doc="take the last nonzeros of a row in masked groups of four")
    bundle: bool = toggle(False, doc="rows of like length in one block: first half of row swizzle")
    bin: bool = toggle(False, doc="blocks with the most work first: second half of row swizzle")
    uniform_trip: bool = toggle(False, doc="all subwarps of a warp loop to its longest row")
    uniform_branch: bool = toggle(False, doc="all subwarps of a warp choose the same path in each step")
    split: int = toggle(1, 1, 2, 4, 8, doc="subwarps that share a row, their sums added in shared memory")
    faithful: bool = toggle(False, doc="mask as the paper does, by multiplying by zero: leaks Inf and NaN")

    @property
    def tile_n(self):
        """Columns of C in a strip."""
        return self.subwarp * self.vector * self.items

    @property
    def threads(self):
        """Threads per block."""
        return self.subwarp * self.split * self.rows_per_block

    @property
    def slice_words(self):
        """Words of one shared array (values or columns) that one subwarp stages in."""
        return self.tile_k + self.stage_pad

    @property
    def shared_bytes(self):
        """Shared memory per block: staged values and columns, and the sums of all slices but the first."""
        staged = 2 * self.split * self.slice_words if self.stage else 0
        sums = (self.split - 1) * self.tile_n
        return self.rows_per_block * (staged + sums) * WORD

    @property
    def block(self):
        """(x, y): lanes of a subwarp, subwarps of a block."""
        return self.subwarp, self.split * self.rows_per_block

    def grid(self, problem):
        """(x, y, z): blocks of rows, tiles of columns, batch."""
        return -(-problem.m // self.rows_per_block), -(-problem.n // self.tile_n), problem.batch

    def illegal(self):
        if self.threads % WARP or self.threads > MAX_THREADS:
            return (
                f"subwarp * split * rows_per_block = {self.subwarp} * {self.split} * {self.rows_per_block} "
                f"= {self.threads} threads; a block must be whole warps of {WARP}, at most {MAX_THREADS}"
            )
        if self.shared_bytes > MAX_SHARED:
            return f"a block needs {self.shared_bytes} bytes of shared memory; it has at most {MAX_SHARED}"
        return None

    def check(self, problem):
        return next(filter(None, chain(self._check_dense(problem), self._check_sparse(problem))), None)

    def _check_dense(self, p):
        vector, width = self.vector, self.vector * WORD
        for name, matrix, ld, align in (("ldb", "B", p.ldb, p.align_b), ("ldc", "C", p.ldc, p.align_c)):
            if ld % vector:
                yield (
                    f"vector={vector} needs {name} to be a multiple of {vector}, so that every row of "
                    f"{matrix} starts aligned; {name} is {ld}: pad its rows"
                )
            if align < width:
                yield f"vector={vector} needs {matrix} to start on {width} bytes; it starts on {align}"
        last = (p.k - 1) * p.ldb + -(-p.n // vector) * vector
        if p.k and p.n and last > p.reach_b:
            yield (
                f"vector={vector} reads whole vectors of B's rows of {p.n} columns, up to element "
                f"{last - 1}; B's memory ends before element {p.reach_b}"
            )
        x, y, _ = self.grid(p)
        if x > MAX_GRID_X or y > MAX_GRID_Y:
            yield (
                f"rows_per_block={self.rows_per_block} and tile_n={self.tile_n} need a grid of {x} x {y} "
                f"blocks; it holds at most {MAX_GRID_X} x {MAX_GRID_Y}"
            )

    def _check_sparse(self, p):
        width = self.sparse_vector * WORD
        for name, align in (("values", p.align_values), ("columns", p.align_columns)):
            if align < width:
                yield (
                    f"sparse_vector={self.sparse_vector} needs A's {name} to start on {width} bytes; "
                    f"they start on {align}"
                )
        if self.prescale and (p.k - 1) * p.ldb >= 2**31:
            yield (
                f"prescale needs (k - 1) * ldb below 2**31, to fit int32; it is {p.k - 1} * {p.ldb} "
                f"= {(p.k - 1) * p.ldb}"
            )


def without(variant, name):
    """The nearest legal variant with toggle `name` at its plainest, and what else had to move.

    Returns (variant, {field: (old, new)}), the dict without `name` itself. What builds on the toggle
    goes with it; the fields of `variant.adjustable` move as little as they can to make a legal block.

    Raises VariantError if there is no toggle of that name.
    """
    plainest = {f.name: f.default for f in fields(variant)}
    if name not in plainest:
        raise VariantError(
            f"{name!r} is no toggle of {type(variant).__name__}; they are {', '.join(plainest)}"
        )
    changes = {name: plainest[name]}
    for toggle, (base, values) in variant.prerequisites.items():  # in the order in which they build up
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
    """[(what the step adds, variant)]: each step changes one toggle of the variant before it."""
    rungs = [("plain", first)]
    for name, value in steps:
        rungs.append((f"{name}={value}", replace(rungs[-1][1], **{name: value})))
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
        ("tile_k", 16),
        ("split", 4),
    )
}
