"""What cannot be computed is refused before any launch, naming argument, value and rule."""

import numpy as np
import pytest
import scipy.sparse as sp
from operands import A, B, check, dense, refused, sparse

from sparsekern import Csr, SpmmVariant, VariantError, plan_spmm, spmm
from sparsekern.foreign import as_csr
from sparsekern.machine import backends


@pytest.mark.parametrize(
    "a, b, error_type, match",
    [
        (A.astype(np.float64), B, TypeError, r"a.data has dtype float64.*pass a\.astype\(np\.float32\)"),
        (A.astype(np.int32), B, TypeError, "a.data has dtype int32"),
        (A.tocsc(), B, TypeError, r"a is a csc_array.*a\.tocsr\(\)"),
        (A.tocoo(), B, TypeError, r"a is a coo_array.*a\.tocsr\(\)"),
        (A.toarray(), B, TypeError, r"a is a ndarray.*scipy\.sparse\.csr_array\(a, dtype=np\.float32\)"),
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
        (np.zeros((9, 6)), TypeError, "out has dtype float64.*make it with dtype float32"),
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
    from sparsekern import SpmmProblem
    from sparsekern.problem import Layout
    from sparsekern.select import select

    variant = SpmmVariant(stage=True, prescale=True)
    fits, too_long = (
        SpmmProblem(m=1, k=k, n=4, nnz=1, b=Layout(4096, reach=2**40), c=Layout(4))
        for k in (2**19, 2**19 + 1)
    )
    assert variant.check(fits) is None
    assert "(k - 1) * ldb below 2**31" in variant.check(too_long)
    chosen, _ = select(too_long)
    assert not chosen.prescale and chosen.check(too_long) is None


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
    monkeypatch.setattr(backends, "device_backend", lambda: "emulator")
    with pytest.raises(RuntimeError, match="no CUDA GPU answers.*doctor"):
        spmm(A, B, backend="cuda")
