"""Bounds by hand, the work of a launch against the emulator, and the prediction against a record."""

import os
from dataclasses import replace
from itertools import pairwise
from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest

from sparsekern import LADDERS
from sparsekern.datasets import ROOT_VARIABLE
from sparsekern.formats import Topology
from sparsekern.generators import with_row_lengths
from sparsekern.problem import Layout, RowStats, SddmmProblem, SpmmProblem
from sparsekern.study import cost, fit
from sparsekern.study.cost import bounds, bounds_of, compulsory_bytes, l1_bound_us, l1_bytes, predicted_us
from sparsekern.study.counters import count
from sparsekern.study.gpus import GPUS
from sparsekern.study.records import load
from sparsekern.study.work import Work, work_of
from sparsekern.toggles import VariantError
from sparsekern.variants import SddmmVariant, SpmmVariant

OPS = ["spmm", "sddmm"]
H200 = GPUS["h200"]
VARIANTS = {"spmm": SpmmVariant(), "sddmm": SddmmVariant()}

# 3 x 5, nonzeros in columns 0 and 3 of row 0 and column 3 of row 2: none in row 1, or columns 1, 2 and 4
TINY = Topology(np.int32([0, 2, 2, 3]), np.int32([0, 3, 3]), (3, 5))


def problem_of(op, topology, width):
    """`width`: columns of the dense operands."""
    m, columns = topology.shape
    sizes = dict(nnz=topology.nnz, rows=RowStats.of(topology.row_lengths))
    if op == "spmm":
        b, c = (Layout(width, reach=rows * width) for rows in (columns, m))
        return SpmmProblem(m=m, k=columns, n=width, b=b, c=c, **sizes)
    lhs, rhs = (Layout(width, reach=rows * width) for rows in (m, columns))
    return SddmmProblem(m=m, k=width, n=columns, lhs=lhs, rhs=rhs, **sizes)


def tiny(op, gpu=H200, topology=TINY):
    return bounds_of(topology, problem_of(op, topology, 8), VARIANTS[op], gpu)


# By hand


@pytest.mark.parametrize("op", OPS)
def test_flops_are_a_multiplication_and_an_addition_for_each_nonzero_and_column(op):
    found = tiny(op)
    assert found.flops == 2 * 3 * 8
    # an H200 does 132 * 128 multiply-adds a clock
    assert found.us["arithmetic"] == pytest.approx(3 * 8 / (132 * 128) / 1980)


@pytest.mark.parametrize(
    "op, dense",
    [
        ("spmm", (2 + 3) * 8),  # two rows of B, and all three of C
        ("sddmm", (2 + 2) * 8),  # two rows of lhs, two of rhs
    ],
)
def test_compulsory_bytes_are_of_what_is_needed_once(op, dense):
    structure, values = 3 + 4, 3  # columns and offsets; values of A or of the result
    wanted = 4 * (structure + values + dense)
    found = tiny(op)
    assert found.bytes["L2"] == wanted
    assert found.us["L2"] == pytest.approx(wanted / (5120 * 1980))
    wide = Topology(TINY.offsets.astype(np.int64), TINY.columns, TINY.shape)
    assert compulsory_bytes(wide, problem_of(op, wide, 8)) == wanted + 4 * 4


def test_of_a_b_that_nobody_asks_for_nothing_is_compulsory():
    nothing = Topology(np.zeros(3, np.int32), np.zeros(0, np.int32), (2, 10**6))
    assert compulsory_bytes(nothing, problem_of("spmm", nothing, 64)) == 4 * (3 + 2 * 64)


def test_what_another_matrix_stores_beside_these_rows_is_not_counted():
    slice_ = Topology(np.int32([2, 2, 3]), np.int32([0, 3, 3, 4]), (2, 5))
    # a column, three offsets, a value; a row of B and two of C
    assert compulsory_bytes(slice_, problem_of("spmm", slice_, 8)) == 4 * (1 + 3 + 1 + (1 + 2) * 8)


@pytest.mark.parametrize("op", OPS)
def test_memory_bounds_only_what_does_not_fit_the_cache(op):
    size = tiny(op).bytes["L2"]
    fits, spills = (tiny(op, replace(H200, l2_bytes=l2)) for l2 in (size, size - 100))
    assert fits.us["HBM"] == fits.bytes["HBM"] == 0
    assert spills.us["HBM"] == pytest.approx(100 / 4.8e6) and spills.bytes["HBM"] == 100


def test_the_resource_that_takes_longest_binds_and_an_empty_launch_is_one():
    found = tiny("spmm")
    assert found.us["launch"] == 0.8
    assert (found.binding, found.bound_us) == ("launch", 0.8)
    assert found.share(1.6) == pytest.approx(0.5)
    unknown = tiny("spmm", replace(H200, launch_us=None))
    assert unknown.us["launch"] == 0 and unknown.binding != "launch"
    assert unknown.bound_us == max(unknown.us.values()) > 0
    assert "not known" in str(unknown) and "not known" not in str(found)
    slow = tiny("spmm", replace(H200, hbm_bytes_per_second=1.0, l2_bytes=1))
    assert slow.binding == "HBM" and slow.bound_us == pytest.approx(slow.bytes["HBM"] * 1e6)


