"""The measure of error catches what it must."""

import numpy as np
import pytest
import scipy.sparse as sp

from sparsekern import Csr, Topology
from sparsekern.reference import error, sddmm_reference, spmm_reference, tolerance

A = sp.csr_array(np.array([[1, 0, 2], [0, 0, 0], [0, 3, -3]], np.float32))
B = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
REFERENCE = spmm_reference(A, B)


def test_the_reference_is_scipy_s_in_float64():
    c, scale = REFERENCE
    assert c.dtype == np.float64 and np.array_equal(c, A.toarray() @ B)
    assert np.array_equal(scale, abs(A.toarray()) @ B)


def test_the_reference_of_sampled_products_is_numpy_s_in_float64_and_0_outside_of_rows():
    offsets, columns = np.array([1, 3, 3, 4], np.int32), np.array([9, 2, 0, 1, 9], np.int32)
    topology = Topology(offsets, np.minimum(columns, 2), (3, 3))
    lhs, rhs = -B, B
    values, scale = sddmm_reference(topology, lhs, rhs)
    products = lhs.astype(np.float64) @ rhs.T
    expected = [0, products[0, 2], products[0, 0], products[2, 1], 0]
    assert values.dtype == np.float64 and values.tolist() == expected
    assert scale.tolist() == np.abs(expected).tolist()


def test_a_right_answer_has_no_error_and_an_empty_row_none_either():
    assert error(REFERENCE[0].astype(np.float32), *REFERENCE) == 0


def test_error_is_relative_to_the_sum_of_magnitudes():
    c = REFERENCE[0].copy()
    c[2, 0] += 0.24
    assert error(c, *REFERENCE) == pytest.approx(0.24 / 24)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_nan_or_infinity_that_should_not_be_there_is_an_infinite_error(wrong):
    c = REFERENCE[0].copy()
    c[1, 1] = wrong
    assert error(c, *REFERENCE) == np.inf


def test_something_in_an_empty_row_is_an_infinite_error():
    c = REFERENCE[0].copy()
    c[1, 0] = 1e-20
    assert error(c, *REFERENCE) == np.inf


def test_nan_and_infinity_are_expected_where_the_reference_has_them():
    b = B.copy()
    b[0, 0], b[1, 1] = np.nan, np.inf
    reference = spmm_reference(A, b)
    assert error(reference[0], *reference) == 0
    missing = reference[0].copy()
    missing[0, 0] = 1
    assert error(missing, *reference) == np.inf
    flipped = reference[0].copy()
    flipped[2, 1] = -np.inf
    assert error(flipped, *reference) == np.inf


def test_a_result_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"c has shape \(3, 1\)"):
        error(np.zeros((3, 1)), *REFERENCE)


def test_tolerance_grows_with_the_length_of_the_sum():
    assert tolerance(100) == 100 * tolerance(1) == 100 * tolerance(0)


def test_columns_that_repeat_and_cancel_count_with_their_magnitudes():
    a = Csr(Topology(np.int32([0, 3]), np.int32([0, 0, 0]), (1, 1)), np.float32([1.25, -6, 4]))
    c, scale = spmm_reference(a, np.float32([[2]]))
    assert c == [[-1.5]] and scale == [[22.5]]
