"""Sparse matrices of other libraries: wrapped as ours once, and remembered; and back again.

SciPy, CuPy and PyTorch each keep CSR as row offsets, columns and values, under names of their own.
"""

import sys
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from sparsekern.formats import INDEX_DTYPE, Csr, Topology, check_columns, check_values
from sparsekern.libraries import CUPY, NUMPY, TORCH, Library, check_no_gradient, float32_view, to_host, view


class _Kind(ABC):
    """A library's sparse matrices. `to_csr`, `from_dense`: how its users convert one, or a dense array."""

    library: Library  # of the arrays that they are made of
    from_dense = "scipy.sparse.csr_array({name}, dtype=np.float32)"
    to_csr = "{name}.tocsr()"
    values = "{name}.data"

    def memory(self, part):
        """What tells `part` of a structure from another without reading it."""
        x = view("structure", part)
        return x.address, x.shape, x.strides, x.dtype, x.device

    @abstractmethod
    def owns(self, a):
        """Whether `a` is a sparse matrix of this library, in any format."""

    def is_csr(self, a):
        return a.format == "csr"

    def parts(self, a):
        """(offsets, columns, values)."""
        return a.indptr, a.indices, a.data

    def like(self, a, values):
        """A matrix like `a` with other values. Its structure is a copy, as this library's users expect."""
        return type(a)((values, a.indices.copy(), a.indptr.copy()), shape=a.shape)


class _SciPy(_Kind):
    library = NUMPY

    def like(self, a, values):
        result = super().like(a, values)
        if len(result.data) == len(values):  # SciPy cuts what no row owns, and copies what is a small slice
            result.data = values
        return result

    def owns(self, a):
        return sp.issparse(a)


class _CuPy(_Kind):
    library = CUPY
    from_dense = "cupyx.scipy.sparse.csr_matrix({name}, dtype=np.float32)"

    def owns(self, a):
        cupyx = sys.modules.get("cupyx.scipy.sparse")
        return cupyx is not None and cupyx.issparse(a)

    def like(self, a, values):
        with CUPY.on_device(a.data.data.device_id):  # to which it copies
            return a._with_data(values)  # the constructor would wait for the device, to look at `indptr`


class _Torch(_Kind):
    library = TORCH
    to_csr = "{name}.to_sparse_csr()"
    values = "{name}.values()"

    def owns(self, a):
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(a, torch.Tensor)

    def is_csr(self, a):
        return str(a.layout) == "torch.sparse_csr"

    def parts(self, a):
        return a.crow_indices(), a.col_indices(), a.values()

    def memory(self, part):  # a new tensor each time, so this is asked at every call
        return part.data_ptr(), part.shape, part.stride(), part.dtype, part.get_device()

    def like(self, a, values):
        torch, known = sys.modules["torch"], _known_of(a)
        parts = self.parts(a) if known is None else known.parts
        return torch.sparse_csr_tensor(*parts[:2], values, a.shape, check_invariants=False)  # once is enough


KINDS = (_SciPy(), _CuPy(), _Torch())
_known = {}  # id of a foreign matrix -> `_Known`


@dataclass(eq=False)
class _Known:
    """What is remembered of a foreign matrix."""

    matrix: Any  # weak reference
    kind: _Kind
    parts: tuple  # (offsets, columns): held, lest their memory is handed out again, whose address tells them
    topology: Topology

    @cached_property
    def memory(self):
        return [*map(self.kind.memory, self.parts)]


def as_csr(a, name="a"):
    """`a` as a `Csr`: itself, or a CSR matrix of SciPy, CuPy or PyTorch, wrapped without copying its values.

    A foreign structure is copied and checked once, and remembered by the identity of the matrix and the
    memory of its arrays. Whoever edits these in place (`sort_indices` and `sum_duplicates` do) calls
    `invalidate`. 64-bit column indices are converted, once.

    Raises TypeError for any other type, naming the conversion, since converting costs.
    """
    return a if isinstance(a, Csr) else Csr(*_parts(name, a)[:2])


def parts_of(a, name="a"):
    """(topology, `View` of the values) of the matrix `a`, as for `as_csr`."""
    if isinstance(a, Csr):
        topology, seen = a.topology, float32_view(f"{name}'s values", a.values)
    else:
        topology, _, seen = _parts(name, a)
    if seen.shape != (topology.stored,):  # values may have been resized since they were checked
        check_values(f"{name}'s values", seen, topology)  # raises
    return topology, seen


def as_topology(a, name="topology"):
    """The `Topology` of `a`: itself, that of a `Csr`, or of a CSR matrix as for `as_csr`, of any dtype."""
    if isinstance(a, Topology):
        return a
    if isinstance(a, Csr):
        return a.topology
    kind = _kind_of(name, a)
    return _wrapped(name, a, kind, kind.parts(a))


