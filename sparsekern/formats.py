"""Sparse matrices as values: a `Topology` says where the nonzeros are, a `Csr` adds what they hold.

Structure and values are kept apart because everything expensive (row order, device copies, plans)
depends on structure alone, and structure outlives many sets of values.
"""

import threading
from dataclasses import dataclass, field
from functools import cached_property
from operator import index
from typing import Any

import numpy as np
import scipy.sparse as sp

from sparsekern.libraries import float32_view, to_host
from sparsekern.lru import Lru

OFFSET_DTYPES = (np.dtype(np.int32), np.dtype(np.int64))
INDEX_DTYPE = np.dtype(np.int32)
VALUE_DTYPE = np.dtype(np.float32)
LONGEST = 2**31 - 2**11  # nonzeros of a row: kernels count up to 1088 past its end, in int32
MOST_PLANS = 32  # that a topology keeps


def _frozen_view(name, array, dtypes):
    """A read-only view of a contiguous 1-D `array`, or of its copy on the host, with one of `dtypes`."""
    array = to_host(name, array)
    if array.dtype not in dtypes:
        wanted = " or ".join(d.name for d in dtypes)
        cast = f"{name}.astype(np.{dtypes[0].name})"
        raise TypeError(f"{name} has dtype {array.dtype}; it must be {wanted}: pass {cast}")
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; it must be one-dimensional")
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, eq=False)
class Topology:
    """Where the nonzeros of an (m, k) matrix are, in CSR.

    Row i owns positions `offsets[i] : offsets[i + 1]` of `columns`. Columns may repeat (entries add
    up) and need no order. `offsets` need not start at 0, so a slice of rows shares its arrays with
    the whole matrix. The arrays must not be changed afterwards; they are checked once, here. Those of a
    device are copied to the host, for checks and plans; each device that computes gets its copy once.

    offsets: (m + 1,) int32 or int64, not decreasing, within `[0, len(columns)]`.
    columns: (stored,) int32, each in `[0, k)`.
    shape: (m, k).

    Raises TypeError for a wrong kind or dtype, ValueError for a wrong shape or value.
    """

    offsets: np.ndarray
    columns: np.ndarray
    shape: tuple[int, int]
    plans: Lru = field(default_factory=lambda: Lru(MOST_PLANS), init=False, repr=False)  # see `ops`
    _derived: dict = field(default_factory=dict, init=False, repr=False)  # what follows from structure
    _lock: Any = field(default_factory=threading.RLock, init=False, repr=False)  # of what is derived

    def __post_init__(self):
        set_ = object.__setattr__
        set_(self, "offsets", _frozen_view("offsets", self.offsets, OFFSET_DTYPES))
        set_(self, "columns", _frozen_view("columns", self.columns, (INDEX_DTYPE,)))
        try:
            m, k = map(index, self.shape)
        except (TypeError, ValueError):
            raise ValueError(f"shape is {self.shape}; it must be two whole numbers") from None
        if min(m, k) < 0:
            raise ValueError(f"shape is {self.shape}; neither size may be negative")
        set_(self, "shape", (m, k))
        if max(m, k) >= 2**31:
            raise ValueError(f"shape is {self.shape}; each size must be below 2**31")
        if len(self.offsets) != m + 1:
            raise ValueError(f"offsets has {len(self.offsets)} entries; {m} rows need {m + 1}")
        self._check_offsets()
        check_columns(self.columns, k)

    def _check_offsets(self):
        down = self.offsets[1:] < self.offsets[:-1]
        if down.any():
            row = int(np.argmax(down))
            start, stop = self.offsets[row], self.offsets[row + 1]
            raise ValueError(f"offsets decreases from {start} to {stop} at row {row}; it must not decrease")
        if self.offsets[0] < 0 or self.offsets[-1] > len(self.columns):
            raise ValueError(
                f"offsets runs from {self.offsets[0]} to {self.offsets[-1]}; "
                f"it must stay within [0, {len(self.columns)}], the length of columns"
            )
        longest = self.row_lengths.max(initial=0)
        if longest > LONGEST:
            raise ValueError(f"a row holds {longest} entries; each row may hold {LONGEST}")

    @property
    def stored(self):
        """Length of `columns` and of any values: at least `nnz`."""
        return len(self.columns)

    @property
    def owned(self):
        """slice: the positions of values that belong to a row."""
        return slice(int(self.offsets[0]), int(self.offsets[-1]))

    @cached_property
    def nnz(self):
        return int(self.offsets[-1] - self.offsets[0])

    @cached_property
    def row_lengths(self):
        """(m,) nonzeros of each row."""
        return np.diff(self.offsets)

    def derive(self, key, make):
        """What `make()` returns, computed once for `key` and kept as long as this topology."""
        with self._lock:
            if key not in self._derived:
                self._derived[key] = make()
            return self._derived[key]

    def row_order(self, bundle, bin, rows_per_block):
        """(m,) int32: the row that each position of the grid works on (row swizzle, paper section V-C).

        The two halves of the swizzle can be had apart. `bundle` puts rows of like length into one
        block, `bin` launches the blocks with the most work first. Both: longest row first.
        """
        key = bundle, bin, rows_per_block
        return self.derive(("row order", *key), lambda: _frozen(_ordered(self.row_lengths, *key)))

    def strips(self, tile_nnz, by_column, bundle, bin, strips_per_block):
        """(rows, starts): every row cut into strips of at most `tile_nnz` nonzeros, in order of work.

        rows: (strips,) int32, the row of each strip. starts: (strips,), like offsets, its first nonzero. The
        order is that of `row_order`, with strips in place of rows. `by_column`: of strips that it leaves as
        they are, those come first whose first nonzero is further to the left.
        """
        key = tile_nnz, by_column, bundle, bin, strips_per_block
        return self.derive(("strips", *key), lambda: _strips(self, *key))

    def row_list(self, *order):
        """(m, 2) int64, for each position of the grid: the row's first nonzero; the row + 2**32 * its length.

        So a subwarp learns in one load of 16 bytes what it works on. order: as for `row_order`.
        """

        def make():
            rows = self.row_order(*order)
            return _packed(self.offsets[rows], rows, self.row_lengths[rows])

        return self.derive(("row list", *order), make)

    def strip_list(self, tile_nnz, *order):
        """(strips, 2) int64: the same of strips, which are parts of rows; see `strips`."""

        def make():
            rows, starts = self.strips(tile_nnz, *order)
            return _packed(starts, rows, np.minimum(self.offsets[rows + 1] - starts, tile_nnz))

        return self.derive(("strip list", tile_nnz, *order), make)

    def __reduce__(self):
        return Topology, (self.offsets, self.columns, self.shape)  # without what is derived


