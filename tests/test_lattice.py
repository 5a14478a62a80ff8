"""Every legal combination of toggles gives the same answer, and lets nothing leak."""

from dataclasses import replace

import numpy as np
import pytest
from lattice import LONG, SHORT, lattice, legal, pairwise_cover, poisoned, problem

from sparsekern import LADDERS, spmm
from sparsekern.reference import error, spmm_reference, tolerance

CHUNKS = 24
BACKENDS = ["emulator", pytest.param("cuda", marks=pytest.mark.gpu)]


def disagreement(variant, backend="emulator", longest=LONG):
    """Error of `variant` on the lattice's problem, over what it may be; at most 1 is agreement."""
    a, b = problem(longest)
    out = poisoned(a.shape[0])
    spmm(a, b, variant, out=out, backend=backend)
    return error(out, *spmm_reference(a, b)) / tolerance(longest)


def test_the_lattice_holds_at_least_500_variants():
    assert len(lattice()) >= 500


def test_the_rows_of_the_problem_take_every_path_several_times():
    """Each part of a split row gets at least two full tiles, one of them not its first, and a residue."""
    for longest, variants in (
        (SHORT, lattice()),
        (LONG, [*pairwise_cover(), *dict(LADDERS["spmm"]).values()]),
    ):
        lengths = problem(longest)[0].topology.row_lengths.tolist()
        for v in filter(lambda v: v.stage, variants):
            assert longest >= 2 * v.tile_k * v.split + 1
            assert any(0 < length % v.tile_k for length in lengths) and 0 in lengths


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_variant_of_the_lattice_agrees_with_scipy_and_leaks_nothing(chunk, record_property):
    variants = lattice()[chunk::CHUNKS]
    assert [str(v) for v in variants if not disagreement(v, longest=SHORT) <= 1] == []
    record_property("lattice", len(variants))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("chunk", range(8))
def test_every_pair_of_toggle_values_agrees_with_scipy(chunk, backend):
    assert [str(v) for v in pairwise_cover()[chunk::8] if not disagreement(v, backend) <= 1] == []


@pytest.mark.parametrize("step, variant", LADDERS["spmm"])
def test_every_step_of_the_ladder_agrees_with_scipy(step, variant):
    assert disagreement(variant) <= 1


def test_the_ladder_changes_one_toggle_a_step_and_has_at_least_12():
    variants = [variant for _, variant in LADDERS["spmm"]]
    changed = [
        [name for name in vars(new) if getattr(new, name) != getattr(old, name)]
        for old, new in zip(variants, variants[1:], strict=False)
    ]
    assert all(len(names) == 1 for names in changed)
    assert len(variants) >= 12


@pytest.mark.parametrize("roma", [False, True])
def test_the_paper_s_zero_padding_leaks(roma):
    best = replace(LADDERS["spmm"][-1][1], tile_k=8, roma=roma)
    faithful = legal(**{**vars(best), "faithful": True})
    assert disagreement(best) <= 1
    a, b = problem()
    out = spmm(a, b, faithful, out=poisoned(a.shape[0]), backend="emulator")
    assert np.isnan(out[[0, 1, 2, 3, 5, 6, 7]]).any()


def test_the_paper_s_zero_padding_agrees_where_b_is_finite():
    faithful = replace(LADDERS["spmm"][-1][1], tile_k=8, faithful=True)
    a, b = problem()
    b[0], b[9] = 1, 2
    out = spmm(a, b, faithful, out=poisoned(a.shape[0]), backend="emulator")
    assert error(out, *spmm_reference(a, b)) <= tolerance(LONG)
