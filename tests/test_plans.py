"""Plans, backends, and kernels of one's own."""

import pickle
import warnings

import numpy as np
import pytest
from operands import BACKENDS, A, B, check, dense, refused, sparse

import sparsekern as sk
from sparsekern import EmulatorError, SpmmVariant, plan_spmm, spmm
from sparsekern.foreign import as_csr
from sparsekern.machine import backends


def test_a_structure_is_pickled_without_its_plans():
    a, b = as_csr(sparse()), dense(13, 4)
    a @ b
    check(a, b, pickle.loads(pickle.dumps(a)) @ b)


def test_what_a_kernel_does_not_write_is_nan_even_where_memory_held_the_answer():
    def forgets(variant, types):
        def kernel(order, offsets, columns, values, B, ldb, C, ldc, m, n, s, t, u):
            return

        return kernel

    out = spmm(A, B, backend="emulator")
    assert np.isnan(spmm(A, B, make=forgets, out=out, backend="emulator")).all()


def test_a_kernel_that_writes_to_an_input_is_an_error():
    def spoils(variant, types):
        def kernel(order, offsets, columns, values, B, ldb, C, ldc, m, n, s, t, u):
            order[0] = 1

        return kernel

    with pytest.raises(EmulatorError, match=r"read-only: order\[0\] written"):
        spmm(A, B, SpmmVariant(rows_per_block=4, bundle=True), make=spoils, backend="emulator")


def test_a_kernel_of_one_s_own_is_emulated_as_a_gpu_would_run_it():
    def mine(variant, types):
        return sk.make_spmm(variant, types)

    a, b = sparse(64, 64), dense(64, 32)
    library, own = (plan_spmm(a, b, make=make, backend="emulator").variant for make in (sk.make_spmm, mine))
    assert own.split > 1 == library.split and own.subwarp > library.subwarp


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


def test_a_plan_is_made_once_for_a_structure_and_explains_itself():
    a = as_csr(A)
    plan = plan_spmm(a, B, backend="emulator")
    assert plan_spmm(a.with_values(a.values * 2), B + 1, backend="emulator") is plan
    text = plan.explain()
    for part in ("(9 x 13", "make_spmm", "vector=2", "grid", "threads", "emulator", str(plan.variant)):
        assert part in text


def test_a_structure_keeps_a_bounded_number_of_plans():
    from sparsekern.formats import MOST_PLANS

    a = as_csr(A)
    for n in range(1, 2 * MOST_PLANS):
        plan = plan_spmm(a, dense(13, n), backend="emulator")
    assert plan_spmm(a, dense(13, n), backend="emulator") is plan
    assert len(a.topology.derive("plans", dict)) == MOST_PLANS


def test_the_kernel_takes_a_batch_with_strides():
    from sparsekern import Types, make_spmm
    from sparsekern.machine.emulator import emulate

    a, variant = as_csr(A), SpmmVariant(rows_per_block=4, bundle=True)
    t, values, b = a.topology, np.stack([a.values, 2 * a.values]), dense(2, 13, 6)
    c = np.full((2, 9, 8), np.nan, np.float32)
    order = t.row_order(True, False, 4)
    arguments = [order, t.offsets, t.columns, values.ravel(), b.ravel(), 6, c.ravel(), 8, 9, 6, a.nnz, 78, 72]
    emulate(make_spmm(variant, Types()), (3, 1, 2), variant.block, arguments, outputs=(6,))
    check(a, b[0], c[0, :, :6])
    check(a.with_values(values[1]), b[1], c[1, :, :6])
    assert np.isnan(c[:, :, 6:]).all()
