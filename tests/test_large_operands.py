"""More blocks than fit in y of a grid, and operands of more than 2**31 elements."""

import numpy as np
import pytest
import scipy.sparse as sp
from lattice import ALL_VALUES
from numba import cuda
from on_device import cupy_or_skip, host
from operands import check, dense

from sparsekern import Csr, SddmmVariant, SpmmVariant, Topology, VariantError
from sparsekern.ops import plan_sddmm, plan_spmm, sddmm, spmm
from sparsekern.problem import Layout, RowStats, SddmmProblem, SpmmProblem
from sparsekern.reference import error, tolerance
from sparsekern.select import H200_WARPS, select

MOST_Y = 65_535  # blocks of a grid in y and z; in x there may be more
IN_BLOCK = max(max(values["rows_per_block"]) for values in ALL_VALUES.values())  # rows or strips, at most
TALL = 66_000 * IN_BLOCK  # of these a grid is tall, whichever variant is chosen


def one_or_none(m, k):
    """A structure of m rows of at most one nonzero, half of them of none."""
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.random(m) < 0.5)]).astype(np.int32)
    return Topology(offsets, rng.integers(0, k, offsets[-1]).astype(np.int32), (m, k))


@pytest.mark.gpu
@pytest.mark.parametrize(
    "variant, m",
    [
        (SpmmVariant(), 70_000),
        (SpmmVariant(rows_per_block=4, subwarp=8, stage=True, bundle=True, bin=True), 280_000),
        (None, TALL),
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


@pytest.mark.gpu
@pytest.mark.parametrize(
    "variant, m",
    [
        (SddmmVariant(), 70_000),
        (SddmmVariant(work="bounded", subwarp=8, rows_per_block=4, tile_nnz=8), 280_000),
        (SddmmVariant(work="strips", tile_nnz=8), 140_000),
        (None, 2 * TALL),
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


@pytest.mark.parametrize(
    "kind, m, k, n, operands",
    [(SpmmProblem, TALL, 50, 8, ["b", "c"]), (SddmmProblem, 2 * TALL, 8, 50, ["lhs", "rhs"])],
    ids=["spmm", "sddmm"],
)
def test_the_grid_of_what_a_gpu_chooses_is_as_tall_as_these_tests_need(kind, m, k, n, operands):
    rows = RowStats.of(np.arange(m) % 2)
    layouts = dict.fromkeys(operands, Layout(8, 16, 8 * m))
    problem = kind(m=m, k=k, n=n, nnz=m // 2, rows=rows, **layouts)
    for warps in (1, 80 * 64, H200_WARPS, 10 * H200_WARPS):
        variant, _ = select(problem, warps)
        assert variant.grid(problem)[0] > MOST_Y, variant


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


@pytest.mark.gpu
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


@pytest.mark.gpu
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