def test_an_unknown_speed_of_the_cache_bounds_nothing():
    found = tiny("spmm", replace(H200, l2_bytes_per_second=None))
    assert found.us["L2"] == 0 and np.isfinite(found.predicted_us)


def test_instructions_and_l1_are_of_all_sms():
    found, half = tiny("spmm"), tiny("spmm", replace(H200, sms=66))
    work = work_of(TINY, found.problem, found.variant)
    assert found.us["issue"] == pytest.approx(work.least_issue / (4 * 132 * 1980))
    assert found.us["L1"] == pytest.approx(work.l1.sum() / (132 * 1980))  # 128 bytes a clock
    for name in ("issue", "L1", "arithmetic"):
        assert half.us[name] == pytest.approx(2 * found.us[name])


def test_a_row_split_kernel_cannot_pass_a_quarter_of_the_peak_of_an_h200():
    problem = problem_of("spmm", TINY, 8)
    assert l1_bytes(problem) == 4 * 3 * 8
    flops_per_us = problem.flops / l1_bound_us(problem, H200)
    assert flops_per_us == pytest.approx(16.7e6, rel=0.01)
    assert flops_per_us / (2 * H200.fp32_per_second / 1e6) == pytest.approx(1 / 4)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("gpu", GPUS)
def test_the_prediction_is_above_the_bound_of_each_step_of_the_ladder(op, gpu):
    a = with_row_lengths([5, 0, 33, 12, 1, 40, 7, 16] * 8, 256).topology
    for _, variant in LADDERS[op]:
        found = bounds_of(a, problem_of(op, a, 64), variant, GPUS[gpu])
        if gpu == "h200":
            assert found.bound_us < found.predicted_us < 100
        else:  # of which no times are known
            assert found.predicted_us is None and "no prediction" in str(found)


@pytest.mark.parametrize("op", OPS)
def test_bounds_are_those_of_the_launch_that_is_counted(op):
    found, counted = bounds(op, MATRIX, 48), count(op, MATRIX, 48)
    assert (found.problem, found.variant, found.gpu) == (counted.problem, counted.variant, H200)
    assert found == bounds_of(MATRIX.topology, found.problem, found.variant, H200)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("step", range(0, 12))
def test_no_fewer_instructions_are_issued_than_the_bound_says(op, step):
    variant = LADDERS[op][step][1]
    counted = count(op, MATRIX, 48, variant)
    assert work_of(MATRIX.topology, counted.problem, variant).least_issue <= counted.work.sum()


def test_the_prediction_adds_terms_up_by_their_norm():
    pace = cost.Pace(start_us=0.5, issue=2, l1=3, l2=0, latency=0.5, block=0, power=1)
    us = {"launch": 1.0, "L1": 3.0, "L2": 0.25, "HBM": 0.0}
    work = Work(np.array([10.0]), np.array([1.0]), np.array([5.0]), 0.0, 0.0, 0.0)
    slow = replace(H200, sms=1, schedulers=1, clock_hz=5e6)  # 2 us for 10 instructions, 0.5 for 5 half clocks
    assert predicted_us(pace, us, work, slow) == pytest.approx(1 + 0.5 + 2 * 2 + 3 * 3 + 0.25 + 0.5)
    largest = predicted_us(replace(pace, power=60), us, work, slow)
    assert largest == pytest.approx(1 + 0.5 + 9, rel=1e-6)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (4, 5)])
def test_a_matrix_with_nothing_in_it_has_bounds_that_print(op, shape):
    nothing = Topology(np.zeros(shape[0] + 1, np.int32), np.zeros(0, np.int32), shape)
    found = tiny(op, topology=nothing)
    assert found.flops == 0 and found.bound_us == 0.8 and "bound 0.80" in str(found)


def test_bounds_print_each_resource_with_its_share():
    found = tiny("sddmm")
    text = str(found)
    assert text.startswith("sddmm on H200: 48 flops")
    for name, us in found.us.items():
        assert f"{name}" in text and f"{us:.2f}" in text
    assert "100%" in text and "bound 0.80 µs, by launch; predicted" in text
    assert "<pre" in found._repr_html_()


@pytest.mark.parametrize(
    "error, match, change",
    [
        (VariantError, "vector=4 needs ldb.* ldb is 9", {"width": 9, "variant": SpmmVariant(vector=4)}),
        (TypeError, "variant is .*; it must be a SpmmVariant", {"variant": SddmmVariant()}),
        (TypeError, "gpu is 'h200'; it must be a Gpu", {"gpu": "h200"}),
        (TypeError, "topology is 3; it must be a Topology", {"topology": 3}),
        (TypeError, "problem is 3; it must be a Problem", {"problem": 3}),
        (
            ValueError,
            r"shape \(3, 5\) with 3 nonzeros; it must be that of topology, of shape \(2, 5\) with 1",
            {"topology": Topology(np.int32([0, 0, 1]), np.int32([3]), (2, 5))},
        ),
    ],
)
def test_what_has_no_bounds_is_said_with_argument_value_and_rule(error, match, change):
    options = {
        "topology": TINY, "problem": problem_of("spmm", TINY, change.pop("width", 8)),
        "variant": SpmmVariant(), "gpu": H200,
    }  # fmt: skip
    with pytest.raises(error, match=match):
        bounds_of(**options | change)


