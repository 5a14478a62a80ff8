"""Numbers as many GPU lanes compute them at once: `machine.arithmetic` on arrays.

A value is a Python number of `arithmetic`, the same for all lanes, or an array with an element for each
lane: float32, float64, bool, or int64 for all integers, since only casts and stores wrap.
"""

import ast
import operator
from numbers import Integral
from typing import NamedTuple

import numpy as np

from sparsekern.machine.arithmetic import CASTS, Float32

BITWISE = {ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor}
SHIFTS = {ast.LShift: operator.lshift, ast.RShift: operator.rshift}
QUOTIENTS = {ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod}
BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
BINARY |= BITWISE | SHIFTS | QUOTIENTS
UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
COMPARE = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
SCALARS = {bool: np.bool_, Integral: np.int64, Float32: np.float32, float: np.float64}


class OfLane(Exception):
    """`cause` is what Python raises for the lane at `position` of those that run."""

    def __init__(self, position, cause):
        super().__init__(position, cause)
        self.position, self.cause = position, cause


class Unsupported(Exception):
    """What lanes in lockstep cannot do, in words."""


def varies(*values):
    return any(isinstance(value, np.ndarray) for value in values)


def differ(*values):
    """Whether one varies, or is a tuple of what does."""
    return any(differ(*value) if isinstance(value, tuple) else varies(value) for value in values)


def number(value):
    """`value`, which is to be one number for each lane."""
    if isinstance(value, tuple) or (varies(value) and value.ndim > 1):
        raise Unsupported("lanes in lockstep compute with and compare numbers, not fragments and tuples")
    return value


def typed(value):
    """A number of `arithmetic` as the NumPy scalar of its type; arrays as they are."""
    if isinstance(number(value), np.ndarray):
        return value
    for kind, of_numpy in SCALARS.items():
        if isinstance(value, kind):
            try:
                return of_numpy(value)
            except OverflowError:
                raise Unsupported(
                    f"integers of lanes in lockstep have 64 bits, and {value} has more"
                ) from None
    raise Unsupported(f"a value that differs between lanes must be a number, not {type(value).__name__}")


def fragment(items, lanes):
    """(width, lanes) of a tuple of numbers and arrays."""
    if isinstance(items, np.ndarray):
        return items
    if type(items) is not tuple:  # but one with names
        raise Unsupported(f"lanes in lockstep cannot keep a {type(items).__name__} that differs between them")
    items = [typed(item) for item in items]
    if len({item.dtype for item in items}) > 1 or any(item.ndim > 1 for item in items):
        raise Unsupported("a tuple that differs between lanes must hold numbers of one type")
    return np.array([np.broadcast_to(item, (lanes,)) for item in items])


def items(value):
    """The elements of a tuple, a range or a fragment."""
    if varies(value) and value.ndim < 2:
        raise TypeError("a number has no elements")
    if not isinstance(value, np.ndarray | tuple | range):
        raise Unsupported(f"lanes in lockstep cannot go through a {type(value).__name__}")
    return value


def element(fragment, index):
    """fragment: (width, lanes) or fewer axes. index: one for all, or (lanes,)."""
    if not isinstance(number(index), np.ndarray | Integral):
        raise TypeError(f"indices of tuples and fragments must be integers, not {type(index).__name__}")
    if not varies(index):
        return items(fragment)[index]
    wrong = (index < -len(fragment)) | (index >= len(fragment))
    if wrong.any():
        raise OfLane(int(np.argmax(wrong)), IndexError("tuple index out of range"))
    return items(fragment)[index, np.arange(len(index))]


class Span(NamedTuple):
    """A `range` that is not the same for all lanes. Each part may be, and otherwise is (lanes,)."""

    start: int | np.ndarray
    step: int | np.ndarray
    count: np.ndarray

    @classmethod
    def of(cls, *bounds):
        if any(varies(bound) and bound.dtype.kind == "f" for bound in bounds):
            raise TypeError("'float' object cannot be interpreted as an integer")
        start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if np.any(step == 0):
            raise OfLane(int(np.argmax(step == 0)), ValueError("range() arg 3 must not be zero"))
        return cls(start, step, -((typed(start) - typed(stop)) // typed(step)))


def binary(operation, x, y):
    """`x operation y` of an `ast` operator, with Numba's typing. Raises `OfLane` as Python would for one."""
    if operation not in BINARY:
        raise Unsupported(f"lanes in lockstep have no operator {operation.__name__}")
    apply = BINARY[operation]
    if not differ(x, y):
        return apply(x, y)
    x, y = typed(x), typed(y)
    if operation not in BITWISE:
        x, y = (value.astype(np.int64) if value.dtype == bool else value for value in (x, y))
    if operation in QUOTIENTS or (operation is ast.Div and np.float32 not in (x.dtype, y.dtype)):
        x, y = (value.astype(np.float64) if value.dtype == np.float32 else value for value in (x, y))
        _refuse(apply, x, y, y == 0)
    elif operation in SHIFTS:
        _refuse(apply, x, y, y < 0)
    return apply(x, y)


def _refuse(apply, x, y, wrong):
    """Raises what Python does for the first lane where it is `wrong`."""
    if wrong.any():
        shape = np.broadcast_shapes(x.shape, y.shape)
        position = int(np.argmax(np.broadcast_to(wrong, shape)))
        try:
            apply(*(np.broadcast_to(value, shape).ravel()[position].item() for value in (x, y)))
        except Exception as error:
            raise OfLane(position, error) from error


def unary(operation, x):
    if operation is ast.Not:
        return np.logical_not(truth(x)) if differ(x) else not x
    if differ(x):
        x = typed(x)
    return UNARY[operation](x.astype(np.int64) if varies(x) and x.dtype == bool else x)


def compare(operation, x, y):
    if not differ(x, y):
        if operation in (ast.Is, ast.IsNot):
            return (x is y) == (operation is ast.Is)
        if operation in (ast.In, ast.NotIn):
            return (x in y) == (operation is ast.In)
        return COMPARE[operation](x, y)
    if operation not in COMPARE:
        raise Unsupported(
            f"lanes in lockstep compare by order and equality only, not by {operation.__name__}"
        )
    return COMPARE[operation](typed(x), typed(y))


def truth(x):
    if not differ(x):
        return bool(x)
    return x if typed(x).dtype == bool else x != 0


def cast(dtype, x):
    """`x` cast to a dtype of `arithmetic.CASTS`: floats truncate, integers wrap around."""
    if not varies(x):
        return CASTS[dtype](x)
    if dtype.kind == "b":
        return x.astype(bool)
    if dtype.kind == "f":
        return x if x.dtype == dtype else x.astype(np.float64).astype(dtype)
    if x.dtype.kind == "f":
        _refuse(lambda value, _: int(value), x, x, ~np.isfinite(x))
        if (np.abs(x) >= 2.0**63).any():
            raise Unsupported("lanes in lockstep have no integers past 64 bits")
    x = x.astype(np.int64)
    return x.astype(np.int32).astype(np.int64) if dtype == np.int32 else x


def least(*values):
    return _chosen(operator.lt, values)


def largest(*values):
    return _chosen(operator.gt, values)


def _chosen(better, values):
    """What Python's `min` and `max` take, also of NaN: the first that none after it is better than."""
    best, *others = items(values[0]) if len(values) == 1 else values
    for other in others:
        if differ(best, other):
            best, other = typed(best), typed(other)
            best = np.where(better(other, best), other, best)
        elif better(other, best):
            best = other
    return best
