"""The kernel variants: the toggles of each operation, and the sizes they imply."""

from dataclasses import dataclass, fields
from typing import ClassVar

from sparsekern.problem import TILES
from sparsekern.toggles import WORD, Variant, toggle

MAX_HELD = 64  # elements of B, of the 255 registers that a lane can have
_STAGED = (("stage", (True,)),)


@dataclass(frozen=True, kw_only=True)
class SpmmVariant(Variant):
    """Toggles of the SpMM kernel. The default is one warp per strip of C, one column per lane."""

    op: ClassVar[str] = "spmm"
    prerequisites: ClassVar[dict] = {
        "tile_k": _STAGED,
        "stage_pad": _STAGED,
        "sparse_vector": _STAGED,
        "roma": (("sparse_vector", (2, 4)),),
        "prescale": _STAGED,
        "unroll_residue": _STAGED,
        "uniform_trip": _STAGED,
        "uniform_branch": _STAGED,
        "faithful": (("unroll_residue", (True,)),),
        "in_flight": (
            ("prescale", (True,)),
            ("uniform_trip", (True,)),
            *((paper, (False,)) for paper in ("roma", "unroll_residue", "uniform_branch")),
        ),
        "prefetch": (("in_flight", (4, 8, 16)),),
    }
    adjustable: ClassVar[tuple] = ("rows_per_block", "subwarp")
    grid_sizes: ClassVar[tuple] = ("rows_per_block", "tile_n")

    vector: int = toggle(1, 1, 2, 4, doc="elements per load of B and store of C")
    subwarp: int = toggle(32, 1, 2, 4, 8, 16, 32, doc="lanes that share a strip of C")
    items: int = toggle(1, 1, 2, 4, 8, doc="vectors per lane")
    rows_per_block: int = toggle(1, 1, 2, 4, 8, 16, 24, 32, 64, doc="rows of C in a block")
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
    in_flight: int = toggle(0, 0, 4, 8, 16, doc="nonzeros whose rows of B are asked for before one is used")
    prefetch: bool = toggle(False, doc="ask for the next tile of A before working on this one")
    n_first: bool = toggle(False, doc="launch all column tiles of a block of rows before the next rows")
    faithful: bool = toggle(False, doc="mask as the paper does, by multiplying by zero: leaks Inf and NaN")

    @property
    def tile_n(self):
        """Columns of C in a strip."""
        return self.subwarp * self.vector * self.items

    @property
    def buffers(self):
        """Tiles of A that a subwarp holds in shared memory at a time."""
        return 2 if self.prefetch else 1

    @property
    def slice_words(self):
        """Words of one shared array (values or columns) that one subwarp stages in."""
        return self.tile_k + self.stage_pad

    @property
    def shared_bytes(self):
        """Shared memory per block: staged values and columns, and the sums of all slices but the first."""
        staged = 2 * self.split * self.buffers * self.slice_words if self.stage else 0
        sums = (self.split - 1) * self.tile_n
        return self.rows_per_block * (staged + sums) * WORD

    def grid(self, problem):
        rows, columns = -(-problem.m // self.rows_per_block), -(-problem.n // self.tile_n)
        return (columns, rows, problem.batch) if self.n_first else (rows, columns, problem.batch)

    def illegal(self):
        if self.in_flight > self.tile_k:
            return (
                f"in_flight={self.in_flight} takes nonzeros of one tile; tile_k is {self.tile_k}, "
                "and must be at least that"
            )
        held = self.in_flight * self.items * self.vector
        if held > MAX_HELD:
            return (
                f"in_flight * items * vector = {self.in_flight} * {self.items} * {self.vector} = {held} "
                f"elements of B in registers of a lane; it may hold {MAX_HELD}"
            )
        return super().illegal()

    def _refusals(self, p):
        vector = self.vector
        yield from self._refusals_of_vectors(("B", "ldb", p.b), ("C", "ldc", p.c))
        last = (p.k - 1) * p.b.ld + -(-p.n // vector) * vector
        if p.k and p.n and last > p.b.reach:
            yield (
                f"vector={vector} reads whole vectors of B's rows of {p.n} columns, up to element "
                f"{last - 1}; B's memory ends before element {p.b.reach}"
            )
        width = self.sparse_vector * WORD if self.roma else WORD
        for name, layout in (("values", p.values), ("columns", p.columns)):
            if layout.align < width:
                yield (
                    f"roma with sparse_vector={self.sparse_vector} needs A's {name} to start on {width} "
                    f"bytes; they start on {layout.align}"
                )
        if self.prescale:
            yield from self._refusals_of_prescale("(k - 1) * ldb", p.k, p.b.ld, 0)


@dataclass(frozen=True, kw_only=True)
class SddmmVariant(Variant):
    """Toggles of the SDDMM kernel. The default is one warp per nonzero."""

    op: ClassVar[str] = "sddmm"
    prerequisites: ClassVar[dict] = {
        "reduction": (("tile_nnz", TILES[1:]),),
        "by_column": (("work", ("strips",)),),
    }
    adjustable: ClassVar[tuple] = ("rows_per_block", "subwarp", "tile_nnz")
    grid_sizes: ClassVar[tuple] = ("rows_per_block", "tile_nnz")

    vector: int = toggle(1, 1, 2, 4, doc="elements per load of lhs and rhs")
    subwarp: int = toggle(32, 1, 2, 4, 8, 16, 32, doc="lanes that share a strip of nonzeros")
    tile_nnz: int = toggle(TILES[0], *TILES, doc="nonzeros of a row in a strip, which share the row of lhs")
    rows_per_block: int = toggle(1, 1, 2, 4, 8, 16, 32, 64, doc="rows of the topology, or strips, in a block")
    bundle: bool = toggle(False, doc="rows of like length in one block: first half of row swizzle")
    bin: bool = toggle(False, doc="blocks with the most work first: second half of row swizzle")
    work: str = toggle(
        "grid",
        "grid",
        "bounded",
        "strips",
        doc="strips launched: as for full rows, the longest row, or listed",
    )
    by_column: bool = toggle(False, doc="strips of like columns side by side, to share rows of rhs in L1")
    reduction: str = toggle("butterfly", "butterfly", "halving", doc="how lanes add up their partial sums")
    split: int = toggle(1, 1, 2, 4, 8, doc="subwarps that share the inner dimension of a strip")
    prescale: bool = toggle(False, doc="multiply column indices by the row stride of rhs while staging")

    @property
    def results(self):
        """Sums that a lane is left with, at most, once the lanes of a subwarp have shared theirs out."""
        return -(-self.tile_nnz // self.subwarp)

    @property
    def shared_bytes(self):
        """Shared memory per block: columns for each subwarp, and the sums of all parts but the first."""
        sums = (self.split - 1) * self.results * self.subwarp
        return self.rows_per_block * (self.split * self.tile_nnz + sums) * WORD

    def grid(self, problem):
        if self.work == "strips":
            positions, strips = problem.rows.strips_of(self.tile_nnz), 1
        else:
            longest = problem.rows.longest
            if self.work == "grid":  # a row that repeats columns is longer than a full one
                longest = max(longest, problem.n)
            positions, strips = problem.m, -(-longest // self.tile_nnz)
        return -(-positions // self.rows_per_block), strips, problem.batch

    def illegal(self):
        if self.reduction == "halving" and self.tile_nnz % self.subwarp:
            return (
                f"reduction='halving' needs tile_nnz to be a multiple of subwarp; it is {self.tile_nnz}, "
                f"subwarp is {self.subwarp}"
            )
        return super().illegal()

    def _refusals(self, p):
        yield from self._refusals_of_vectors(("lhs", "ld_lhs", p.lhs), ("rhs", "ld_rhs", p.rhs))
        if self.prescale:
            yield from self._refusals_of_prescale("(n - 1) * ld_rhs + k", p.n, p.rhs.ld, p.k)


KINDS = {kind.op: kind for kind in (SpmmVariant, SddmmVariant)}


def check_op(op):
    """Raises TypeError unless `op` is an operation: a key of KINDS, and of `LADDERS`."""
    if op not in list(KINDS):  # op need not be hashable
        raise TypeError(f"op is {op!r}; it must be one of {', '.join(KINDS)}")


def _described(kind, toggle):
    choices = ", ".join(map(str, toggle.metadata["choices"]))
    needs = [
        (base, " or ".join(map(str, values))) for name, base, values in kind.needs() if name == toggle.name
    ]
    needed = "".join(f"; needs {base}={values}" for base, values in needs)
    return f"    {toggle.name} = {toggle.default!r}: {toggle.metadata['doc']}; one of {choices}{needed}"


for _kind in KINDS.values():
    _kind.__doc__ = "\n".join([_kind.__doc__, "", *(_described(_kind, field) for field in fields(_kind))])