def _strips(topology, tile_nnz, by_column, *order):
    offsets = topology.offsets
    strips_of = -(-topology.row_lengths // tile_nnz)  # (m,)
    rows = np.repeat(np.arange(len(strips_of), dtype=np.int32), strips_of)
    first = np.cumsum(strips_of) - strips_of  # (m,) strip that each row begins with
    starts = offsets[rows] + (np.arange(len(rows)) - first[rows]) * tile_nnz
    if by_column:
        left_to_right = np.argsort(topology.columns[starts], kind="stable")
        rows, starts = rows[left_to_right], starts[left_to_right]
    order = _ordered(np.minimum(offsets[rows + 1] - starts, tile_nnz), *order)
    return _frozen(rows[order]), _frozen(starts[order].astype(offsets.dtype))


def _packed(first, rows, lengths):
    return _frozen(np.stack([first, rows + (lengths.astype(np.int64) << 32)], axis=1, dtype=np.int64))


def _frozen(array):
    array.flags.writeable = False
    return array


def _ordered(lengths, bundle, bin, rows_per_block):
    rows = np.arange(len(lengths), dtype=np.int32)
    if bundle:
        rows = rows[np.argsort(-lengths, kind="stable")]
    if bundle == bin:
        return rows
    # One half alone: reorder whole blocks, leaving the rows of each together. The last block may be
    # short, and must stay last, or it would shift every later row out of its block.
    whole = len(rows) // rows_per_block * rows_per_block
    blocks = rows[:whole].reshape(-1, rows_per_block)
    key = -lengths[blocks].max(axis=1, initial=0) if bin else blocks.min(axis=1, initial=len(rows))
    return np.concatenate([blocks[np.argsort(key, kind="stable")].ravel(), rows[whole:]])


@dataclass(frozen=True, eq=False)
class Csr:
    """A sparse (m, k) matrix: a topology and its float32 values, shape (stored,).

    `a @ b` is `spmm(a, b)`. Values may be edited freely; structure may not.
    """

    topology: Topology
    values: Any  # an array of NumPy, CuPy, PyTorch, ...

    __array_ufunc__ = None  # so that NumPy leaves `array @ csr` to Csr, which has no such product

    def __post_init__(self):
        check_values("values", self.values, self.topology)

    @classmethod
    def from_arrays(cls, offsets, columns, values, shape):
        return cls(Topology(offsets, columns, shape), values)

    @property
    def shape(self):
        return self.topology.shape

    @property
    def nnz(self):
        return self.topology.nnz

    @property
    def dtype(self):
        return VALUE_DTYPE

    def with_values(self, values):
        """The same structure with other values."""
        return Csr(self.topology, values)

    def to_scipy(self):
        """A `scipy.sparse.csr_array` of the same entries, sharing host memory where it can."""
        t = self.topology
        parts = (to_host("values", self.values)[t.owned], t.columns[t.owned], t.offsets - t.offsets[0])
        return sp.csr_array(parts, shape=t.shape)

    def __matmul__(self, b):
        from sparsekern.ops import spmm  # at call time: imports run one way, ops knows formats

        return spmm(self, b)

    def __repr__(self):
        m, k = self.shape
        return f"Csr({m} x {k}, {self.nnz} nonzeros, {self.dtype})"


def check_values(name, values, topology):
    """The `View` of `values`. Raises TypeError or ValueError unless they can be those of `topology`."""
    if not isinstance(topology, Topology):
        raise TypeError(
            f"topology is a {type(topology).__name__}; it must be a Topology: pass as_topology(topology)"
        )
    values = float32_view(name, values)
    if values.shape != (topology.stored,):
        raise ValueError(f"{name} has shape {values.shape}; this structure needs ({topology.stored},)")
    return values


def check_columns(columns, k):
    """Raises ValueError unless all `columns` are in [0, k)."""
    wrong = (columns < 0) | (columns >= k)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(f"columns[{at}] is {columns[at]}; it must be in [0, {k})")
