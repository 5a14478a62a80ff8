"""spmm on every kind of operand: right, or refused in words before anything is launched."""

import pickle
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numba import njit

import sparsekern as sk
from sparsekern import Csr, EmulatorError, SpmmVariant, Topology, VariantError, plan_spmm, spmm
from sparsekern.formats import as_csr
from sparsekern.machine import launch
from sparsekern.reference import error, spmm_reference, tolerance
from sparsekern.zoo import ZOO

BACKENDS = ["emulator", pytest.param("cuda", marks=pytest.mark.gpu)]
COLUMNS = [0, 1, 2, 3, 7, 33]  # none, a vector, and none a multiple of a vector but 2


def dense(k, *n, seed=3):
    return np.random.default_rng(seed).standard_normal((k, *n), np.float32)


def sparse(m=9, k=13, density=0.4, seed=0, **options):
    rng = np.random.default_rng(seed)
    return sp.random_array((m, k), density=density, format="csr", dtype=np.float32, rng=rng, **options)


def check(a, b, c):
    longest = int(max(as_csr(a).topology.row_lengths, default=0))
    assert error(c, *spmm_reference(a, b)) <= tolerance(longest)


# Matrices


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


# Dense operands


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


def test_explain_says_when_b_is_copied_and_when_it_is_read_in_place():
    a, b = sparse(), dense(13, 12)
    assert "copied" not in plan_spmm(a, b[:, 1:9], backend="emulator").explain()
    assert (
        "copied to contiguous memory on each call: b"
        in plan_spmm(a, b[:, ::-1], backend="emulator").explain()
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_read_only_operands_are_read(backend):
    a, b = sparse(), dense(13, 4)
    a.data.flags.writeable = b.flags.writeable = False
    check(a, b, spmm(a, b, backend=backend))


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


def test_a_structure_is_pickled_without_its_plans():
    a, b = as_csr(sparse()), dense(13, 4)
    a @ b
    check(a, b, pickle.loads(pickle.dumps(a)) @ b)


def test_what_a_kernel_does_not_write_is_nan_even_where_memory_held_the_answer():
    from sparsekern import make_spmm

    def forgets(variant, types):
        kernel = make_spmm(variant, types)

        @njit(inline="always")
        def nothing(order, offsets, columns, values, B, ldb, C, ldc, m, n, s, t, u):
            return 0

        def forgetful(order, offsets, columns, values, B, ldb, C, ldc, m, n, s, t, u):
            nothing(order, offsets, columns, values, B, ldb, C, ldc, m, n, s, t, u)

        return forgetful if variant.bundle else kernel

    a, b, out = sparse(), dense(13, 4), dense(9, 4)
    plain = SpmmVariant(rows_per_block=4)
    check(a, b, spmm(a, b, plain, make=forgets, out=out, backend="emulator"))
    assert np.isnan(spmm(a, b, replace(plain, bundle=True), make=forgets, out=out, backend="emulator")).all()


def test_a_kernel_that_writes_to_an_input_is_an_error():
    def spoils(variant, types):
        def kernel(order, offsets, columns, values, B, ldb, C, ldc, m, n, s, t, u):
            order[0] = 1

        return kernel

    with pytest.raises(EmulatorError, match=r"read-only: order\[0\] written"):
        spmm(A, B, SpmmVariant(rows_per_block=4, bundle=True), make=spoils, backend="emulator")


def test_a_factory_that_returns_nothing_is_refused():
    refused(
        TypeError, "make returned None; it must return the kernel", A, B, make=lambda variant, types: None
    )


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


# Refusals


def refused(error_type, match, *operands, **options):
    with pytest.raises(error_type, match=match):
        spmm(*operands, backend="emulator", **options)


A, B = sparse(), dense(13, 6)


@pytest.mark.parametrize(
    "a, b, error_type, match",
    [
        (A.astype(np.float64), B, TypeError, r"a.data has dtype float64.*float32.*\.astype\(np\.float32\)"),
        (A.astype(np.int32), B, TypeError, "a.data has dtype int32"),
        (A.tocsc(), B, TypeError, r"a is a csc_array.*a\.tocsr\(\)"),
        (A.tocoo(), B, TypeError, r"a is a coo_array.*a\.tocsr\(\)"),
        (A.toarray(), B, TypeError, r"a is a ndarray.*scipy\.sparse\.csr_array\(a\)"),
        ([[1.0]], B, TypeError, "a is a list"),
        (A, B.astype(np.float64), TypeError, r"b has dtype float64.*pass b\.astype\(np\.float32\)"),
        (A, B.astype(np.float16), TypeError, "b has dtype float16"),
        (A, B.astype(">f4"), TypeError, "b has dtype >f4"),
        (A, B.tolist(), TypeError, "b is a list"),
        (A, np.ma.array(B), TypeError, "b is a MaskedArray"),
        (A, B[:12], ValueError, r"b has shape \(12, 6\).*\(13,\) or \(13, n\)"),
        (A, B.T, ValueError, r"b has shape \(6, 13\)"),
        (A, B[None], ValueError, r"b has shape \(1, 13, 6\)"),
        (A, np.zeros((), np.float32), ValueError, r"b has shape \(\)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_operand_of_the_wrong_kind_is_refused_with_the_way_out(a, b, error_type, match):
    refused(error_type, match, a, b)


@pytest.mark.parametrize(
    "out, error_type, match",
    [
        (np.zeros((9, 5), np.float32), ValueError, r"out has shape \(9, 5\); the result has \(9, 6\)"),
        (np.zeros((9, 6)), TypeError, "out has dtype float64"),
        (np.zeros((6, 9), np.float32).T, ValueError, "out has strides"),
        (np.broadcast_to(np.float32(0), (9, 6)), ValueError, "out is read-only"),
        ([0], TypeError, "out is a list"),
    ],
)
def test_an_unsuitable_out_is_refused(out, error_type, match):
    refused(error_type, match, A, B, out=out)


def test_an_out_that_overlaps_an_input_is_refused_and_an_interleaved_one_is_not():
    memory = dense(13, 12)
    before = memory.copy()
    refused(ValueError, "out overlaps b", A, memory[:, :6], out=memory[:9, 3:9])
    assert np.array_equal(memory, before)
    spmm(A, memory[:, :6], out=memory[:9, 6:], backend="emulator")
    check(A, before[:, :6], memory[:9, 6:])
    values = np.zeros(54, np.float32)
    a = Csr.from_arrays(np.array([0, 54], np.int32), np.zeros(54, np.int32), values, (1, 13))
    refused(ValueError, "out overlaps a's values", a, B, out=values[:6].reshape(1, 6))


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


@pytest.mark.parametrize(
    "toggles, match",
    [
        (dict(vector=3), "vector is 3; it must be one of 1, 2, 4"),
        (dict(vector=True), "vector is True"),
        (dict(stage=1), "stage is 1; it must be one of False, True"),
        (dict(roma=True), "roma=True needs sparse_vector to be 2 or 4; it is 1"),
        (dict(prescale=True), "prescale=True needs stage to be True; it is False"),
        (dict(sparse_vector=4), "sparse_vector=4 needs stage"),
        (dict(subwarp=8), "8 threads; a block must be whole warps of 32"),
        (dict(rows_per_block=32, split=2), "2048 threads.*at most 1024"),
        (
            dict(rows_per_block=16, split=2, stage=True, tile_k=64, items=8, vector=4),
            "81920 bytes of shared memory",
        ),
    ],
)
def test_an_impossible_variant_is_refused(toggles, match):
    with pytest.raises(VariantError, match=match):
        SpmmVariant(**toggles)


def test_vectors_need_aligned_rows_and_a_padded_b_has_them():
    a = sparse(9, 13)
    wide, variant = dense(13, 52), SpmmVariant(vector=4)
    refused(VariantError, "ldb is 49", a, np.ascontiguousarray(wide[:, :49]), variant)
    check(a, wide[:, :49], spmm(a, wide[:, :49], variant, backend="emulator"))
    refused(VariantError, "vector=4 needs B to start on 16 bytes; it starts on 4", a, wide[:, 1:49], variant)
    refused(VariantError, "ldc is 49", a, wide[:, :49], variant, out=np.zeros((9, 49), np.float32))


def test_a_plan_does_not_read_past_the_memory_of_another_b():
    a, memory = sparse(9, 13), dense(20, 8)
    plan = plan_spmm(a, memory[:13, :6], backend="emulator")
    with pytest.raises(
        ValueError, match="b starts on 8 bytes; this plan is for 16|b has memory for 102 elements"
    ):
        plan(a.data, memory[7:, 2:])


def test_vectors_do_not_read_past_the_memory_of_b():
    a, variant = sparse(9, 13), SpmmVariant(vector=4)
    memory = np.zeros(13 * 8 - 2, np.float32)  # the last row ends where its columns do
    b = np.lib.stride_tricks.as_strided(memory, (13, 6), (32, 4))
    b[...] = dense(13, 6)
    refused(VariantError, "up to element 103; B's memory ends before element 102", a, b, variant)
    check(a, b, spmm(a, b, backend="emulator"))


def test_prescaling_is_refused_where_indices_would_overflow():
    from sparsekern import Problem
    from sparsekern.select import select

    variant = SpmmVariant(stage=True, prescale=True)
    fits = dict(op="spmm", m=1, n=4, nnz=1, ldb=4096, ldc=4, reach_b=2**40)
    assert variant.check(Problem(k=2**19, **fits)) is None
    assert "(k - 1) * ldb below 2**31" in variant.check(Problem(k=2**19 + 1, **fits))
    chosen, _ = select(Problem(k=2**19 + 1, **fits))
    assert not chosen.prescale and chosen.check(Problem(k=2**19 + 1, **fits)) is None


def test_a_grid_that_would_be_too_tall_is_refused_and_select_takes_a_wider_tile():
    a = as_csr(sp.csr_array(np.ones((1, 1), np.float32)))
    b = np.ones((1, 70_001), np.float32)
    refused(VariantError, "1 x 70001 blocks.*65535", a, b, SpmmVariant(subwarp=1, rows_per_block=32))
    assert plan_spmm(a, b, backend="emulator").grid[1] <= 65_535
    assert plan_spmm(a, np.ones((1, 5_000_001), np.float32), backend="emulator").grid[1] <= 65_535


@pytest.mark.parametrize(
    "options, error_type, match",
    [
        (dict(variant="fast"), TypeError, "variant is a str; it must be an SpmmVariant or None"),
        (dict(make=3), TypeError, "make is a int; it must be a kernel factory"),
    ],
)
def test_a_wrong_option_is_refused(options, error_type, match):
    refused(error_type, match, A, B, **options)


def test_an_unknown_backend_is_refused_and_so_is_cuda_without_a_gpu(monkeypatch):
    with pytest.raises(ValueError, match="backend is 'gpu'; it must be one of cuda, emulator"):
        spmm(A, B, backend="gpu")
    monkeypatch.setattr(launch, "device_backend", lambda: "emulator")
    with pytest.raises(RuntimeError, match="no CUDA GPU answers.*doctor"):
        spmm(A, B, backend="cuda")


# Plans and backends


def test_the_emulator_is_announced_once_when_nobody_asked_for_it(monkeypatch):
    monkeypatch.setattr(launch, "device_backend", lambda: "emulator")
    launch._say_emulator.cache_clear()
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
    with pytest.raises(ValueError, match="values has strides.*contiguous"):
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
