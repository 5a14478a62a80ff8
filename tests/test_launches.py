"""Planned launches on a GPU: of any kernel, from any thread, in a graph, and refused by the driver."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from numba import cuda
from on_device import LHS, RHS, csr_on_device, host
from operands import A, B, check, dense, sparse
from protocols import check_products

from sparsekern import Csr, SddmmVariant, SpmmVariant, Topology, ops
from sparsekern.foreign import as_csr, as_topology
from sparsekern.ops import plan_sddmm, plan_spmm, sddmm, spmm

pytestmark = pytest.mark.gpu


def on_gpu(x):
    return cuda.to_device(np.ascontiguousarray(x))


def test_a_launch_takes_arrays_or_their_addresses():
    plan, out = plan_spmm(A, B, backend="cuda"), cuda.device_array((9, 6), np.float32)
    arrays = on_gpu(A.data), on_gpu(B), out
    for operands in (arrays, [x.__cuda_array_interface__["data"][0] for x in arrays]):
        out.copy_to_device(np.full((9, 6), np.nan, np.float32))
        plan.launch(*operands)
        check(A, B, out.copy_to_host())
    with pytest.raises(TypeError, match=r"make_spmm takes 3 operands; it got 2"):
        plan.launch(*arrays[:2])


def test_a_kernel_of_one_s_own_is_launched_with_the_arguments_that_it_names():
    def mine(variant, types):
        def kernel(work, offsets, columns, values, B, ldb, C, ldc, m, n, s, t, u):
            row, step = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y, cuda.blockDim.x
            if row < m:
                for j in range(cuda.threadIdx.x, n, step):
                    total = np.float32(0)
                    for p in range(offsets[row], offsets[row + 1]):
                        total += values[p] * B[columns[p] * ldb + j]
                    C[row * ldc + j] = total

        return kernel

    check(A, B, spmm(A, B, SpmmVariant(), make=mine, backend="cuda"))


@pytest.mark.parametrize("offset", ["int32", "int64"])
def test_a_work_list_and_offsets_of_either_width_reach_the_kernel(offset):
    t = Topology(A.indptr.astype(offset), A.indices, A.shape)
    variant = SpmmVariant(rows_per_block=4, bundle=True)
    check(A, B, spmm(Csr(t, A.data), B, variant, backend="cuda"))
    strips = SddmmVariant(rows_per_block=4, tile_nnz=8, work="strips")
    check_products(A, LHS, RHS, sddmm(t, LHS, RHS, strips, backend="cuda"))


def test_threads_may_share_a_plan_on_operands_of_their_own():
    matrix = sparse(200, 300)
    plan = plan_spmm(matrix, dense(300, 64), backend="cuda")
    values = on_gpu(matrix.data)

    def work(seed):
        stream, b = cuda.stream(), dense(300, 64, seed=seed)
        mine, outs = on_gpu(b), [cuda.device_array((200, 64), np.float32) for _ in range(50)]
        cuda.synchronize()
        for out in outs:
            plan.launch(values, mine, out, stream=stream)
        stream.synchronize()
        return b, [out.copy_to_host() for out in outs]

    with ThreadPoolExecutor(4) as pool:
        for b, results in pool.map(work, range(4)):
            for c in results:
                check(matrix, b, c)


def test_a_thread_that_has_used_no_gpu_may_launch():
    plan, out = plan_spmm(A, B, backend="cuda"), cuda.device_array((9, 6), np.float32)
    values, b, failures = on_gpu(A.data), on_gpu(B), []

    def work():
        try:
            plan.launch(values, b, out)
        except Exception as failure:  # which a thread would swallow
            failures.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures
    check(A, B, out.copy_to_host())


def test_a_graph_keeps_the_operands_of_each_launch_that_it_captured():
    from sparsekern.study.bench import captured

    plan, values, stream = plan_spmm(A, B, backend="cuda"), on_gpu(A.data), cuda.stream()
    inputs = [on_gpu(B), on_gpu(2 * B)]
    outs = [cuda.device_array((9, 6), np.float32) for _ in inputs]
    elsewhere = on_gpu(np.full((9, 6), np.nan, np.float32))
    plan.launch(values, inputs[0], elsewhere, stream=stream)  # compiles

    def launch():
        for b, out in zip(inputs, outs, strict=True):
            plan.launch(values, b, out, stream=stream)

    with captured(launch, stream, 1) as replay:
        plan.launch(values, inputs[1], elsewhere, stream=stream)  # binds the plan to others
        stream.synchronize()
        for factor in (1, 3):
            values.copy_to_device(np.float32(factor) * A.data)
            for out in outs:
                out.copy_to_device(np.full((9, 6), np.nan, np.float32))
            cuda.synchronize()
            replay()
            stream.synchronize()
            check(factor * A, B, outs[0].copy_to_host())
            check(factor * A, 2 * B, outs[1].copy_to_host())
    check(A, 2 * B, elsewhere.copy_to_host())


@pytest.mark.parametrize("sizes", [{"grid": (1, 70_000, 1)}, {"block": (64, 32)}], ids=["grid", "block"])
def test_a_launch_that_cannot_be_is_an_error_that_names_kernel_grid_and_block(sizes):
    plan, out = (
        plan_spmm(sparse(), B, SpmmVariant(rows_per_block=2), backend="cuda"),
        on_gpu(np.empty((9, 6))),
    )
    for name, size in sizes.items():
        setattr(plan, name, size)
    message = (
        rf"make_spmm could not be launched on a grid of \({plan.grid[0]}, .* blocks of \({plan.block[0]}, "
    )
    with pytest.raises(RuntimeError, match=message + ".*CUDA_ERROR_"):
        plan.launch(on_gpu(A.data), on_gpu(B), out)
    check(A, B, spmm(A, B, backend="cuda"))  # the GPU is none the worse for it


@pytest.mark.parametrize("m, k, n", [(0, 13, 6), (9, 0, 6), (9, 13, 0), (9, 13, 6)])
def test_empty_problems_are_launched_or_need_not_be(m, k, n, cupy):
    a, b = as_csr(sp.csr_matrix((m, k), dtype=np.float32)), cupy.ones((k, n), np.float32)
    for _ in range(2):
        c = spmm(a.with_values(cupy.empty(0, np.float32)), b)
        assert c.shape == (m, n) and not c.any()
    plan = plan_spmm(a, host(b), backend="cuda")
    out = cupy.full((m, plan.problem.c.ld), np.nan, np.float32)
    plan.launch(cupy.empty(0, np.float32), b, out)
    assert not out[:, :n].any()
    lhs = cupy.ones((m, n), np.float32)
    assert sddmm(a.topology, lhs, b).values.shape == (0,)


@pytest.mark.parametrize("kind", ["ours", "cupy"])
def test_a_call_like_one_before_asks_for_nothing_but_a_launch(kind, cupy, monkeypatch):
    a = as_csr(A).with_values(cupy.asarray(A.data)) if kind == "ours" else csr_on_device("cupy")
    b, lhs, rhs = map(cupy.asarray, (B, LHS, RHS))
    out = cupy.empty((9, 6), np.float32)

    def call(factor):
        c = spmm(a, factor * b)
        spmm(a, factor * b, out=out)
        return c, sddmm(a, lhs, rhs)

    call(1)

    def forbidden(*arguments, **options):
        raise AssertionError("looked up again")

    for name in ("select", "SpmmProblem", "SddmmProblem", "resolve_place"):
        monkeypatch.setattr(ops, name, forbidden)
    c, products = call(2)
    check(A, 2 * B, host(c))
    check(A, 2 * B, host(out))
    check_products(A, LHS, RHS, products)
    with pytest.raises(ValueError, match="out overlaps b in memory"):
        spmm(a, (both := cupy.empty((13, 6), np.float32)), out=both[:9])


def test_a_plan_of_sddmm_launches_too():
    plan, out = plan_sddmm(as_topology(A), LHS, RHS, backend="cuda"), cuda.device_array(A.nnz, np.float32)
    plan.launch(on_gpu(LHS), on_gpu(RHS), out)
    check_products(A, LHS, RHS, Csr(as_topology(A), out.copy_to_host()))
