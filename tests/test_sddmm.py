"""SDDMM at every kind of structure: right there, nowhere else, and in a matrix of the kind that came in."""

import numpy as np
import pytest
import scipy.sparse as sp
from operands import BACKENDS, A, check, dense, sparse
from protocols import Dlpack, check_products

from sparsekern import Csr, SddmmVariant, Topology, as_csr, as_topology, invalidate, sddmm, spmm
from sparsekern.zoo import ZOO

DEPTHS = [0, 1, 2, 3, 4, 7, 33]  # none, parts of a vector, a vector, and none a multiple of a vector
WORK = ["grid", "bounded", "strips"]


def factors(topology, k):
    """(lhs, rhs) for a structure."""
    m, n = topology.shape
    return dense(m, k), dense(n, k, seed=4)


LHS, RHS = factors(A, 5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("k", DEPTHS)
@pytest.mark.parametrize("name", ZOO)
def test_a_specimen_of_the_zoo_agrees_with_float64(name, k, backend):
    a = ZOO[name].make()
    lhs, rhs = factors(a, k)
    result = sddmm(a, lhs, rhs, backend=backend)
    assert result.topology is a.topology
    check_products(a, lhs, rhs, result)


def wide(a):
    a = a.copy()
    a.indptr, a.indices = a.indptr.astype(np.int64), a.indices.astype(np.int64)
    return a


SCIPY = {
    "csr_array": lambda a: a,
    "csr_matrix": sp.csr_matrix,
    "csr_array with 64-bit indices": wide,
    "csr_matrix with 64-bit indices": lambda a: wide(sp.csr_matrix(a)),
    "mask": lambda a: a.astype(bool),
    "matrix of float64": lambda a: sp.csr_matrix(a.astype(np.float64)),
    "matrix of whole numbers": lambda a: a.astype(np.int8),
}
STRUCTURES = {"Topology": as_topology, "Csr": as_csr, **SCIPY}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", SCIPY)
def test_a_matrix_of_scipy_gives_one_of_its_type_with_a_copy_of_its_structure(kind, backend):
    topology = SCIPY[kind](sparse())
    result = sddmm(topology, LHS, RHS, backend=backend)
    assert (type(result), result.shape, result.dtype) == (type(topology), topology.shape, np.float32)
    for part in ("indptr", "indices"):
        assert np.array_equal(getattr(result, part), getattr(topology, part))
        assert not np.shares_memory(getattr(result, part), getattr(topology, part))
    check_products(A, LHS, RHS, result)


@pytest.mark.parametrize("make", [as_topology, as_csr])
def test_a_structure_of_ours_gives_a_csr_that_shares_it(make):
    topology = make(sparse())
    result = sddmm(topology, LHS, RHS, backend="emulator")
    assert type(result) is Csr and result.topology is as_topology(topology)
    check_products(A, LHS, RHS, result)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", STRUCTURES)
def test_a_result_feeds_spmm_and_sddmm_without_being_wrapped_anew(kind, backend):
    topology, b = STRUCTURES[kind](sparse()), dense(13, 4)
    result = sddmm(topology, LHS, RHS, backend=backend)
    assert as_topology(result) is as_topology(topology)
    check(result, b, spmm(result, b, backend=backend))
    again = sddmm(result, LHS + 1, RHS, backend=backend)
    assert as_topology(again) is as_topology(topology)
    check_products(A, LHS + 1, RHS, again)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", STRUCTURES)
def test_out_holds_the_values_of_the_result_and_its_neighbours_stay_untouched(kind, backend):
    topology, memory = STRUCTURES[kind](sparse()), np.full(A.nnz + 8, 77, np.float32)
    out = memory[3 : 3 + A.nnz]  # on 4 bytes of 16, and no more is needed
    result = sddmm(topology, LHS, RHS, out=out, backend=backend)
    assert np.shares_memory(as_csr(result).values, out)
    check_products(A, LHS, RHS, result)
    assert (memory[:3] == 77).all() and (memory[3 + A.nnz :] == 77).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("work", WORK)
def test_positions_outside_a_window_are_0_in_a_new_result_and_untouched_in_out(work, backend):
    topology = ZOO["window_of_rows"].make().topology
    lhs, rhs = factors(topology, 9)
    variant = SddmmVariant(tile_nnz=8, rows_per_block=4, work=work)
    result = sddmm(topology, lhs, rhs, variant, backend=backend)
    check_products(topology, lhs, rhs, result)
    out = np.full(topology.stored, 77, np.float32)
    assert sddmm(topology, lhs, rhs, variant, out=out, backend=backend).values is out
    first, last = topology.offsets[[0, -1]]
    assert np.array_equal(out[first:last], result.values[first:last])
    assert (out[:first] == 77).all() and (out[last:] == 77).all()
    assert not result.values[:first].any() and not result.values[last:].any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("work", WORK)
def test_a_row_may_repeat_columns_and_be_longer_than_there_are_any(work, backend):
    topology = Topology(np.array([0, 3, 20], np.int32), np.arange(20, dtype=np.int32) % 2, (2, 2))
    lhs, rhs = factors(topology, 9)
    for tile in (1, 8):
        variant = SddmmVariant(tile_nnz=tile, rows_per_block=4, work=work)
        check_products(topology, lhs, rhs, sddmm(topology, lhs, rhs, variant, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_explicit_zero_is_a_position_like_others(backend):
    a = ZOO["explicit_zeros"].make().to_scipy()
    lhs, rhs = factors(a, 6)
    result = sddmm(a, lhs, rhs, backend=backend)
    assert result.nnz == a.nnz and result.data.all()
    check_products(a, lhs, rhs, result)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_infinity_and_nan_in_a_row_reach_exactly_its_positions(wrong, backend):
    a = ZOO["lengths_0_to_40"].make()
    rows, columns = a.to_scipy().nonzero()
    for spoilt, positions in (("lhs", rows == 17), ("rhs", columns == 5)):
        lhs, rhs = (x.copy() for x in factors(a, 33))
        {"lhs": lhs, "rhs": rhs}[spoilt][17 if spoilt == "lhs" else 5, 20] = wrong
        result = sddmm(a, lhs, rhs, backend=backend)
        assert np.array_equal(~np.isfinite(result.values), positions)
        check_products(a, lhs, rhs, result)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (4, 5)])
def test_a_structure_without_nonzeros_gives_one_without(shape, backend):
    topology = sp.csr_array(shape, dtype=np.float32)
    result = sddmm(topology, *factors(topology, 3), backend=backend)
    assert (type(result), result.shape, result.nnz) == (sp.csr_array, shape, 0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("work", WORK)
def test_offsets_may_be_64_bits_wide(work, backend):
    topology = ZOO["int64_offsets"].make().topology
    assert topology.strips(8, False, False, False, 4)[1].dtype == np.int64
    lhs, rhs = factors(topology, 9)
    variant = SddmmVariant(tile_nnz=8, rows_per_block=4, work=work)
    check_products(topology, lhs, rhs, sddmm(topology, lhs, rhs, variant, backend=backend))


@pytest.mark.gpu
@pytest.mark.parametrize("work", WORK)
def test_there_may_be_more_rows_than_a_grid_is_tall(work):
    offsets = np.arange(70_001, dtype=np.int32)
    topology = Topology(offsets, offsets[:-1] % 3, (70_000, 3))
    lhs, rhs = factors(topology, 5)
    result = sddmm(topology, lhs, rhs, SddmmVariant(work=work), backend="cuda")
    check_products(topology, lhs, rhs, result)


def test_a_scipy_matrix_that_holds_more_than_its_rows_own_gives_a_pruned_one():
    """SciPy's constructor cuts what lies past the last row: the result has a structure of its own."""
    whole = ZOO["misaligned_rows"].make().to_scipy()
    topology = sp.csr_array(whole.shape, dtype=np.float32)
    topology.indptr = np.minimum(whole.indptr, whole.nnz - 2).astype(np.int32)
    topology.indices, topology.data = whole.indices, whole.data
    lhs, rhs = factors(topology, 4)
    result = sddmm(topology, lhs, rhs, backend="emulator")
    assert len(result.data) == whole.nnz - 2
    spmm(result, rhs, backend="emulator")
    check_products(sp.csr_array(result), lhs, rhs, result)


def test_an_edit_of_the_structure_that_came_in_does_not_reach_earlier_results():
    a = sp.csr_array((np.ones(3, np.float32), np.array([2, 0, 1]), np.array([0, 2, 3])), shape=(2, 3))
    result = sddmm(a, *factors(a, 4), backend="emulator")
    expected = result.toarray()
    a.sort_indices()
    invalidate(a)
    assert np.array_equal(spmm(result, np.eye(3, dtype=np.float32), backend="emulator"), expected)


def test_the_result_of_a_scipy_matrix_holds_out_itself():
    memory = np.zeros(3 * A.nnz, np.float32)
    result = sddmm(A, LHS, RHS, out=memory[: A.nnz], backend="emulator")
    assert np.shares_memory(result.data, memory)
    check_products(A, LHS, RHS, result)
    result = sddmm(A, LHS, RHS, out=Dlpack(memory[: A.nnz]), backend="emulator")
    assert np.shares_memory(result.data, memory)
