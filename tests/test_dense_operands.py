"""Every layout of dense operands: right, or refused in words before anything is launched."""

import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from operands import BACKENDS, check, dense, sparse
from protocols import check_products

from sparsekern import plan_sddmm, plan_spmm, sddmm, spmm
from sparsekern.foreign import as_csr

LAYOUTS = {
    "contiguous": lambda x: x,
    "left columns": lambda x: x[:, :8],
    "unaligned columns": lambda x: x[:, 1:8],
    "right columns": lambda x: x[:, 3:],
    "column-major": np.asfortranarray,
    "every other column": lambda x: x[:, ::2],
    "rows upside down": lambda x: x[::-1],
    "columns mirrored": lambda x: x[:, ::-1],
    "zero row stride": lambda x: np.broadcast_to(x[:1], x.shape),
    "zero column stride": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "a column": lambda x: x[:, 5],
    "a vector": lambda x: np.ascontiguousarray(x[:, 5]),
    "a vector upside down": lambda x: x[::-1, 5],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_b_may_have_any_layout(layout, backend):
    a, b = sparse(), LAYOUTS[layout](dense(13, 12))
    before = b.copy()
    c = spmm(a, b, backend=backend)
    check(a, b, c)
    assert c.shape == (9, *b.shape[1:])
    assert np.array_equal(b, before)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if LAYOUTS[name](dense(2, 12)).ndim == 2])
def test_lhs_and_rhs_may_have_any_layout_and_need_not_have_the_same(layout, backend):
    a, lhs, rhs = sparse(), LAYOUTS[layout](dense(9, 12)), LAYOUTS[layout](dense(13, 12, seed=4))
    plain = [np.ascontiguousarray(x) for x in (lhs, rhs)]
    for left, right in ((lhs, rhs), (lhs, plain[1]), (plain[0], rhs)):
        check_products(a, *plain, sddmm(a, left, right, backend=backend))
    assert np.array_equal(lhs, plain[0]) and np.array_equal(rhs, plain[1])


def test_explain_says_when_an_operand_is_copied_and_when_it_is_read_in_place():
    a, b = sparse(), dense(13, 12)
    lhs = dense(9, 12)
    both = plan_sddmm(a, lhs[:, ::-1], np.asfortranarray(b), backend="emulator").explain()
    assert "copied to contiguous memory on each call: lhs and rhs" in both
    assert "copied" not in plan_sddmm(a, lhs[:, 1:9], b[:, 4:], backend="emulator").explain()
    assert "copied" not in plan_spmm(a, b[:, 1:9], backend="emulator").explain()
    assert (
        "copied to contiguous memory on each call: b"
        in plan_spmm(a, b[:, ::-1], backend="emulator").explain()
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_read_only_operands_are_read(backend):
    a, b = sparse(), dense(13, 4)
    lhs = dense(9, 4)
    a.data.flags.writeable = b.flags.writeable = lhs.flags.writeable = False
    check(a, b, spmm(a, b, backend=backend))
    check_products(a, lhs, b, sddmm(a, lhs, b, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("columns", [slice(0, 8), slice(1, 8), slice(5, 12)])
def test_out_may_be_a_slice_and_its_neighbours_stay_untouched(columns, backend):
    a, b = sparse(), dense(13, 12)[:, columns]
    wide = np.full((9, 12), 77, np.float32)
    spmm(a, b, out=wide[:, columns], backend=backend)
    check(a, b, wide[:, columns])
    assert (np.delete(wide, np.arange(12)[columns], axis=1) == 77).all()


def unaligned(array):
    """A copy of `array` that starts one byte off."""
    memory = np.frombuffer(b"x" + array.tobytes(), np.uint8)[1:]
    return memory.view(array.dtype).reshape(array.shape)


@pytest.mark.parametrize("backend", BACKENDS)
def test_operands_that_start_between_two_addresses_of_a_float32_are_copied(backend):
    a, b = as_csr(sparse()), dense(13, 4)
    check(a, b, spmm(a, unaligned(b), backend=backend))
    check(a, b, spmm(a.with_values(unaligned(a.values)), b, backend=backend))
    lhs = dense(9, 4)
    check_products(a, lhs, b, sddmm(a, unaligned(lhs), unaligned(b), backend=backend))


def test_a_csr_multiplies_with_the_operator_of_matrices():
    a, b = sparse(), dense(13, 4)
    check(a, b, as_csr(a) @ b)
    check(a, b[:, 0], as_csr(a) @ b[:, 0])


def test_numpy_does_not_take_a_csr_for_an_object_array():
    with pytest.raises(TypeError, match="unsupported operand"):
        dense(4, 9) @ as_csr(sparse())


def test_other_values_share_the_structure():
    a = as_csr(sparse())
    doubled = a.with_values(a.values * 2)
    assert doubled.topology is a.topology
    assert np.allclose(doubled @ dense(13, 4), 2 * (a @ dense(13, 4)))


def test_two_threads_may_call_at_once():
    a, b = as_csr(sparse(30, 40)), dense(40, 8)
    results = {}

    def call(i):
        results[i] = spmm(a, b * i, backend="emulator")

    threads = [threading.Thread(target=call, args=(i,)) for i in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(1, 5):
        check(a, b * i, results[i])


@given(data=st.data(), m=st.integers(0, 7), k=st.integers(1, 9), n=st.integers(0, 6))
def test_any_small_matrix_agrees_with_scipy(data, m, k, n):
    entries = st.floats(-100, 100, width=32)
    a = sp.csr_array(data.draw(arrays(np.float32, (m, k), elements=st.just(np.float32(0)) | entries)))
    b = data.draw(arrays(np.float32, (k, n), elements=entries))
    check(a, b, spmm(a, b, backend="emulator"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_product_with_a_vector_may_go_to_a_vector_of_any_stride(backend):
    a, b, memory = sparse(), dense(13), np.full(18, 7, np.float32)
    for out in (memory[:9], memory[::2]):
        assert spmm(a, b, out=out, backend=backend) is out
        check(a, b, out)
    assert (memory[9::2] == 7).all()
