"""Operands on a CUDA device, of every library: computed with where they lie, and given back in kind."""

import numpy as np
import pytest
import scipy.sparse as sp
from numba import cuda
from on_device import LHS, LIBRARIES, PUT, RHS, SLICEABLE, csr_on_device, host, is_result
from operands import A, B, check, dense, sparse
from protocols import CudaArrayInterface, Dlpack, check_products

from sparsekern import Csr, SpmmVariant, Topology, VariantError
from sparsekern.foreign import as_csr, as_topology
from sparsekern.ops import plan_sddmm, plan_spmm, sddmm, spmm

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kind", PUT)
def test_device_arrays_give_arrays_of_their_kind_on_the_device(kind):
    put = PUT[kind]
    a = Csr(as_topology(A), put(A.data))
    for b in (B, B[:, 0], dense(13, 64)):
        c = spmm(a, put(b))
        assert is_result(kind, c)
        assert tuple(c.shape) == (9, *b.shape[1:])
        check(A, b, host(c))
    result = sddmm(as_topology(A), put(LHS), put(RHS))
    assert type(result) is Csr and is_result(kind, result.values)
    check_products(A, LHS, RHS, result)


@pytest.mark.parametrize("kind", PUT)
def test_a_plan_runs_on_device_arrays_of_every_kind(kind):
    put = PUT[kind]
    b, values, lhs, rhs = map(put, (B, A.data, LHS, RHS))
    plan = plan_spmm(Csr(as_topology(A), values), b)
    assert "on cuda:0" in plan.explain()
    check(A, B, host(plan(values, b)))
    check(A, 2 * B, host(plan(values, put(2 * B))))
    values = plan_sddmm(as_topology(A), lhs, rhs)(lhs, rhs)
    check_products(A, LHS, RHS, Csr(as_topology(A), values))


@pytest.mark.parametrize("kind", PUT)
def test_nothing_is_copied_between_host_and_device_once_the_structure_is_there(kind, monkeypatch):
    from sparsekern import foreign, formats, libraries
    from sparsekern.machine import driver

    t, (values, b, lhs, rhs) = as_topology(A), map(PUT[kind], (A.data, B, LHS, RHS))
    a, out = Csr(t, values), PUT[kind](np.zeros((9, 6), np.float32))

    def run():
        spmm(a, b, out=out)
        return spmm(a, b), sddmm(t, lhs, rhs)

    def forbidden(*arguments, **options):
        raise AssertionError("copied between host and device")

    run()
    with monkeypatch.context() as patch:
        for module in (foreign, formats, libraries):
            patch.setattr(module, "to_host", forbidden)
        patch.setattr(driver, "to_device", forbidden)
        array = type(cuda.device_array(1, np.float32))
        patch.setattr(array, "copy_to_host", forbidden)
        patch.setattr(array, "copy_to_device", forbidden)
        c, result = run()
    check(A, B, host(c))
    check_products(A, LHS, RHS, result)


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_sparse_matrix_on_a_device_gives_products_and_matrices_there(library, index):
    a, (b, lhs, rhs) = csr_on_device(library, index=index), map(PUT[library], (B, LHS, RHS))
    topology = as_topology(a)
    assert topology.columns.dtype == np.int32 and topology.offsets.dtype == np.dtype(index)
    c = spmm(a, b)
    assert is_result(library, c)
    check(A, B, host(c))
    result = sddmm(a, lhs, rhs)
    assert type(result) is type(a) and tuple(result.shape) == (9, 13)
    assert is_result(library, result.data if library == "cupy" else result.values())
    check_products(A, LHS, RHS, result)
    assert as_topology(result) is topology and as_topology(a) is topology
    assert plan_spmm(result, b) is plan_spmm(a, b)
    check(as_csr(result), B, host(spmm(result, b)))


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_structure_of_a_result_is_its_own_where_users_of_the_library_expect_that(library):
    a, lhs, rhs = csr_on_device(library), PUT[library](LHS), PUT[library](RHS)
    result = sddmm(a, lhs, rhs)
    expected = sddmm(A, LHS, RHS, backend="emulator").toarray()
    if library == "cupy":
        assert result.indices.data.ptr != a.indices.data.ptr
        assert np.allclose(result.get().toarray(), expected, atol=1e-5)
    else:
        assert result.col_indices().data_ptr() == a.col_indices().data_ptr()
        assert np.allclose(host(result.to_dense()), expected, atol=1e-5)