def like(a, topology, values):
    """`values` in a matrix of the type and structure of `a`, whose topology is remembered; else a `Csr`."""
    if isinstance(a, (Topology, Csr)):
        return Csr(topology, values)
    kind = _kind_of("topology", a)
    result = kind.like(a, values)
    parts = kind.parts(result)
    if tuple(parts[1].shape) == (topology.stored,):  # as it is, unless SciPy has cut it
        _remember(result, kind, parts, topology)
    return result


def library_of(a):
    """The library of the arrays of `a`; None for a `Topology` or `Csr`, whose values may be of any."""
    return None if isinstance(a, (Topology, Csr)) else _kind_of("a", a).library


def place_of(a):
    """A `View` that tells where the matrix `a` lies; None for a `Topology` or `Csr`, which is anywhere."""
    if isinstance(a, (Topology, Csr)):
        return None
    known = _known_of(a)
    parts = known.parts if known is not None else _kind_of("a", a).parts(a)
    return view("a", parts[0])


def check_sparse_first(name, first, other_name, other):
    """Raises TypeError if `other` is in CSR and `first`, which should be, is not."""
    if not _in_csr(first) and _in_csr(other):
        raise TypeError(
            f"{name} is a {type(first).__name__} and {other_name} is in CSR; the sparse matrix comes first: "
            "swap them"
        )


def _in_csr(a):
    if isinstance(a, (Topology, Csr)) or _known_of(a):
        return True
    kind = _owner(a)
    return kind is not None and kind.is_csr(a)


def invalidate(a):
    """Forgets what is remembered of the foreign matrix `a`, whose structure was edited in place."""
    _known.pop(id(a), None)


def _owner(a):
    """The `_Kind` of a sparse matrix `a`, in whatever format; None if it is none."""
    for kind in KINDS:
        if kind.owns(a):
            return kind
    return None


def _known_of(a):
    """The `_Known` of a matrix, or None."""
    known = _known.get(id(a))
    return known if known is not None and known.matrix() is a else None


def _kind_of(name, a):
    known = _known_of(a)
    if known is not None:
        return known.kind
    kind = _owner(a)
    if kind is None or not kind.is_csr(a):
        dense = next((kind for kind in KINDS if kind.library.owns(a)), KINDS[0])
        way_out = (kind.to_csr if kind else dense.from_dense).format(name=name)
        what = f"{type(a).__name__} of layout {a.layout}" if hasattr(a, "layout") else type(a).__name__
        raise TypeError(
            f"{name} is a {what}; it must be a CSR matrix of SciPy, CuPy or PyTorch: "
            f"convert once with {way_out}"
        )
    if len(a.shape) != 2:
        raise ValueError(f"{name} has shape {tuple(a.shape)}; it must be two-dimensional")
    return kind


def _parts(name, a):
    """(topology, values, `View` of the values) of a matrix of another library."""
    if isinstance(a, Topology):
        raise TypeError(f"{name} is a Topology, which has no values: pass Csr({name}, values)")
    kind = _kind_of(name, a)
    parts = kind.parts(a)
    topology, values = _wrapped(name, a, kind, parts), parts[2]
    called, way_out = _wording(kind, name)
    return topology, values, float32_view(called, values, way_out)


@cache
def _wording(kind, name):
    """(what the values of the matrix `name` are called, how to make them float32)"""
    return kind.values.format(name=name), f"pass {kind.library.cast.format(name=name)}"


def _wrapped(name, a, kind, parts):
    if kind.library is TORCH:
        check_no_gradient(name, a)
    known = _known_of(a)
    offsets, columns, _ = parts
    if known is not None and known.topology.shape == tuple(a.shape):
        same = offsets is known.parts[0] and columns is known.parts[1]
        if same or [kind.memory(offsets), kind.memory(columns)] == known.memory:
            return known.topology
    # Copies, so that nobody's edit in place reaches results that share the topology.
    columns = _narrow(to_host("columns", columns), a.shape[1]).copy()
    topology = Topology(to_host("offsets", offsets).copy(), columns, tuple(a.shape))
    _remember(a, kind, parts, topology)
    return topology


def _remember(a, kind, parts, topology):
    key, parts = id(a), parts[:2]
    matrix = weakref.ref(a, lambda _: _known.pop(key, None))
    _known[key] = _Known(matrix, kind, parts, topology)


def _narrow(columns, k):
    """64-bit column indices as 32-bit ones, once it is certain that they fit."""
    if columns.dtype == INDEX_DTYPE or not np.issubdtype(columns.dtype, np.integer):
        return columns
    check_columns(columns, k)
    return columns.astype(INDEX_DTYPE)
