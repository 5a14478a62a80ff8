"""Kernels are queued on the stream that the operands' library works on, and nobody waits who need not.

What a stream has yet to do is played by a kernel that sleeps, and then writes an operand: whoever does not
wait for it computes with what was there before.
"""

import gc
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda
from on_device import LHS, LIBRARIES, PUT, RHS, csr_on_device, cupy_or_skip, host, torch_or_skip
from operands import A, B, check, dense, sparse
from protocols import CudaArrayInterface, Dlpack, check_products

from sparsekern import Csr, Topology
from sparsekern.foreign import as_topology
from sparsekern.ops import plan_sddmm, plan_spmm, sddmm, spmm

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:.*Grid size")]


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