@pytest.mark.parametrize("kind", PUT)
def test_a_structure_may_be_made_of_device_arrays(kind):
    put = PUT[kind]
    a = Csr(Topology(put(A.indptr), put(A.indices), A.shape), put(A.data))
    assert type(a.topology.columns) is np.ndarray
    check(A, B, host(spmm(a, put(B))))
    assert abs(a.to_scipy() - A).max() == 0
    check(A, B, spmm(a.with_values(A.data), B, backend="emulator"))


LAYOUTS = {  # of 40 columns
    "left columns": lambda b: b[:, :32],
    "unaligned columns": lambda b: b[:, 1:33],
    "right columns": lambda b: b[:, 8:],
    "every other row": lambda b: b[::2],
    "a column": lambda b: b[:, 3],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", SLICEABLE)
def test_rows_with_a_larger_leading_dimension_are_read_in_place(kind, layout):
    wide = dense(64, 40)
    b, on_device = LAYOUTS[layout](wide), LAYOUTS[layout](PUT[kind](wide))
    matrix = sparse(20, len(b))
    a = Csr(as_topology(matrix), PUT[kind](matrix.data))
    text = plan_spmm(a, on_device).explain()
    assert "copied" not in text and f"ldb {80 if layout == 'every other row' else 40}," in text
    check(matrix, b, host(spmm(a, on_device)))
    if b.ndim == 2:
        lhs = PUT[kind](dense(20, b.shape[1]))
        topology = as_topology(matrix)
        assert "copied" not in plan_sddmm(topology, lhs, on_device).explain()
        check_products(matrix, dense(20, b.shape[1]), b, sddmm(topology, lhs, on_device))


@pytest.mark.parametrize("kind", [*SLICEABLE, "cuda array interface", "dlpack"])
def test_a_buffer_may_start_one_element_late(kind):
    def late(x):
        buffer = np.concatenate([[np.float32(np.nan)], x.ravel()])
        if kind in SLICEABLE:
            return PUT[kind](buffer)[1:].reshape(x.shape)
        wrap = Dlpack if kind == "dlpack" else CudaArrayInterface
        return wrap(PUT["cupy"](buffer)[1:].reshape(x.shape))

    matrix, b = sparse(20, 64), dense(64, 32)
    a = Csr(as_topology(matrix), late(matrix.data))
    check(matrix, b, host(spmm(a, late(b))))
    out = late(np.full((20, 32), np.nan, np.float32))
    assert spmm(a, PUT[kind](b), out=out) is out
    check(matrix, b, host(getattr(out, "_array", out)))
    lhs = dense(20, 32)
    check_products(matrix, lhs, b, sddmm(as_topology(matrix), late(lhs), late(b)))
    with pytest.raises(VariantError, match="vector=4 needs B to start on 16 bytes; it starts on 4"):
        spmm(a, late(b), SpmmVariant(vector=4))
    plan = plan_spmm(as_csr(matrix).with_values(PUT[kind](matrix.data)), PUT[kind](b), SpmmVariant(vector=4))
    with pytest.raises(ValueError, match="b starts on 4 bytes; this plan is for 16: plan again"):
        plan(PUT[kind](matrix.data), late(b))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_transposed_operand_is_copied_and_named_for_it(library):
    put = PUT[library]
    a = Csr(as_topology(A), put(A.data))
    b, lhs, rhs = (put(np.ascontiguousarray(x.T)).T for x in (B, LHS, RHS))
    assert "copied to contiguous memory on each call: b\n" in plan_spmm(a, b).explain() + "\n"
    check(A, B, host(spmm(a, b)))
    t = as_topology(A)
    assert "copied to contiguous memory on each call: lhs and rhs" in plan_sddmm(t, lhs, rhs).explain()
    check_products(A, LHS, RHS, sddmm(t, lhs, rhs))
    values = put(np.repeat(A.data, 2))[::2]
    assert "on each call: a's values" in plan_spmm(Csr(t, values), put(B)).explain()
    check(A, B, host(spmm(Csr(t, values), put(B))))


def test_a_transposed_array_that_nobody_here_can_copy_is_refused_with_a_way_out_that_works(cupy):
    a, b = Csr(as_topology(A), cuda.to_device(A.data)), cuda.to_device(np.asfortranarray(B))
    with pytest.raises(ValueError, match=r"b is not row-major.*pass cupy\.asarray\(b\)"):
        spmm(a, b)
    check(A, B, host(spmm(a, cupy.asarray(b))))


@pytest.mark.parametrize("columns", [slice(0, 6), slice(1, 7), slice(6, 12)])
@pytest.mark.parametrize("kind", SLICEABLE)
def test_out_may_be_a_slice_on_a_device_and_its_neighbours_stay_untouched(kind, columns):
    put = PUT[kind]
    wide, b = put(np.full((9, 12), 77, np.float32)), put(B)
    out = wide[:, columns]
    assert spmm(Csr(as_topology(A), put(A.data)), b, out=out) is out
    written = host(wide)
    check(A, B, written[:, columns])
    assert (np.delete(written, np.arange(12)[columns], axis=1) == 77).all()
    buffer = put(np.full(A.nnz + 2, 77, np.float32))
    result = sddmm(as_topology(A), put(LHS), put(RHS), out=buffer[1:-1])
    check_products(A, LHS, RHS, result)
    assert (host(buffer)[[0, -1]] == 77).all()


@pytest.mark.parametrize("wrap", [CudaArrayInterface, Dlpack])
def test_out_may_speak_a_protocol_only(wrap, cupy):
    c, values = cupy.zeros((9, 6), np.float32), cupy.zeros(A.nnz, np.float32)
    out = wrap(c)
    a = Csr(as_topology(A), cupy.asarray(A.data))
    assert spmm(a, cupy.asarray(B), out=out) is out
    check(A, B, host(c))
    sddmm(as_topology(A), cupy.asarray(LHS), cupy.asarray(RHS), out=wrap(values))
    check_products(A, LHS, RHS, Csr(as_topology(A), values))


@pytest.mark.parametrize("kind", SLICEABLE)
def test_an_out_that_overlaps_an_input_is_refused_and_an_interleaved_one_is_not(kind):
    memory, before = PUT[kind](dense(13, 12)), dense(13, 12)
    a, b = Csr(as_topology(A), PUT[kind](A.data)), memory[:, :6]
    with pytest.raises(ValueError, match="out overlaps b in memory"):
        spmm(a, b, out=memory[:9, 3:9])
    with pytest.raises(ValueError, match="out overlaps lhs in memory"):
        lhs = memory[:9]
        sddmm(as_topology(A), lhs, PUT[kind](dense(13, 12)), out=memory.reshape(156)[: A.nnz])
    assert np.array_equal(host(memory), before)
    spmm(a, b, out=memory[:9, 6:])
    check(A, before[:, :6], host(memory)[:9, 6:])


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_a_topology_does_not_own_of_a_result_is_zero(library):
    lhs, rhs = PUT[library](LHS[3:]), PUT[library](RHS)
    part = Topology(A.indptr[3:], A.indices, (6, 13))  # rows 3 and on, of all the nonzeros
    for _ in range(3):  # memory that an allocator hands out again
        PUT[library](np.full(A.nnz, 77, np.float32))
        result = sddmm(part, lhs, rhs)
        check_products(part, LHS[3:], RHS, result)
        assert not host(result.values)[: A.indptr[3]].any()


EMPTY = {
    "no nonzeros": (sp.csr_array((9, 13), dtype=np.float32), 6),
    "no rows": (sp.csr_array((0, 13), dtype=np.float32), 6),
    "no columns of a": (sp.csr_array((9, 0), dtype=np.float32), 6),
    "no columns of b": (A, 0),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", EMPTY)
def test_nothing_at_all_is_computed_on_a_device_as_well(name, library):
    a, n = EMPTY[name]
    (m, k), put = a.shape, PUT[library]
    b, lhs, rhs = dense(k, n), dense(m, n), dense(k, n)
    c = spmm(Csr(as_topology(a), put(a.data)), put(b))
    assert is_result(library, c)
    check(a, b, host(c))
    check_products(a, lhs, rhs, sddmm(as_topology(a), put(lhs), put(rhs)))


@pytest.mark.parametrize("kind", PUT)
def test_operands_on_host_and_device_are_refused_with_both_places(kind):
    put, t = PUT[kind], as_topology(A)
    on_device, here = Csr(t, put(A.data)), Csr(t, A.data)
    places = r"operands lie in two places, {} in {} and {} in {}; move one"
    host_memory, device = "host memory", "cuda:0"
    with pytest.raises(ValueError, match=places.format("a's values", host_memory, "b", device)):
        spmm(here, put(B))
    with pytest.raises(ValueError, match=places.format("a's values", device, "b", host_memory)):
        spmm(on_device, B)
    with pytest.raises(ValueError, match=places.format("a's values", device, "out", host_memory)):
        spmm(on_device, put(B), out=np.zeros((9, 6), np.float32))
    with pytest.raises(ValueError, match=places.format("lhs", host_memory, "rhs", device)):
        sddmm(t, LHS, put(RHS))
    with pytest.raises(ValueError, match=places.format("topology", host_memory, "lhs", device)):
        sddmm(A, put(LHS), put(RHS))
    plan = plan_spmm(on_device, put(B))
    with pytest.raises(ValueError, match=places.format("values", host_memory, "b", device)):
        plan(A.data, put(B))
    with pytest.raises(ValueError, match=places.format("values", device, "out", host_memory)):
        plan(put(A.data), put(B), out=np.zeros((9, 6), np.float32))
    check(A, B, plan(A.data, B))  # all in host memory: copied to the device and back


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_matrix_on_a_device_and_operands_in_host_memory_are_refused(library):
    a = csr_on_device(library)
    with pytest.raises(ValueError, match="a's values in cuda:0 and b in host memory"):
        spmm(a, B)
    with pytest.raises(ValueError, match="topology in cuda:0 and lhs in host memory"):
        sddmm(a, LHS, RHS)
    check_products(A, LHS, RHS, sddmm(as_topology(a), LHS, RHS))  # a structure is anywhere


@pytest.mark.parametrize("kind", PUT)
def test_the_emulator_does_not_read_a_device_and_says_how_to_copy(kind):
    a, b = Csr(as_topology(A), PUT[kind](A.data)), PUT[kind](B)
    message = r"backend is 'emulator'.*cuda:0.*\.get\(\) of CuPy, \.cpu\(\) of PyTorch"
    with pytest.raises(ValueError, match=message):
        spmm(a, b, backend="emulator")
    with pytest.raises(ValueError, match=message):
        sddmm(as_topology(A), PUT[kind](LHS), PUT[kind](RHS), backend="emulator")
    if kind in LIBRARIES:
        check(A, B, spmm(a.with_values(host(a.values)), host(b), backend="emulator"))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_wrong_operand_on_a_device_is_refused_with_the_way_out(library):
    put, a = PUT[library], csr_on_device(library)
    cast = {"cupy": r"b\.astype\(np\.float32\)", "torch": r"b\.float\(\)"}[library]
    with pytest.raises(TypeError, match=f"b has dtype float64.*pass {cast}"):
        spmm(a, put(B.astype(np.float64)))
    convert = {"cupy": r"cupyx\.scipy\.sparse\.csr_matrix\(a, ", "torch": r"a\.to_sparse_csr\(\)"}[library]
    with pytest.raises(TypeError, match=f"a is a .*CSR.*{convert}"):
        spmm(put(A.toarray()), put(B))
    convert = {"cupy": r"a\.tocsr\(\)", "torch": r"a\.to_sparse_csr\(\)"}[library]
    coo = a.tocoo() if library == "cupy" else a.to_sparse_coo()
    with pytest.raises(TypeError, match=f"a is a .*CSR.*{convert}"):
        spmm(coo, put(B))


def test_gradients_are_refused_on_a_device_too(torch):
    a, b = csr_on_device("torch"), torch.tensor(B, device="cuda", requires_grad=True)
    with pytest.raises(TypeError, match=r"b requires gradients.*pass b\.detach\(\).*torch\.no_grad\(\)"):
        spmm(a, b)
    check(A, B, host(spmm(a, b.detach())))
    with torch.no_grad():
        c = spmm(a, b)
    assert not c.requires_grad
    check(A, B, host(c))


def test_libraries_may_be_mixed_on_a_device(cupy, torch):
    t, (of_torch, of_cupy) = as_topology(A), (PUT["torch"], PUT["cupy"])
    c = spmm(Csr(t, of_cupy(A.data)), of_torch(B))
    assert is_result("torch", c)
    check(A, B, host(c))
    c = spmm(csr_on_device("torch"), of_cupy(B))
    assert is_result("cupy", c)
    check(A, B, host(c))
    out = torch.zeros(9, 6, device="cuda")
    assert spmm(csr_on_device("cupy"), cuda.to_device(B), out=out) is out
    check(A, B, host(out))
    result = sddmm(csr_on_device("cupy"), of_torch(LHS), cuda.to_device(RHS))
    assert type(result) is type(csr_on_device("cupy"))
    check_products(A, LHS, RHS, result)
    result = sddmm(csr_on_device("torch"), of_cupy(LHS), of_cupy(RHS))
    assert result.layout == torch.sparse_csr
    check_products(A, LHS, RHS, result)
