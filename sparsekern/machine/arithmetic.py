"""Numbers as a GPU lane computes them, in Python.

A float32 is a `Float32`: a Python float whose value a float32 can hold, and whose arithmetic rounds
to one. An int32 is a Python int in range; Numba widens int32 arithmetic to int64, so only casts and
stores wrap.
"""

from array import array
from math import copysign

import numpy as np


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


def _divide(x, y):
    """x / y as floating-point hardware has it: division by zero gives an infinity or NaN."""
    if y != 0:
        return float.__truediv__(x, float(y))
    return float("nan") if x == 0 or x != x else copysign(float("inf"), x) * copysign(1.0, y)


class Float32(float):
    """A float32. Build one from any float with `to_float32`."""

    __slots__ = ()

    __add__ = _rounded(float.__add__)
    __sub__ = _rounded(float.__sub__)
    __mul__ = _rounded(float.__mul__)
    __truediv__ = _rounded(_divide)

    def __rtruediv__(self, other):
        return _divide(float(other), self)

    def __neg__(self):
        return Float32(float.__neg__(self))

    def __pos__(self):
        return self

    def __abs__(self):
        return Float32(float.__abs__(self))


def to_float32(x):
    """`x` cast to float32."""
    if type(x) is Float32:
        return x
    if type(x) is int and -(2**24) <= x <= 2**24:  # all of which a float32 holds
        return Float32(x)
    return Float32(round_float32(x))


def to_int32(x):
    """`x` cast to int32: floats truncate, integers wrap around."""
    if type(x) is int and -0x80000000 <= x < 0x80000000:
        return x
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
