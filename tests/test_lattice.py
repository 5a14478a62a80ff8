"""Every legal combination of toggles gives the same answer, and lets nothing leak."""

from dataclasses import replace

import numpy as np
import pytest
from lattice import LONG, NAN_ROW, SHORT, depth, lattice, legal, pairwise_cover, poisoned, problem, sampled
from operands import BACKENDS

from sparsekern import LADDERS, plan_sddmm, sddmm, spmm
from sparsekern.reference import error, sddmm_reference, spmm_reference, tolerance

NAMES = {"spmm": "SpMM", "sddmm": "SDDMM"}
CHUNKS = [("spmm", chunk, 24) for chunk in range(24)] + [("sddmm", chunk, 12) for chunk in range(12)]


def spmm_disagreement(variant, backend, longest):
    a, b = problem(longest)
    out = poisoned(a.shape[0])
    spmm(a, b, variant, out=out, backend=backend)
    return error(out, *spmm_reference(a, b)) / tolerance(longest)


def sddmm_disagreement(variant, backend, _):
    k = depth(variant)
    topology, lhs, rhs = sampled(variant.tile_nnz, k)
    out = np.full(topology.stored, np.nan, np.float32)
    sddmm(topology, lhs, rhs, variant, out=out, backend=backend)
    return error(out, *sddmm_reference(topology, lhs, rhs)) / tolerance(k)


DISAGREEMENTS = {"spmm": spmm_disagreement, "sddmm": sddmm_disagreement}


def disagreement(variant, backend="emulator", longest=LONG):
    """Error of `variant` on the problem of its lattice, over what it may be; at most 1 is agreement."""
    return DISAGREEMENTS[variant.op](variant, backend, longest)


def steps(op):
    """All variants of the ladder."""
    return [variant for _, variant in LADDERS[op]]


@pytest.mark.parametrize("op, least", [("spmm", 500), ("sddmm", 200)])
def test_a_lattice_holds_many_variants(op, least):
    assert len(lattice(op)) >= least


def test_the_rows_of_the_spmm_problem_take_every_path_several_times():
    """Each part of a split row gets at least two full tiles, one of them not its first, and a residue."""
    for longest, variants in ((SHORT, lattice("spmm")), (LONG, [*pairwise_cover("spmm"), *steps("spmm")])):
        lengths = problem(longest)[0].topology.row_lengths.tolist()
        for v in filter(lambda v: v.stage, variants):
            assert longest >= 2 * v.tile_k * v.split + 1
            assert any(0 < length % v.tile_k for length in lengths) and 0 in lengths


def test_the_sddmm_problem_takes_every_path_several_times():
    """Each part of a split gets at least two whole steps, and strips are full, partial, single and none."""
    for v in [*lattice("sddmm"), *pairwise_cover("sddmm"), *steps("sddmm")]:
        k, step = depth(v), v.subwarp * v.vector
        assert k // step >= 2 * v.split and (k % step or step == 1) and k % 2
        topology, lhs, rhs = sampled(v.tile_nnz, k)
        assert lhs.strides[0] % 16 == rhs.strides[0] % 16 == 0
        rows, starts = topology.strips(v.tile_nnz, v.by_column, v.bundle, v.bin, v.rows_per_block)
        strips = np.minimum(topology.offsets[rows + 1] - starts, v.tile_nnz).tolist()
        assert strips.count(v.tile_nnz) >= 2 and strips.count(1) >= 2
        assert len(set(strips)) >= min(v.tile_nnz, 3) and topology.row_lengths.tolist().count(0) >= 2
        assert not {0, topology.shape[1] - 1} & set(topology.columns.tolist())


@pytest.mark.parametrize("op, chunk, chunks", CHUNKS)
def test_every_variant_of_the_lattice_agrees_with_float64_and_leaks_nothing(
    op, chunk, chunks, record_property
):
    variants = lattice(op)[chunk::chunks]
    assert [str(v) for v in variants if not disagreement(v, longest=SHORT) <= 1] == []
    record_property(f"lattice {NAMES[op]}", len(variants))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("chunk", range(8))
@pytest.mark.parametrize("op", LADDERS)
def test_every_pair_of_toggle_values_agrees_with_float64(op, chunk, backend):
    assert [str(v) for v in pairwise_cover(op)[chunk::8] if not disagreement(v, backend) <= 1] == []


@pytest.mark.parametrize("step, variant", LADDERS["spmm"] + LADDERS["sddmm"])
def test_every_step_of_the_ladder_agrees_with_float64(step, variant):
    assert disagreement(variant) <= 1


@pytest.mark.parametrize("step, variant", LADDERS["sddmm"])
def test_every_position_is_written_once_where_the_result_is_nan_too(step, variant):
    topology, lhs, rhs = sampled(variant.tile_nnz, depth(variant))
    values, counts = plan_sddmm(topology, lhs, rhs, variant, backend="emulator").count(lhs, rhs)
    first, last = topology.offsets[NAN_ROW : NAN_ROW + 2]
    assert np.flatnonzero(np.isnan(values)).tolist() == list(range(first, last))
    assert counts.accesses("global")[1] == topology.nnz


@pytest.mark.parametrize("op", LADDERS)
def test_the_ladder_changes_one_toggle_a_step_and_has_at_least_12(op):
    variants = steps(op)
    changed = [
        [name for name in vars(new) if getattr(new, name) != getattr(old, name)]
        for old, new in zip(variants, variants[1:], strict=False)
    ]
    paper = ["roma", "unroll_residue", "uniform_branch"]  # which in_flight takes the place of
    several = {"spmm": [[*paper, "in_flight"], ["rows_per_block", "split"]], "sddmm": []}
    assert [names for names in changed if len(names) > 1] == several[op]
    assert len(variants) >= 12


OF_PAPER = replace([v for _, v in LADDERS["spmm"] if not v.in_flight][-1], tile_k=8)


@pytest.mark.parametrize("roma", [False, True])
def test_the_paper_s_zero_padding_leaks(roma):
    best = replace(OF_PAPER, roma=roma)
    faithful = legal("spmm", **{**vars(best), "faithful": True})
    assert disagreement(best) <= 1
    a, b = problem()
    out = spmm(a, b, faithful, out=poisoned(a.shape[0]), backend="emulator")
    assert np.isnan(out[[0, 1, 2, 3, 5, 6, 7]]).any()


def test_the_paper_s_zero_padding_agrees_where_b_is_finite():
    faithful = replace(OF_PAPER, faithful=True)
    a, b = problem()
    b[0], b[9] = 1, 2
    out = spmm(a, b, faithful, out=poisoned(a.shape[0]), backend="emulator")
    assert error(out, *spmm_reference(a, b)) <= tolerance(LONG)
