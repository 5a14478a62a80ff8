"""What is to be computed, as a value: the key for choosing, planning, costing and recording."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

TILES = (1, 8, 16, 32, 64)  # nonzeros: the strips that rows may be cut into


@dataclass(frozen=True)
class Types:
    """dtypes of a computation, by NumPy name. float32 and int32 now; offsets int32 or int64."""

    values: str = "float32"  # values of the sparse matrix
    index: str = "int32"  # its column indices
    offset: str = "int32"  # its row offsets
    dense: str = "float32"  # dense inputs
    out: str = "float32"  # the result
    acc: str = "float32"  # the running sums


@dataclass(frozen=True)
class RowStats:
    """Row lengths of a topology, in nonzeros."""

    longest: int = 0
    mean: float = 0.0
    cov: float = 0.0  # coefficient of variation: standard deviation over mean
    empty: int = 0
    strips: tuple = (0,) * len(TILES)  # into how many strips of each of TILES the rows can be cut

    @classmethod
    def of(cls, lengths):
        if len(lengths) == 0 or lengths.max() == 0:
            return cls(empty=len(lengths))
        mean = float(lengths.mean())
        strips = tuple(int((-(-lengths // tile)).sum()) for tile in TILES)
        return cls(int(lengths.max()), mean, float(lengths.std()) / mean, int((lengths == 0).sum()), strips)

    def strips_of(self, tile):
        return self.strips[TILES.index(tile)]


@dataclass(frozen=True)
class Layout:
    """How an operand lies in memory.

    ld: leading dimension, elements between rows (of a vector: 1). align: bytes that divide its address, a
    power of two, at most 16. reach: elements that may be read from the first one on, padding included.
    """

    ld: int = 1
    align: int = 16
    reach: int = 0

    @classmethod
    def of(cls, view, fresh=False):
        """Of a row-major `View`, as it lies there, or once it is copied to a device."""
        ld = view.leading_dimension() if len(view.shape) == 2 else 1
        reach = view.reach(ld) if len(view.shape) == 2 else view.size
        return cls(ld, 16 if fresh else view.alignment(), reach)


@dataclass(frozen=True, kw_only=True)
class Problem(ABC):
    """One operation on operands of given shapes and layouts, with a sparse matrix of nnz nonzeros."""

    op: ClassVar[str]

    m: int
    k: int
    n: int
    nnz: int
    types: Types = Types()
    batch: int = 1
    rows: RowStats = field(default=RowStats())

    @property
    @abstractmethod
    def flops(self):
        """Floating-point operations: a multiplication and an addition for each term of each sum."""

    @property
    @abstractmethod
    def sparse_shape(self):
        """(rows, columns) of the sparse matrix."""

    @property
    def sparsity(self):
        rows, columns = self.sparse_shape
        return 1 - self.nnz / (rows * columns) if rows and columns else 1.0


@dataclass(frozen=True, kw_only=True)
class SpmmProblem(Problem):
    """C (m, n) = A (m, k) @ B (k, n), A sparse."""

    op: ClassVar[str] = "spmm"

    b: Layout
    c: Layout
    values: Layout = Layout()
    columns: Layout = Layout()
    epilogue: str = "none"

    @property
    def flops(self):
        return 2 * self.nnz * self.n * self.batch

    @property
    def sparse_shape(self):
        return self.m, self.k


@dataclass(frozen=True, kw_only=True)
class SddmmProblem(Problem):
    """out[i, j] = lhs[i, :] . rhs[j, :] at the nonzeros of an (m, n) topology; lhs (m, k), rhs (n, k)."""

    op: ClassVar[str] = "sddmm"

    lhs: Layout
    rhs: Layout

    @property
    def flops(self):
        return 2 * self.nnz * self.k * self.batch

    @property
    def sparse_shape(self):
        return self.m, self.n
