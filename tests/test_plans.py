"""Plans, backends, and kernels of one's own."""

import gc
import pickle
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from operands import BACKENDS, A, B, check, dense, refused, sparse
from protocols import check_products

import sparsekern as sk
from sparsekern import (
    EmulatorError,
    SddmmVariant,
    SpmmVariant,
    as_topology,
    ops,
    plan_sddmm,
    plan_spmm,
    sddmm,
    spmm,
)
from sparsekern.foreign import as_csr
from sparsekern.formats import MOST_PLANS
from sparsekern.machine import backends

LHS, RHS = dense(9, 6, seed=4), B  # for the structure of A


def test_a_structure_is_pickled_without_its_plans():
    a, b = as_csr(sparse()), dense(13, 4)
    a @ b
    check(a, b, pickle.loads(pickle.dumps(a)) @ b)


def test_what_a_kernel_does_not_write_is_nan_even_where_memory_held_the_answer():
    def forgets(variant, types):
        def kernel(work, offsets, columns, values, B, ldb, C, ldc, m, n, s, t, u):
            return

        return kernel

    out = spmm(A, B, backend="emulator")
    assert np.isnan(spmm(A, B, make=forgets, out=out, backend="emulator")).all()


def test_sampled_products_that_a_kernel_does_not_write_are_nan_too():
    def forgets(variant, types):
        def kernel(work, offsets, columns, lhs, ld_lhs, rhs, ld_rhs, out, positions, k, s, t, u):
            return

        return kernel

    out = sddmm(A, LHS, RHS, backend="emulator").data
    assert np.isnan(sddmm(A, LHS, RHS, make=forgets, out=out, backend="emulator").data).all()


def test_a_kernel_that_writes_to_an_input_is_an_error():
    def spoils(variant, types):
        def kernel(work, offsets, columns, values, B, ldb, C, ldc, m, n, s, t, u):
            work[0] = 1

        return kernel

    with pytest.raises(EmulatorError, match=r"read-only: work\[0\] written"):
        spmm(A, B, SpmmVariant(rows_per_block=4, bundle=True), make=spoils, backend="emulator")


def test_a_kernel_of_one_s_own_is_emulated_as_a_gpu_would_run_it():
    def mine(variant, types):
        return sk.make_spmm(variant, types)

    a, b = sparse(64, 64), dense(64, 32)
    library, own = (plan_spmm(a, b, make=make, backend="emulator").variant for make in (sk.make_spmm, mine))
    assert not own.in_flight and own.subwarp > library.subwarp


def test_a_factory_that_returns_nothing_is_refused():
    refused(
        TypeError, "make returned None; it must return the kernel", A, B, make=lambda variant, types: None
    )


def test_the_emulator_is_announced_once_when_nobody_asked_for_it(monkeypatch):
    monkeypatch.setattr(backends, "device_backend", lambda: "emulator")
    backends._say_emulator.cache_clear()
    with pytest.warns(RuntimeWarning, match="no CUDA GPU answers"):
        assert sk.backend() == "emulator"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sk.backend()
        spmm(A, B)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_plan_runs_other_operands_of_the_same_layout_and_refuses_others(backend):
    a = as_csr(A)
    plan = plan_spmm(a, B, backend=backend)
    other = a.with_values(a.values * 3)
    check(other, B + 1, plan(other.values, B + 1))
    with pytest.raises(ValueError, match=r"b has shape \(13, 5\).*this plan is for \(13, 6\)"):
        plan(a.values, B[:, :5])
    with pytest.raises(ValueError, match="out has shape"):
        plan(a.values, B, out=np.zeros((9, 5), np.float32))
    with pytest.raises(TypeError, match="b has dtype float64"):
        plan(a.values, B.astype(np.float64))
    with pytest.raises(ValueError, match="values has shape"):
        plan(a.values[1:], B)
    with pytest.raises(ValueError, match="values has shape.*strides.*contiguous"):
        plan(np.repeat(a.values, 2)[::2], B)
    with pytest.raises(ValueError, match="out is read-only"):
        out = np.zeros((9, 6), np.float32)
        out.flags.writeable = False
        plan(a.values, B, out=out)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_plan_of_sddmm_runs_other_operands_of_the_same_layout_and_refuses_others(backend):
    plan = plan_sddmm(A, LHS, RHS, backend=backend)
    values = plan(LHS * 3, RHS + 1)
    check_products(A, LHS * 3, RHS + 1, as_csr(A).with_values(values))
    out = np.zeros(A.nnz, np.float32)
    assert plan(LHS, RHS, out=out) is out
    check_products(A, LHS, RHS, as_csr(A).with_values(out))
    with pytest.raises(ValueError, match=r"lhs has shape \(8, 6\).*this plan is for \(9, 6\)"):
        plan(LHS[1:], RHS)
    with pytest.raises(ValueError, match=r"rhs has shape \(13, 5\).*this plan is for \(13, 6\)"):
        plan(LHS, RHS[:, :5])
    with pytest.raises(ValueError, match=r"rhs has shape.*strides.*with leading dimension 6"):
        plan(LHS, dense(13, 8)[:, :6])
    with pytest.raises(ValueError, match="lhs has shape.*strides"):
        plan(np.asfortranarray(LHS), RHS)
    with pytest.raises(TypeError, match="lhs has dtype float64"):
        plan(LHS.astype(np.float64), RHS)
    with pytest.raises(ValueError, match=rf"out has shape \({A.nnz - 1},\).*this plan is for"):
        plan(LHS, RHS, out=out[1:])
    with pytest.raises(ValueError, match="out has shape.*strides.*contiguous"):
        plan(LHS, RHS, out=np.zeros(2 * A.nnz, np.float32)[::2])
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        plan(LHS, RHS, out=out)


