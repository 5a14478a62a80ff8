"""What is to be computed, as a value: the key for choosing, planning, costing and recording."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Types:
    """dtypes of a computation, by NumPy name. float32 and int32 now; offsets int32 or int64."""

    values: str = "float32"  # values of A
    index: str = "int32"  # column indices of A
    offset: str = "int32"  # row offsets of A
    dense: str = "float32"  # B
    out: str = "float32"  # C
    acc: str = "float32"  # the running sums


@dataclass(frozen=True)
class RowStats:
    """Row lengths of a topology, in nonzeros."""

    longest: int = 0
    mean: float = 0.0
    cov: float = 0.0  # coefficient of variation: standard deviation over mean
    empty: int = 0

    @classmethod
    def of(cls, lengths):
        if len(lengths) == 0 or lengths.max() == 0:
            return cls(empty=len(lengths))
        mean = float(lengths.mean())
        return cls(int(lengths.max()), mean, float(lengths.std()) / mean, int((lengths == 0).sum()))


@dataclass(frozen=True)
class Problem:
    """One operation on operands of given shapes, layouts and alignments.

    SpMM: C (m, n) = A (m, k), nnz nonzeros, times B (k, n).
    Leading dimensions and reach are in elements, alignments in bytes (a power of two, at most 16).
    """

    op: str
    m: int
    k: int
    n: int
    nnz: int
    types: Types = Types()
    ldb: int = 0
    ldc: int = 0
    align_values: int = 16
    align_columns: int = 16
    align_b: int = 16
    align_c: int = 16
    reach_b: int = 0  # elements that may be read from B's first one on; padding included
    batch: int = 1
    epilogue: str = "none"
    rows: RowStats = field(default=RowStats())

    @property
    def flops(self):
        """Floating-point operations: a multiplication and an addition for each nonzero and column."""
        return 2 * self.nnz * self.n * self.batch

    @property
    def sparsity(self):
        return 1 - self.nnz / (self.m * self.k) if self.m and self.k else 1.0


def alignment(array, most=16):
    """Largest power of two, up to `most` bytes, that divides the address of `array`."""
    address = array.ctypes.data
    return min(most, address & -address) if address else most


def leading_dimension(array):
    """Elements between rows of a row-major 2-D `array`; None if it is not row-major.

    Row-major here: columns one element apart, rows at least a row's length apart, going up.
    """
    rows, columns = array.shape
    row_bytes, column_bytes = array.strides
    if array.size == 0:
        return max(columns, 1)
    if not array.flags.aligned or (columns > 1 and column_bytes != array.itemsize):
        return None
    if rows == 1:
        return max(columns, 1)
    stride, rest = divmod(row_bytes, array.itemsize)
    return stride if rest == 0 and stride >= max(columns, 1) else None


def reach(array, ld):
    """Elements that may be read from the first one of row-major `array` on, up to whole rows of `ld`.

    A view of a wider array owns no padding but may read it: the base array's memory is there.
    """
    rows, columns = array.shape
    if rows == 0 or columns == 0:
        return 0
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    end = np.lib.array_utils.byte_bounds(owner)[1]
    readable = (end - array.ctypes.data) // array.itemsize
    return max(min(readable, rows * ld), (rows - 1) * ld + columns)
