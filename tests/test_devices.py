"""Operands on CUDA devices: computed with where they lie, on the stream that their library works on."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from numba import cuda
from operands import A, B, check, dense, sparse
from protocols import CudaArrayInterface, Dlpack, check_products, csr_tensor

from sparsekern import Csr, SddmmVariant, SpmmVariant, Topology, VariantError
from sparsekern.foreign import as_csr, as_topology
from sparsekern.ops import plan_sddmm, plan_spmm, sddmm, spmm
from sparsekern.reference import error, tolerance

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:.*Grid size")]

LHS, RHS = dense(9, 5), dense(13, 5, seed=4)  # for the structure of A


def cupy_or_skip():
    return pytest.importorskip("cupy", reason="needs CuPy, which is not installed here")


def torch_or_skip():
    torch = pytest.importorskip("torch", reason="needs PyTorch, which is not installed here")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch knows no CUDA")
    return torch


@pytest.fixture
def cupy():
    return cupy_or_skip()


@pytest.fixture
def torch():
    return torch_or_skip()


PUT = {  # NumPy arrays on the device, of each kind
    "cupy": lambda x: cupy_or_skip().asarray(x),
    "torch": lambda x: torch_or_skip().tensor(x, device="cuda"),
    "numba": lambda x: cuda.to_device(np.ascontiguousarray(x)),
    "cuda array interface": lambda x: CudaArrayInterface(cupy_or_skip().asarray(x)),
    "dlpack": lambda x: Dlpack(cupy_or_skip().asarray(x)),
}
LIBRARIES = ["cupy", "torch"]
SLICEABLE = ["cupy", "torch", "numba"]


def host(x):
    """A copy of a device array in host memory, not made by sparsekern."""
    for way in ("get", "cpu", "copy_to_host"):
        if hasattr(x, way):
            return np.asarray(getattr(x, way)())
    return x


def is_result(kind, x):
    """Whether `x` is what operands of that kind give: a float32 array on the device."""
    if kind == "torch":
        torch = torch_or_skip()
        return isinstance(x, torch.Tensor) and x.dtype == torch.float32 and x.is_cuda
    array = cupy_or_skip().ndarray if kind == "cupy" else type(cuda.device_array(1, np.float32))
    return isinstance(x, array) and x.dtype == np.float32


def csr_on_device(library, a=A, index="int32"):
    """A SciPy matrix as a sparse one of CuPy or PyTorch."""
    if library == "torch":
        return csr_tensor(torch_or_skip(), a, index, "cuda")
    cupy_or_skip()
    from cupyx.scipy.sparse import csr_matrix

    result = csr_matrix(sp.csr_matrix(a))
    result.indptr, result.indices = result.indptr.astype(index), result.indices.astype(index)
    return result


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
    from sparsekern.machine import launch

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
        patch.setattr(launch, "_to_device", forbidden)
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


# Streams. What a stream has yet to do is played by a kernel that sleeps, and then writes an operand: whoever
# does not wait for it computes with what was there before.


@cuda.jit
def write_late(x, source, naps):
    for _ in range(naps):
        cuda.nanosleep(1_000_000)
    cuda.syncthreads()
    for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
        x[i] = source[i]


def settle():
    """Ends all that is under way, and frees what is garbage: to free it later would wait for the device."""
    gc.collect()
    cuda.current_context().deallocations.clear()
    cuda.synchronize()


class Late:
    """Writes the NumPy array `source` to the contiguous device array `x`, which until then is zero."""

    def __init__(self, x, source):
        settle()
        self.x, self.source = cuda.as_cuda_array(x).ravel(), cuda.to_device(source.ravel())
        self.event = cuda.event(timing=False)
        write_late[1, 64](self.x, cuda.to_device(np.zeros(source.size, np.float32)), 0)
        settle()

    def write(self, handle):
        """Queues that on the stream of that handle, a third of a second after what is queued there."""
        stream = cuda.external_stream(handle)
        write_late[1, 64, stream](self.x, self.source, 300)
        self.event.record(stream)

    @property
    def written(self):
        return self.event.query()


def side_stream(library):
    """A new stream of CuPy or PyTorch that does not wait for the default one: own, handle, current()."""
    cuda.synchronize()  # so that what the default one has written is there
    if library == "cupy":
        stream = cupy_or_skip().cuda.Stream(non_blocking=True)
        return SimpleNamespace(own=stream, handle=stream.ptr, current=lambda: stream)
    torch = torch_or_skip()
    stream = torch.cuda.Stream()
    return SimpleNamespace(own=stream, handle=stream.cuda_stream, current=lambda: torch.cuda.stream(stream))


def spmm_call(library):
    """(what to call, its last input, what belongs there, how to check the result)"""
    a, b = Csr(as_topology(A), PUT[library](A.data)), PUT[library](B)
    return lambda: spmm(a, b), b, B, lambda c: check(A, B, host(c))


def sddmm_call(library):
    t, lhs, rhs = as_topology(A), PUT[library](LHS), PUT[library](RHS)
    return lambda: sddmm(t, lhs, rhs), rhs, RHS, lambda result: check_products(A, LHS, RHS, result)


def sddmm_of_matrix_call(library):
    a, lhs, rhs = csr_on_device(library), PUT[library](LHS), PUT[library](RHS)
    return lambda: sddmm(a, lhs, rhs), rhs, RHS, lambda result: check_products(A, LHS, RHS, result)


@pytest.mark.parametrize("make_call", [spmm_call, sddmm_call, sddmm_of_matrix_call])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_kernel_is_queued_on_the_current_stream_of_its_library_and_nobody_waits(library, make_call):
    call, last, source, agrees = make_call(library)
    side = side_stream(library)
    with side.current():
        call()  # compiles, and takes from this stream's share of memory what the next call takes
    late = Late(last, source)
    with side.current():
        late.write(side.handle)
        result = call()
        waited = late.written
    cuda.external_stream(side.handle).synchronize()
    agrees(result)
    assert not waited


def given_stream(kind):
    """(a stream of that kind, its handle, what must stay alive for it)"""
    if kind == "numba":
        stream = cuda.stream()
        return stream, int(stream.handle), stream
    side = side_stream("torch" if kind == "torch" else "cupy")
    return (side.handle if kind == "handle" else side.own), side.handle, side


@pytest.mark.parametrize("kind", ["numba", "cupy", "torch", "handle"])
def test_a_plan_runs_on_the_stream_that_it_is_given(kind, cupy):
    stream, handle, _alive = given_stream(kind)
    values, b, out = cupy.asarray(A.data), cupy.asarray(B), cupy.full((9, 6), np.nan, np.float32)
    plan = plan_spmm(Csr(as_topology(A), values), b)
    plan(values, b, out=out, stream=stream)
    late = Late(b, B)
    late.write(handle)
    assert plan(values, b, out=out, stream=stream) is out
    waited = late.written
    cuda.external_stream(handle).synchronize()
    check(A, B, host(out))
    assert not waited
    lhs, rhs, products = cupy.asarray(LHS), cupy.asarray(RHS), cupy.full(A.nnz, np.nan, np.float32)
    plan = plan_sddmm(as_topology(A), lhs, rhs)
    late = Late(rhs, RHS)
    late.write(handle)
    plan(lhs, rhs, out=products, stream=stream)
    cuda.external_stream(handle).synchronize()
    check_products(A, LHS, RHS, Csr(as_topology(A), products))


def test_what_is_no_stream_is_refused(cupy):
    values, b = cupy.asarray(A.data), cupy.asarray(B)
    plan = plan_spmm(Csr(as_topology(A), values), b)
    with pytest.raises(TypeError, match="stream is 'side'; it must be a stream of Numba, CuPy or PyTorch"):
        plan(values, b, stream="side")


def test_a_new_output_on_a_stream_that_is_given_is_not_written_to_by_what_went_before(cupy):
    part = Topology(A.indptr[3:], A.indices, (6, 13))  # so that a new output begins as zeros
    lhs, rhs, scratch = cupy.asarray(LHS[3:]), cupy.asarray(RHS), cupy.zeros(4, np.float32)
    plan = plan_sddmm(part, lhs, rhs)
    mine, other = side_stream("cupy"), side_stream("cupy")
    with other.current():
        plan(lhs, rhs, stream=mine.own)
    late = Late(scratch, np.ones(4, np.float32))
    with other.current():
        late.write(other.handle)  # behind which the zeros are queued
        values = plan(lhs, rhs, stream=mine.own)
    cuda.synchronize()
    check_products(part, LHS[3:], RHS, Csr(part, values))


@pytest.mark.parametrize("wrap", [CudaArrayInterface, Dlpack])
def test_an_array_that_speaks_a_protocol_is_read_after_what_its_owner_has_queued(wrap, cupy):
    a, b = Csr(as_topology(A), cuda.to_device(A.data)), cupy.asarray(B)
    spmm(a, wrap(b))
    side, late = side_stream("cupy"), Late(b, B)
    with side.current():
        late.write(side.handle)
        c = spmm(a, wrap(b))
    check(A, B, c.copy_to_host())


def test_two_libraries_on_two_streams_are_waited_for_and_wait(cupy, torch):
    values, b = PUT["torch"](A.data), cupy.asarray(B)
    a = Csr(as_topology(A), values)
    of_cupy, of_torch = side_stream("cupy"), side_stream("torch")
    with of_cupy.current(), of_torch.current():
        spmm(a, b)
    late = Late(values, A.data)
    with of_cupy.current(), of_torch.current():
        late.write(of_torch.handle)
        c = spmm(a, b)  # on the stream of CuPy, after what that of PyTorch has to do
        waited = late.written
        values.zero_()  # after the kernel, which must not see it
    of_cupy.own.synchronize()
    check(A, B, host(c))
    assert not waited


@pytest.mark.parametrize("library", LIBRARIES)
def test_two_threads_may_call_at_once_on_streams_of_their_own(library):
    matrix, b = sparse(200, 300), dense(300, 64)
    a = Csr(Topology(matrix.indptr, matrix.indices, matrix.shape), PUT[library](matrix.data))
    settle()

    def work(factor):
        side = side_stream(library)
        with side.current():
            mine = PUT[library](factor * b)
            results = [(spmm(a, mine), sddmm(a, spmm(a, mine), mine)) for _ in range(20)]
            side.own.synchronize()
        return [(host(c), host(products.values)) for c, products in results]

    with ThreadPoolExecutor(2) as pool:
        for factor, results in zip((1, 2), pool.map(work, (1, 2)), strict=True):
            for c, products in results:
                check(matrix, factor * b, c)
                assert np.array_equal(products, results[0][1])


def test_calls_can_be_captured_in_a_graph_and_replayed_with_other_values(torch):
    t, (values, b, lhs, rhs) = as_topology(A), map(PUT["torch"], (A.data, B, LHS, RHS))
    a, side = Csr(t, values), side_stream("torch")

    def call():
        return spmm(a, b), sddmm(t, lhs, rhs).values

    side.own.wait_stream(torch.cuda.current_stream())
    with side.current():
        call()
    torch.cuda.current_stream().wait_stream(side.own)
    settle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c, products = call()
    for factor in (1, 2, 3):
        values.copy_(torch.tensor(factor * A.data))
        b.copy_(torch.tensor(B + factor))
        rhs.copy_(torch.tensor(factor * RHS))
        c.fill_(np.nan)
        products.fill_(np.nan)
        graph.replay()
        torch.cuda.synchronize()
        check(factor * A, B + np.float32(factor), host(c))
        check_products(A, LHS, factor * RHS, Csr(t, products))


# Sizes.

MOST_Y = 65_535  # blocks of a grid in y and z; in x there may be more


def one_or_none(m, k):
    """A structure of m rows of at most one nonzero, half of them of none."""
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.random(m) < 0.5)]).astype(np.int32)
    return Topology(offsets, rng.integers(0, k, offsets[-1]).astype(np.int32), (m, k))


@pytest.mark.parametrize(
    "variant, m",
    [
        (SpmmVariant(), 70_000),
        (SpmmVariant(rows_per_block=4, subwarp=8, stage=True, bundle=True, bin=True), 280_000),
        (None, 70_000 * 32),
    ],
    ids=["plain", "staged", "chosen"],
)
def test_a_grid_of_spmm_may_have_more_blocks_in_x_than_fit_in_y(variant, m, cupy):
    t, b = one_or_none(m, 50), dense(50, 8)
    values = dense(t.nnz, seed=6)
    a, b_there = Csr(t, cupy.asarray(values)), cupy.asarray(b)
    assert plan_spmm(a, b_there, variant).grid[0] > MOST_Y
    out = cupy.full((m, 8), np.nan, np.float32)
    spmm(a, b_there, variant, out=out)
    check(Csr(t, values), b, host(out))


@pytest.mark.parametrize(
    "variant, m",
    [
        (SddmmVariant(), 70_000),
        (SddmmVariant(work="bounded", subwarp=8, rows_per_block=4, tile_nnz=8), 280_000),
        (SddmmVariant(work="strips", tile_nnz=8), 140_000),
        (None, 1_300_000),
    ],
    ids=["plain", "bounded", "listed", "chosen"],
)
def test_a_grid_of_sddmm_may_have_more_blocks_in_x_than_fit_in_y(variant, m, cupy):
    t, lhs, rhs = one_or_none(m, 50), dense(m, 8), dense(50, 8, seed=4)
    there = cupy.asarray(lhs), cupy.asarray(rhs)
    assert plan_sddmm(t, *there, variant).grid[0] > MOST_Y
    out = cupy.full(t.nnz, np.nan, np.float32)
    sddmm(t, *there, variant, out=out)
    terms = lhs.astype(np.float64)[np.repeat(np.arange(m), t.row_lengths)] * rhs[t.columns]
    assert error(host(out), terms.sum(axis=1), abs(terms).sum(axis=1)) <= tolerance(8)


K, N, TOUCHED = 70_000, 32_768, 300  # K * N is past 2**31: 9.2 GB


@pytest.fixture(scope="module")
def tall():
    """(a (K, N) CuPy array of zeros but for TOUCHED rows, which rows those are, what they hold)"""
    cupy = cupy_or_skip()
    cupy.get_default_memory_pool().free_all_blocks()
    if cupy.cuda.runtime.memGetInfo()[0] < 12 * 2**30:
        pytest.skip("needs 12 GiB of free device memory")
    rng = np.random.default_rng(0)
    rows = np.append(rng.choice(K - 1, TOUCHED - 1, replace=False), K - 1)
    held = rng.random((TOUCHED, N), np.float32)  # positive, so that sums are as large as their terms
    array = cupy.zeros((K, N), np.float32)
    for row, values in zip(rows.tolist(), held, strict=True):
        array[row] = cupy.asarray(values)
    cuda.synchronize()
    yield array, rows, held
    del array
    cupy.get_default_memory_pool().free_all_blocks()


def touching(rows):
    """(a (50, K) structure of nonzeros in those columns, the index in `rows` of each nonzero)"""
    order = np.random.default_rng(1).permutation(TOUCHED)
    offsets = np.arange(0, TOUCHED + 1, TOUCHED // 50, dtype=np.int32)
    return Topology(offsets, rows[order].astype(np.int32), (50, K)), order


STAGED = SpmmVariant(
    vector=4, rows_per_block=8, subwarp=16, stage=True, sparse_vector=4, roma=True, unroll_residue=True
)


@pytest.mark.parametrize("variant", [None, SpmmVariant(), STAGED], ids=["chosen", "plain", "staged"])
def test_b_may_have_more_than_2_to_the_31_elements(variant, tall, cupy):
    b, rows, held = tall
    t, order = touching(rows)
    values = np.random.default_rng(2).random(TOUCHED, np.float32)
    a = Csr(t, cupy.asarray(values))
    assert not plan_spmm(a, b, variant).variant.prescale
    c = host(spmm(a, b, variant))
    weights = sp.csr_array((values.astype(np.float64), order, t.offsets), shape=(50, TOUCHED))
    product = weights @ held.astype(np.float64)
    assert error(c, product, product) <= tolerance(TOUCHED // 50)
    with pytest.raises(VariantError, match=r"prescale needs \(k - 1\) \* ldb below 2\*\*31.*69999 \* 32768"):
        spmm(a, b, SpmmVariant(stage=True, prescale=True))


LISTED = SddmmVariant(
    vector=4, subwarp=8, tile_nnz=8, rows_per_block=4, work="strips", reduction="halving", split=4, bin=True
)


@pytest.mark.parametrize(
    "variant", [None, SddmmVariant(work="bounded"), LISTED], ids=["chosen", "plain", "listed"]
)
def test_rhs_may_have_more_than_2_to_the_31_elements(variant, tall, cupy):
    rhs, rows, held = tall
    t, order = touching(rows)
    lhs = np.random.default_rng(2).random((50, N), np.float32)
    result = sddmm(t, cupy.asarray(lhs), rhs, variant)
    row_of = np.repeat(np.arange(50), t.row_lengths)
    products = np.einsum("ij,ij->i", lhs[row_of].astype(np.float64), held[order].astype(np.float64))
    assert error(host(result.values), products, products) <= tolerance(N)


# Devices.


@pytest.fixture
def two_devices():
    if len(cuda.gpus) < 2:
        pytest.skip("needs two GPUs")


def on_device(library, number):
    """A context in which new arrays of that library lie on that device, if they do not say where."""
    if library == "cupy":
        return cupy_or_skip().cuda.Device(number)
    return torch_or_skip().cuda.device(number)


def device_of(x):
    return x.device.index if hasattr(x.device, "index") else x.device.id


@pytest.mark.parametrize("library", LIBRARIES)
def test_operands_on_another_device_are_computed_with_there(library, two_devices):
    with on_device(library, 1):
        a, (b, lhs, rhs) = csr_on_device(library), map(PUT[library], (B, LHS, RHS))
        transposed = PUT[library](np.ascontiguousarray(B.T)).T
    assert device_of(b) == 1
    for operand in (b, transposed):
        c = spmm(a, operand)
        assert device_of(c) == 1
        check(A, B, host(c))
    result = sddmm(a, lhs, rhs)
    if library == "torch":
        parts = result.values(), result.col_indices(), result.crow_indices()
    else:
        parts = result.data, result.indices, result.indptr
    assert [device_of(part) for part in parts] == [1, 1, 1]
    check_products(A, LHS, RHS, result)
    part = Topology(A.indptr[3:], A.indices, (6, 13))
    values = sddmm(part, lhs[3:], rhs).values
    assert device_of(values) == 1
    check_products(part, LHS[3:], RHS, Csr(part, values))
    assert "on cuda:1" in plan_spmm(a, b).explain()
    assert device_of(PUT[library](B)) == 0 and cuda.get_current_device().id == 0
    check(A, B, host(spmm(Csr(as_topology(a), PUT[library](A.data)), PUT[library](B))))  # the same structure


@pytest.mark.parametrize("wrap", [CudaArrayInterface, Dlpack])
def test_what_speaks_a_protocol_on_another_device_is_computed_with_there(wrap, two_devices, cupy):
    with cupy.cuda.Device(1):
        values, b = cupy.asarray(A.data), cupy.asarray(B)
    c = spmm(Csr(as_topology(A), wrap(values)), wrap(b))
    with cupy.cuda.Device(1):  # or CuPy would copy
        result = cupy.asarray(c)
        assert result.device.id == 1
        check(A, B, host(result))


@pytest.mark.parametrize("library", LIBRARIES)
def test_operands_on_two_devices_are_refused(library, two_devices):
    with on_device(library, 1):
        b, rhs = PUT[library](B), PUT[library](RHS)
    with pytest.raises(ValueError, match="a's values in cuda:0 and b in cuda:1; move one"):
        spmm(csr_on_device(library), b)
    with pytest.raises(ValueError, match="topology in cuda:0 and rhs in cuda:1; move one"):
        sddmm(csr_on_device(library), PUT[library](LHS), rhs)
    with pytest.raises(ValueError, match="lhs in cuda:0 and rhs in cuda:1; move one"):
        sddmm(as_topology(A), PUT[library](LHS), rhs)


@pytest.mark.parametrize("foreign", [False, True], ids=["topology", "matrix of CuPy"])
def test_copies_of_a_structure_on_a_device_go_with_it(foreign, cupy):
    b, lhs, rhs = cupy.asarray(B), cupy.asarray(LHS), cupy.asarray(RHS)
    if foreign:
        a = topology = csr_on_device("cupy")
    else:
        topology = Topology(A.indptr.copy(), A.indices.copy(), A.shape)
        a = Csr(topology, cupy.asarray(A.data))
    spmm(a, b)
    sddmm(topology, lhs, rhs)
    plans = plan_spmm(a, b), plan_sddmm(topology, lhs, rhs)
    copies = [weakref.ref(array) for plan in plans for array in plan.on_device]
    assert len(copies) == 3 + 4
    assert all(copy() is not None for copy in copies)
    del a, topology, plans
    gc.collect()
    assert [copy() for copy in copies] == [None] * len(copies)


def test_a_device_copy_of_a_structure_is_shared_by_plans(cupy):
    t = as_topology(sparse())
    one, other = (plan_spmm(Csr(t, cupy.asarray(A.data)), cupy.asarray(dense(13, n))) for n in (6, 7))
    assert one is not other
    assert one.on_device[-1] is other.on_device[-1] and one.on_device[-2] is other.on_device[-2]
