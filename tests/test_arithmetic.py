"""Numbers as a lane computes them."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsekern.machine.arithmetic import Float32, to_float32, to_int32
from sparsekern.machine.emulator import emulate
from sparsekern.machine.multiply_adds import accumulate_here as accumulate
from sparsekern.machine.multiply_adds import fma_here as fma

floats32 = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**60), max_value=2.0**60)


@given(floats32, floats32, floats32)
def test_fma_rounds_once(a, x, y):
    exact = Fraction(a) * Fraction(x) + Fraction(y)
    found = fma(a, x, y)
    below, above = np.nextafter(np.float32(found), np.float32([-np.inf, np.inf]))
    distance = abs(Fraction(float(found)) - exact)
    assert distance <= abs(Fraction(float(below)) - exact)
    assert distance <= abs(Fraction(float(above)) - exact)


def test_fma_is_not_rounded_twice():
    # 1 + 2**-24 + 2**-54 lies above the tie between two float32s; rounded to float64 first, it is the tie.
    a, x, y = 1 + 2.0**-12, 2.0**-12, 1 - 2.0**-12 - 2.0**-24
    tiny = 2.0**-54
    assert fma(2.0**-27, 2.0**-27, 1 + 2.0**-23) == 1 + 2.0**-23
    assert np.float32(np.float64(1 + 2.0**-24) + tiny) == 1
    assert fma(1 + 2.0**-23, 1 + 2.0**-23, 2.0**-24 - 2.0**-23) == float32_of(
        Fraction(1 + 2.0**-23) ** 2 + Fraction(2.0**-24 - 2.0**-23)
    )
    assert fma(a, x, y) == float32_of(Fraction(a) * Fraction(x) + Fraction(y))


def float32_of(exact):
    """The float32 nearest to a fraction in [1, 2), ties to even."""
    unit = Fraction(1, 2**23)
    low = exact // unit
    rest = exact / unit - low
    up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2)
    return float((low + up) * unit)


@given(floats32, floats32, floats32)
def test_float32_arithmetic_rounds_as_numpy_s_does(x, y, z):
    with np.errstate(all="ignore"):
        a, b, c = map(np.float32, (x, y, z))
        assert Float32(x) * Float32(y) == a * b
        assert Float32(x) + Float32(y) - Float32(z) == a + b - c
        assert type(Float32(x) * Float32(y)) is Float32


def test_float32_with_an_integer_or_a_python_float_is_float64_as_in_numba():
    assert Float32(1.0) / 3 == 1.0 / 3
    assert 0.1 * Float32(3.0) == 0.1 * 3.0
    assert -Float32(2.0) == abs(Float32(-2.0)) * -1


@pytest.mark.parametrize("value, wrapped", [(2**31, -(2**31)), (-(2**31) - 1, 2**31 - 1), (7, 7), (-1.9, -1)])
def test_a_cast_to_int32_wraps_or_truncates(value, wrapped):
    assert to_int32(value) == wrapped


def test_a_cast_to_float32_overflows_to_infinity_and_keeps_denormals():
    assert to_float32(1e39) == np.inf
    assert to_float32(2.0**-149) == 2.0**-149


def test_many_multiply_adds_at_once_come_out_as_one_by_one(rng):
    multipliers, rows = rng.standard_normal(53, np.float32), rng.standard_normal(203, np.float32)
    sums = np.zeros(5, np.float32)
    accumulate(multipliers, rows, np.array([[50, 4], [3, 1]], np.int32), sums)
    expected = [0.0] * 5
    for i in range(50):
        expected[:4] = [fma(multipliers[i], rows[4 * i + j], expected[j]) for j in range(4)]
    for i in range(50, 53):
        expected[4] = fma(multipliers[i], rows[150 + i], expected[4])
    assert sums.tolist() == expected


def test_stores_wrap_to_the_dtype_of_the_array():
    def kernel(x, y):
        x[0] = 2**31 + 5
        y[0] = 1e300

    x, y = np.zeros(1, np.int32), np.zeros(1, np.float32)
    emulate(kernel, (1,), (1,), [x, y])
    assert (x[0], y[0]) == (-(2**31) + 5, np.inf)