def test_a_plan_is_made_once_for_a_structure_and_explains_itself():
    a = as_csr(A)
    plan = plan_spmm(a, B, backend="emulator")
    assert plan_spmm(a.with_values(a.values * 2), B + 1, backend="emulator") is plan
    text = plan.explain()
    for part in ("(9 x 13", "make_spmm", "vector=2", "grid", "threads", "emulator", str(plan.variant)):
        assert part in text


def test_a_plan_of_sddmm_is_made_once_for_a_structure_and_explains_itself():
    plan = plan_sddmm(A, LHS, RHS, backend="emulator")
    assert plan_sddmm(as_csr(A), LHS + 1, RHS + 1, backend="emulator") is plan
    text = plan.explain()
    for part in ("(9 x 6) times (13 x 6)", "make_sddmm", "vector=2", "grid", "emulator", str(plan.variant)):
        assert part in text


def forbidden(*arguments, **options):
    raise AssertionError("a plan was looked for again")


@pytest.mark.parametrize("matrix", [as_csr, lambda a: a])
def test_a_call_like_one_before_finds_its_plan_without_describing_the_problem_again(matrix, monkeypatch):
    a, out = matrix(sparse()), np.zeros((9, 6), np.float32)

    def call(factor):
        spmm(a, factor * B, out=out, backend="emulator")
        return spmm(a, factor * B, backend="emulator"), sddmm(a, LHS, factor * RHS, backend="emulator")

    call(1)
    for name in ("select", "SpmmProblem", "SddmmProblem", "RowStats"):
        monkeypatch.setattr(ops, name, forbidden)
    c, products = call(2)
    check(A, 2 * B, c)
    check(A, 2 * B, out)
    check_products(A, LHS, 2 * RHS, products)
    both = np.zeros((13, 6), np.float32)
    with pytest.raises(ValueError, match="out overlaps b in memory"):
        spmm(a, both, out=both[:9], backend="emulator")
    with pytest.raises(AssertionError, match="looked for again"):
        spmm(a, B[:, :5], backend="emulator")


