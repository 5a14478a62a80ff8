"""Dense arrays as kernels see them: an address, strides, and how far memory goes."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np


@dataclass(eq=False, slots=True)  # frozen, it would take three times as long to make, at every call
class View:
    """Where a dense array lies. strides in bytes; `end` is the first address past readable memory."""

    library: Any  # a `libraries.Library`
    array: Any  # of that library; host memory as a NumPy array
    address: int
    shape: tuple
    strides: tuple
    dtype: str
    itemsize: int
    end: int
    device: int | None = None  # of CUDA; None is host memory
    writeable: bool = True

    @property
    def size(self):
        return prod(self.shape)

    @property
    def place(self):
        return "host memory" if self.device is None else f"cuda:{self.device}"

    @property
    def fingerprint(self):
        """All that a plan is chosen by, hashable: where arrays agree in it, one may stand for the other."""
        shape, strides, room = self.shape, self.strides, self.end - self.address
        if shape and shape[0] > 1:
            room = min(room, shape[0] * strides[0])  # nobody reads on: see `reach`
        lies = self.address % 16, shape, strides, self.dtype, room
        return self.library, self.device, self.writeable, lies

    @property
    def contiguous(self):
        """Whether elements follow each other in row-major order."""
        expected, strides = self.itemsize, []
        for length in reversed(self.shape):
            strides.append(expected)
            expected *= length
        pairs = zip(self.shape, self.strides, reversed(strides), strict=True)
        return self.aligned and (self.size == 0 or all(n == 1 or have == want for n, have, want in pairs))

    @property
    def aligned(self):
        """Whether every element starts at a multiple of its size."""
        steps = [stride for length, stride in zip(self.shape, self.strides, strict=True) if length > 1]
        return self.size == 0 or not any(x % self.itemsize for x in (self.address, *steps))

    def alignment(self, most=16):
        """Largest power of two, up to `most` bytes, that divides the address."""
        return min(most, self.address & -self.address) if self.address else most

    def leading_dimension(self):
        """Elements between rows of a row-major 2-D array; None if it is not row-major.

        Row-major here: columns one element apart, rows at least a row's length apart, going up.
        """
        rows, columns = self.shape
        row_bytes, column_bytes = self.strides
        stride, least = row_bytes // self.itemsize, max(columns, 1)
        if self.size and (not self.aligned or (columns > 1 and column_bytes != self.itemsize)):
            return None
        if rows <= 1 or columns == 0:  # no row follows, so any will do, and this suits every vector
            return -(-least // 4) * 4
        return stride if stride >= least else None

    def reach(self, ld):
        """Elements that may be read from the first one of a row-major array on, up to whole rows of `ld`.

        A view of a wider array owns no padding but may read it: the base array's memory is there.
        """
        rows, columns = self.shape
        if self.size == 0:
            return 0
        readable = (self.end - self.address) // self.itemsize
        return max(min(readable, rows * ld), (rows - 1) * ld + columns)

    def as_columns(self):
        """A vector as a matrix of one column; a matrix as it is."""
        if len(self.shape) != 1:
            return self
        return replace(self, shape=(*self.shape, 1), strides=(*self.strides, self.itemsize))

    def overlaps(self, other):
        """Whether some byte belongs to both; True if that is too hard to tell."""
        if self.device != other.device or not (self.size and other.size):
            return False
        (start, end), (other_start, other_end) = self._span(), other._span()
        if end <= other_start or other_end <= start:
            return False
        try:
            return np.shares_memory(self._bounds(), other._bounds(), max_work=100_000)
        except np.exceptions.TooHardError:
            return True

    def _span(self):
        """(first address, first one past the last) of the elements, of which there are some."""
        first = last = self.address
        for length, stride in zip(self.shape, self.strides, strict=True):
            if stride < 0:
                first += (length - 1) * stride
            else:
                last += (length - 1) * stride
        return first, last + self.itemsize

    def _bounds(self):
        """The same addresses as a NumPy array, whose memory nobody touches: it may be a device's."""
        return np.asarray(_Addresses(self))

    def flat(self, count):
        """`count` elements from the first on: a NumPy array, or on a device a Numba one."""
        if self.device is None:
            step = (self.itemsize,)
            return np.lib.stride_tricks.as_strided(self.array, (count,), step, writeable=self.writeable)
        return self.as_numba((count,), None)

    def as_numba(self, shape, strides):
        """A Numba device array of this memory; strides None is contiguous. Called with its device current."""
        from numba import cuda

        data = self.address, not self.writeable
        interface = dict(shape=shape, strides=strides, typestr=np.dtype(self.dtype).str, data=data, version=3)
        return cuda.from_cuda_array_interface(interface, owner=self.array)


class _Addresses:
    def __init__(self, view):
        self.__array_interface__ = dict(
            shape=view.shape, strides=view.strides, typestr=f"|V{view.itemsize}", version=3,
            data=(view.address, True),
        )  # fmt: skip
