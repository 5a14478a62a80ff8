"""What SDDMM cannot compute is refused before any launch, naming argument, value and rule."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from operands import A, dense
from protocols import check_products

from sparsekern import SddmmVariant, Topology, VariantError, plan_sddmm, sddmm
from sparsekern.foreign import as_topology

LHS, RHS = dense(9, 8), dense(13, 8, seed=4)  # for the structure of A
VECTORS = SddmmVariant(vector=4)


def refused(error_type, match, *operands, **options):
    with pytest.raises(error_type, match=match):
        sddmm(*operands, backend="emulator", **options)


@pytest.mark.parametrize(
    "toggles, match",
    [
        (dict(tile_nnz=4), "tile_nnz is 4; it must be one of 1, 8, 16, 32, 64"),
        (dict(work="lists"), "work is 'lists'; it must be one of grid, bounded, strips"),
        (dict(reduction=None), "reduction is None; it must be one of butterfly, halving"),
        (dict(reduction="halving"), "reduction='halving' needs tile_nnz to be 8 or 16 or 32 or 64; it is 1"),
        (
            dict(reduction="halving", tile_nnz=16),
            "tile_nnz to be a multiple of subwarp; it is 16",
        ),
        (dict(subwarp=8), "8 threads; a block must be whole warps of 32"),
        (dict(rows_per_block=32, split=2), "2048 threads.*at most 1024"),
        (
            dict(subwarp=1, tile_nnz=64, rows_per_block=32, split=8, reduction="halving"),
            "122880 bytes of shared memory; it has at most 49152",
        ),
    ],
)
def test_an_impossible_variant_is_refused(toggles, match):
    with pytest.raises(VariantError, match=match):
        SddmmVariant(**toggles)


@pytest.mark.parametrize(
    "lhs, rhs, match",
    [
        (LHS[:, :7].copy(), RHS[:, :7], "vector=4 needs ld_lhs.* to be a multiple of 4; ld_lhs is 7: pad"),
        (LHS[:, :6], RHS[:, :6].copy(), "vector=4 needs ld_rhs.* to be a multiple of 4; ld_rhs is 6: pad"),
        (LHS[:, 1:], RHS[:, 1:], "vector=4 needs lhs to start on 16 bytes; it starts on 4"),
        (LHS[:, :6], RHS[:, 2:], "vector=4 needs rhs to start on 16 bytes; it starts on 8"),
    ],
)
def test_vectors_need_aligned_rows(lhs, rhs, match):
    refused(VariantError, match, A, lhs, rhs, VECTORS)


@pytest.mark.parametrize("k", [1, 4, 5, 7])
def test_vectors_are_read_from_padded_rows_and_from_nothing_past_column_k(k):
    memory = np.full((22, 8), np.nan, np.float32)
    memory[:, :k] = dense(22, k)
    lhs, rhs = memory[:9, :k], memory[9:, :k]
    check_products(A, lhs, rhs, sddmm(A, lhs, rhs, VECTORS, backend="emulator"))


def test_an_out_that_overlaps_an_operand_is_refused():
    memory = dense(200, 8)
    lhs, rhs, out = memory[:9], memory[9:22], memory.reshape(-1)
    refused(ValueError, "out overlaps lhs", A, lhs, rhs, out=out[: A.nnz])
    refused(ValueError, "out overlaps rhs", A, lhs, rhs, out=out[100 : 100 + A.nnz])
    columns = out[300 : 300 + A.nnz].view(np.int32)
    columns[:] = A.indices
    topology = Topology(A.indptr, columns, A.shape)
    refused(
        ValueError, "out overlaps the structure's columns", topology, lhs, rhs, out=out[310 : 310 + A.nnz]
    )
    check_products(A, lhs, rhs, sddmm(topology, lhs, rhs, out=out[400 : 400 + A.nnz], backend="emulator"))


def test_an_out_with_gaps_is_refused():
    refused(ValueError, "out has strides.*contiguous", A, LHS, RHS, out=np.zeros(2 * A.nnz, np.float32)[::2])


def test_a_grid_that_would_be_too_tall_is_refused_and_others_run():
    columns = np.array([0, 70_000, 40_000, 69_999], np.int32)
    topology = Topology(np.array([0, 3, 4], np.int32), columns, (2, 70_001))
    lhs, rhs = dense(2, 1), dense(70_001, 1)
    too_tall = SddmmVariant(rows_per_block=4)
    match = "rows_per_block=4 and tile_nnz=1 need a grid of 1 x 70001 blocks.* x 65535"
    refused(VariantError, match, topology, lhs, rhs, too_tall)
    for variant in (replace(too_tall, work="bounded"), replace(too_tall, work="strips"), None):
        check_products(topology, lhs, rhs, sddmm(topology, lhs, rhs, variant, backend="emulator"))


def test_the_choice_for_a_gpu_fits_the_grid_too():
    from sparsekern.select import H200_WARPS, select

    wide = as_topology(sp.csr_array((np.ones(1, bool), ([0], [5_000_000])), shape=(1, 5_000_001)))
    lhs, rhs = np.zeros((1, 4), np.float32), np.zeros((5_000_001, 4), np.float32)
    problem = plan_sddmm(wide, lhs, rhs, backend="emulator").problem
    for warps in (0, H200_WARPS):
        assert select(problem, warps)[0].check(problem) is None