# Against the emulator

MATRIX = with_row_lengths([5, 0, 33, 12, 1, 40, 7, 16, 3, 3, 20, 9, 64, 2, 0, 8], 80)
# Steps in which lanes side by side read side by side.
STEPS = [("spmm", step) for step in (3, 5, 9, 13, 16)] + [("sddmm", step) for step in (2, 4, 8, 10, 11)]


@pytest.fixture(scope="module", params=STEPS, ids=lambda x: f"{x[0]} step {x[1]}")
def both(request):
    op, step = request.param
    variant = LADDERS[op][step][1]
    counted = count(op, MATRIX, 48, variant)
    return SimpleNamespace(op=op, counted=counted, work=work_of(MATRIX.topology, counted.problem, variant))


def test_work_has_the_blocks_that_were_launched(both):
    for array in (both.work.issue, both.work.l1, both.work.chain):
        assert array.shape == (len(both.counted.work),)
        assert (array >= 0).all() and array.max() > 0


def test_bytes_from_l1_are_those_of_the_sectors(both):
    arrays = ("B", "values", "columns") if both.op == "spmm" else ("rhs",)
    sectors = sum(both.counted.of(array)["sectors"].low for array in arrays)
    assert 0.9 <= both.work.l1_bytes / (32 * sectors) <= 1.3


def test_issued_are_one_to_four_times_the_instructions_that_the_emulator_sees(both):
    """It sees accesses, multiply-adds, shuffles and barriers, and neither addresses nor loops."""
    assert 1 <= both.work.issue.sum() / both.counted.work.sum() <= 4


def test_passes_through_l1_are_those_of_sectors_and_wavefronts(both):
    c = both.counted
    passes = c["global load sectors"].low / 4 + sum(
        c[f"shared {verb} wavefronts"].low for verb in ("load", "store")
    )
    assert 0.45 <= both.work.l1.sum() / passes <= 2


def test_blocks_with_more_to_do_are_told_from_those_with_less(both):
    work = both.counted.work.sum(axis=1)
    if len(work) < 2 or work.max() < 1.5 * work.min():
        assert both.work.issue.max() < 3 * both.work.issue.min()
    else:
        assert np.corrcoef(both.work.issue, work)[0, 1] > 0.7


def test_work_grows_with_what_there_is_to_do():
    for op in OPS:
        variant = LADDERS[op][-1][1]
        found = [
            work_of(a, problem_of(op, a, width), variant)
            for a, width in (
                (with_row_lengths([8] * 16, 64).topology, 64),
                (with_row_lengths([16] * 16, 64).topology, 64),
                (with_row_lengths([16] * 16, 64).topology, 256),
            )
        ]
        for less, more in pairwise(found):
            assert less.issue.sum() < more.issue.sum() and less.l1.sum() < more.l1.sum()
            assert less.l1_bytes < more.l1_bytes


# Against the record


@pytest.fixture(scope="module")
def measured():
    """{op: points} of the recorded ladder."""
    tree = os.environ.get(ROOT_VARIABLE)
    if not tree:
        pytest.skip(f"the layers of the record are read from a DLMC tree, and {ROOT_VARIABLE} is not set")
    everything = list(fit.points(load("ladder"), tree, H200))
    return {op: [point for point in everything if point.row.op == op] for op in OPS}


@pytest.mark.parametrize("op", OPS)
def test_no_measured_time_is_below_its_bound(op, measured):
    assert len(measured[op]) > 1000
    below = [(p.row, p.bounds.bound_us) for p in measured[op] if not p.row.time_us >= p.bounds.bound_us]
    assert below == []


@pytest.mark.parametrize("op", OPS)
def test_predictions_are_within_a_quarter_in_the_median(op, measured):
    assert median(fit.errors(measured[op])) <= 0.25


@pytest.mark.parametrize("op, problems", [("spmm", 77), ("sddmm", 147)])
def test_predictions_put_the_steps_of_a_ladder_in_order(op, problems, measured):
    agreements = fit.agreement(measured[op])
    assert len(agreements) == problems and not np.isnan(agreements).any()
    assert median(agreements) >= 0.6


def test_errors_and_agreement_by_hand():
    def point(problem, predicted, time):
        row = SimpleNamespace(problem=problem, time_us=time)
        return fit.Point(row, SimpleNamespace(predicted_us=predicted), None)

    points = [point("a", 2.0, 1.0), point("a", 3.0, 3.0), point("a", 4.0, 2.0)]
    points += [point("b", 1.0, 4.0), point("b", 2.0, 3.0)]
    assert fit.errors(points) == pytest.approx([np.log(2), 0, np.log(2), np.log(4), np.log(1.5)])
    # of a: pairs (1, 2) and (1, 3) agree, (2, 3) does not: (2 - 1) / 3; of b: one pair, the wrong way round
    assert fit.agreement(points) == pytest.approx([1 / 3, -1])
