"""Every kind of sparse matrix: right, or refused in words."""

import numpy as np
import pytest
import scipy.sparse as sp
from operands import BACKENDS, B, check, dense, refused, sparse

import sparsekern as sk
from sparsekern import Csr, Topology, spmm
from sparsekern.foreign import as_csr
from sparsekern.zoo import ZOO

COLUMNS = [0, 1, 2, 3, 7, 33]  # none, a vector, and none a multiple of a vector but 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", COLUMNS)
@pytest.mark.parametrize("name", ZOO)
def test_a_specimen_of_the_zoo_agrees_with_scipy(name, n, backend):
    a = ZOO[name].make()
    b = dense(a.shape[1], n)
    out = np.full((a.shape[0], n), np.nan, np.float32)
    assert spmm(a, b, out=out, backend=backend) is out
    check(a, b, out)


@pytest.mark.parametrize("backend", BACKENDS)
def test_infinity_and_nan_in_b_reach_the_rows_that_touch_them_and_no_others(backend):
    a = ZOO["explicit_zeros"].make()
    b = dense(8, 5)
    b[3], b[0, 2], b[6] = np.inf, np.nan, -np.inf
    c = spmm(a, b, backend=backend)
    check(a, b, c)
    assert np.isfinite(c[1:4]).all() and np.isnan(c[0, 2])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix])
def test_scipy_s_csr_is_taken_with_32_and_64_bit_indices(make, backend):
    a = make(sparse())
    b = dense(13, 6)
    check(a, b, spmm(a, b, backend=backend))
    a.indptr, a.indices = a.indptr.astype(np.int64), a.indices.astype(np.int64)
    sk.invalidate(a)
    check(a, b, spmm(a, b, backend=backend))


def test_a_scipy_matrix_is_wrapped_once_and_its_values_are_always_the_present_ones():
    a, b = sparse(), dense(13, 4)
    first = as_csr(a).topology
    check(a, b, spmm(a, b, backend="emulator"))
    a.data *= 2
    assert as_csr(a).topology is first
    check(a, b, spmm(a, b, backend="emulator"))
    a.data = a.data + 1
    assert as_csr(a).topology is first
    check(a, b, spmm(a, b, backend="emulator"))
    sk.invalidate(a)
    assert as_csr(a).topology is not first


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_another_structure_in_the_same_matrix_is_noticed_even_at_the_same_address(index):
    a = sparse()
    a.indptr, a.indices = a.indptr.astype(index), a.indices.astype(index)
    for seed in range(20):  # an allocator likes to hand out again what has just been freed
        a.indices = None
        a.indices = np.random.default_rng(seed).integers(0, 13, a.nnz).astype(index)
        assert np.array_equal(as_csr(a).topology.columns, a.indices)


def structure(offsets=(0, 1, 3), columns=(2, 0, 1), shape=(2, 3), offset=np.int32, index=np.int32):
    return Topology(np.array(offsets, offset), np.array(columns, index), shape)


@pytest.mark.parametrize(
    "options, error_type, match",
    [
        (dict(columns=(2, 0, 3)), ValueError, r"columns\[2\] is 3; it must be in \[0, 3\)"),
        (dict(columns=(2, -1, 1)), ValueError, r"columns\[1\] is -1"),
        (dict(offsets=(0, 3, 1)), ValueError, "offsets decreases from 3 to 1 at row 1"),
        (
            dict(offsets=(0, 2**31 - 1, -5, 3), shape=(3, 3)),
            ValueError,
            "offsets decreases from 2147483647 to -5",
        ),
        (dict(offsets=(0, 1, 4)), ValueError, r"offsets runs from 0 to 4; it must stay within \[0, 3\]"),
        (dict(offsets=(-1, 1, 3)), ValueError, "offsets runs from -1"),
        (dict(offsets=(0, 3)), ValueError, "offsets has 2 entries; 2 rows need 3"),
        (dict(shape=(2, -3)), ValueError, "neither size may be negative"),
        (dict(shape=(2,)), ValueError, "two whole numbers"),
        (dict(shape=(2.7, 3)), ValueError, "two whole numbers"),
        (dict(shape=(2, 2**31)), ValueError, r"below 2\*\*31"),
        (dict(index=np.int64), TypeError, r"columns has dtype int64.*columns\.astype\(np\.int32\)"),
        (dict(offset=np.uint32), TypeError, "offsets has dtype uint32; it must be int32 or int64"),
    ],
)
def test_a_broken_structure_is_refused(options, error_type, match):
    with pytest.raises(error_type, match=match):
        structure(**options)


def test_a_broken_scipy_matrix_is_refused():
    a = sparse()
    a.indices = a.indices.copy()
    a.indices[3] = 13
    refused(ValueError, r"columns\[3\] is 13; it must be in \[0, 13\)", a, B)
    a.indices = a.indices.astype(np.int64)
    a.indices[3] = 2**32  # would be a legal index once cut to 32 bits
    refused(ValueError, r"columns\[3\] is 4294967296", a, B)


def test_values_that_do_not_fit_the_structure_are_refused():
    topology = structure()
    with pytest.raises(ValueError, match=r"values has shape \(2,\); this structure needs \(3,\)"):
        Csr(topology, np.zeros(2, np.float32))
    with pytest.raises(TypeError, match="values has dtype float64"):
        Csr(topology, np.zeros(3))
    with pytest.raises(TypeError, match="values is a list"):
        Csr(topology, [0.0])
    with pytest.raises(ValueError, match="read-only"):
        topology.columns[0] = 1
