"""Numbers as a GPU lane computes them, in Python.

A float32 is a `Float32`: a Python float whose value a float32 can hold, and whose arithmetic rounds
to one. An int32 is a Python int in range; Numba widens int32 arithmetic to int64, so only casts and
stores wrap. A fused multiply-add is the primitive of `lanes`, compiled for this processor.
"""

from array import array

import numpy as np
from numba import float32, njit

from sparsekern.machine import lanes


def round_float32(x):
    """The float32 nearest to `x`, as a Python float; ties to even, overflow to infinity."""
    return array("f", (x,))[0]


def _rounded(operator):
    """`operator` of float with Numba's typing: float32 with float32 rounds, with others it is float64."""

    def method(self, other):
        result = operator(self, other)
        if type(other) is Float32:
            return Float32(round_float32(result))
        return result

    return method


class Float32(float):
    """A float32. Build one from any float with `to_float32`."""

    __slots__ = ()

    __add__ = _rounded(float.__add__)
    __sub__ = _rounded(float.__sub__)
    __mul__ = _rounded(float.__mul__)
    __truediv__ = _rounded(float.__truediv__)

    def __neg__(self):
        return Float32(float.__neg__(self))

    def __pos__(self):
        return self

    def __abs__(self):
        return Float32(float.__abs__(self))


def to_float32(x):
    """`x` cast to float32."""
    return x if type(x) is Float32 else Float32(round_float32(x))


def to_int32(x):
    """`x` cast to int32: floats truncate, integers wrap around."""
    return (int(x) + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def to_int64(x):
    """`x` cast to int64."""
    return (int(x) + (1 << 63) & (1 << 64) - 1) - (1 << 63)


CASTS = {  # by NumPy dtype
    np.dtype(name): cast
    for name, cast in dict(
        float32=to_float32, float64=float, int32=to_int32, int64=to_int64, bool=bool
    ).items()
}


@njit(cache=True)
def fma(a, x, y):
    """`a * x + y` of three float32 values, rounded once."""
    return lanes.fma(float32(a), float32(x), float32(y))


@njit(cache=True)
def accumulate(multipliers, rows, sums):
    """Adds multipliers[i] * rows[i] to `sums` for each i in turn, one fused multiply-add an element.

    multipliers: (count,) float32. rows: (count * width,) float32. sums: (width,) float32, updated.
    """
    width = len(sums)
    for i in range(len(multipliers)):
        for j in range(width):
            sums[j] = lanes.fma(multipliers[i], rows[i * width + j], sums[j])