def late(x):
    """A copy of `x` that starts 4 bytes after a multiple of 16."""
    memory = np.zeros(x.size + 8, np.float32)
    start = -(memory.ctypes.data // 4) % 4 + 1
    memory[start : start + x.size] = x.ravel()
    return memory[start : start + x.size].reshape(x.shape)


def test_operands_that_differ_in_what_a_plan_is_made_for_get_a_plan_of_their_own():
    a, wide = as_csr(sparse()), dense(13, 8)
    b = wide[:, :4].copy()
    variant = SpmmVariant(rows_per_block=8)

    def mine(variant, types):
        return sk.make_spmm(variant, types)

    calls = [
        ((a, b), {}),
        ((a, late(b)), {}),
        ((a, wide[:, :4]), {}),
        ((a, wide[:, 4:]), {}),
        ((a, b[:, :3]), {}),
        ((a.with_values(late(a.values)), b), {}),
        ((a, b), {"out": np.zeros((9, 4), np.float32)}),
        ((a, b), {"out": np.zeros((9, 8), np.float32)[:, :4]}),
        ((a, b), {"out": late(np.zeros((9, 4), np.float32))}),
        ((a, b, variant), {}),
        ((a, b, variant), {"make": mine}),
    ]
    for _ in range(2):
        for operands, options in calls:
            check(a, operands[1], spmm(*operands, backend="emulator", **options))
    plans = [plan_spmm(*operands, backend="emulator", **options) for operands, options in calls]
    described = [(plan.problem, plan.variant, plan.make) for plan in plans]
    assert len({id(plan) for plan in plans}) == len(calls)
    assert len(set(described)) == len(calls) - 1  # an out like a new C makes no other problem
    assert plan_spmm(a, late(b), variant=None, backend="emulator").problem.b.align == 4


def used(a, backend):
    """Two plans of `a`, after calls that leave it with more of them."""
    for toggles in ({}, dict(bin=True), dict(tile_nnz=8, work="strips")):
        variant = SddmmVariant(rows_per_block=4, **toggles) if toggles else None
        result = sddmm(a, LHS, RHS, variant, backend=backend)
        spmm(result, B, backend=backend)
        spmm(a, B, SpmmVariant(rows_per_block=4, bundle=True), backend=backend)
    return plan_spmm(a, B, backend=backend), plan_sddmm(a, LHS, RHS, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ours", [True, False])
def test_a_structure_is_freed_at_once_though_it_has_plans_and_results(ours, backend):
    used(sparse(), backend)  # compiles: what Numba leaves for the collector holds the frames of its callers
    a = sparse()
    if ours:
        a = sk.Csr.from_arrays(a.indptr, a.indices, a.data, a.shape)
    alive = weakref.ref(as_topology(a))
    gc.disable()
    try:
        _, plan = used(a, backend)
        del a
        assert alive() is None
        check_products(A, LHS, RHS, as_csr(A).with_values(plan(LHS, RHS)))
    finally:
        gc.enable()


def test_a_structure_keeps_a_bounded_number_of_plans_and_drops_the_one_used_longest_ago():
    a = as_csr(sparse())

    def plan(n):
        return plan_spmm(a, dense(13, n), backend="emulator")

    plans = {n: plan(n) for n in range(1, MOST_PLANS + 1)}
    assert plan(1) is plans[1]  # so that the plan for 2 columns has now been used longest ago
    new = plan(MOST_PLANS + 1)
    assert len(a.topology.plans) == MOST_PLANS
    assert all(plan(n) is plans[n] for n in plans if n != 2)
    assert plan(MOST_PLANS + 1) is new and plan(2) is not plans[2]
    assert len(a.topology.plans) == MOST_PLANS


@pytest.mark.parametrize("b", [np.asfortranarray(B), dense(13)[::-1]], ids=["a matrix", "a vector"])
def test_operands_that_are_copied_find_the_plan_of_their_copies(b, monkeypatch):
    a = as_csr(sparse())
    plan = plan_spmm(a, b, backend="emulator")
    assert plan.copied == ("b",)
    assert not plan_spmm(a, np.ascontiguousarray(b), backend="emulator").copied
    monkeypatch.setattr(ops, "SpmmProblem", forbidden)
    assert plan_spmm(a, b, backend="emulator") is plan
    check(a, b, spmm(a, b, backend="emulator"))
    assert len(a.topology.plans) == 2


def test_a_call_that_is_refused_leaves_no_plan():
    a = as_csr(sparse())
    for _ in range(2):
        refused(sk.VariantError, "vector", a, dense(13, 5), SpmmVariant(vector=4))
    assert len(a.topology.plans) == 0


def test_threads_that_call_at_once_get_one_plan():
    a, start = as_csr(sparse()), threading.Barrier(8)

    def work(_):
        start.wait()
        return plan_spmm(a, B, backend="emulator")

    with ThreadPoolExecutor(8) as pool:
        assert len({id(plan) for plan in pool.map(work, range(8))}) == 1


def test_the_kernel_takes_a_batch_with_strides():
    from sparsekern import Types, make_spmm
    from sparsekern.machine.emulator import emulate

    a, variant = as_csr(A), SpmmVariant(rows_per_block=4, bundle=True)
    t, values, b = a.topology, np.stack([a.values, 2 * a.values]), dense(2, 13, 6)
    c = np.full((2, 9, 8), np.nan, np.float32)
    work = t.row_list(True, False, 4).ravel()
    arguments = [work, t.offsets, t.columns, values.ravel(), b.ravel(), 6, c.ravel(), 8, 9, 6, a.nnz, 78, 72]
    emulate(make_spmm(variant, Types()), (3, 1, 2), variant.block, arguments, outputs=(6,))
    check(a, b[0], c[0, :, :6])
    check(a.with_values(values[1]), b[1], c[1, :, :6])
    assert np.isnan(c[:, :, 6:]).all()


def test_the_sddmm_kernel_takes_a_batch_with_strides():
    from sparsekern import Types, make_sddmm
    from sparsekern.machine.emulator import emulate

    t, variant = as_topology(A), SddmmVariant(vector=2, tile_nnz=8, rows_per_block=4)
    lhs, rhs = dense(2, 9, 6), dense(2, 13, 8, seed=4)
    out = np.full((2, t.nnz + 3), np.nan, np.float32)
    none = np.empty(0, np.int64)
    arguments = [none, t.offsets, t.columns, lhs.ravel(), 6, rhs.ravel(), 8, out.ravel(), 9, 6]
    strides = [9 * 6, 13 * 8, t.nnz + 3]
    emulate(make_sddmm(variant, Types()), (3, 2, 2), variant.block, [*arguments, *strides], outputs=(7,))
    for i in range(2):
        check_products(A, lhs[i], rhs[i, :, :6], sk.Csr(t, out[i, : t.nnz]))
    assert np.isnan(out[:, t.nnz :]).all()


def test_a_plan_for_one_row_refuses_one_that_is_strided():
    a, wide = as_csr(sparse(1, 1, 1.0)), dense(1, 16)
    plan = plan_spmm(a, wide[:, :8].copy(), backend="emulator")
    check(a, wide[:, :8], plan(a.values, wide[:, :8]))
    with pytest.raises(ValueError, match="b has shape .* strides"):
        plan(a.values, wide[:, ::2])
    with pytest.raises(ValueError, match="out has shape .* strides"):
        plan(a.values, wide[:, :8], out=np.zeros((1, 16), np.float32)[:, ::2])
