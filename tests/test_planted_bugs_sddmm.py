"""Bugs planted in the SDDMM kernel are found, each at its line."""

from dataclasses import replace
from functools import partial

import planted as edits
import pytest
from lattice import depth, sampled

from sparsekern import LADDERS, EmulatorError, sddmm
from sparsekern.kernels import sddmm as page

BEST = LADDERS["sddmm"][-1][1]
planted, line_of = (partial(function, page) for function in (edits.planted, edits.line_of))


def caught(make, variant=BEST):
    topology, lhs, rhs = sampled(variant.tile_nnz, depth(variant))
    with pytest.raises(EmulatorError) as info:
        sddmm(topology, lhs, rhs, variant, make=make, backend="emulator")
    return info.value


def test_columns_past_the_last_strip_are_out_of_bounds():
    error = caught(planted("lanes.load_if(j < count, columns", "lanes.load_if(True, columns"))
    assert (error.kind, error.line) == ("out of bounds", line_of("columns, first + j, 1"))
    topology, _, _ = sampled(BEST.tile_nnz, depth(BEST))
    assert f"columns[{topology.stored}]" in str(error)


def test_the_end_of_the_row_after_the_last_is_out_of_bounds():
    error = caught(planted("lanes.load(offsets, row + 1, 1)", "lanes.load(offsets, row + 2, 1)"))
    assert (error.kind, error.line) == ("out of bounds", line_of("stop = int64("))
    assert "offsets[6]" in str(error)


def test_a_row_of_rhs_too_far_is_out_of_bounds():
    error = caught(planted("right + indices[u] * ld_rhs", "right + (indices[u] + 20) * ld_rhs"))
    assert (error.kind, error.line) == ("out of bounds", line_of("y = lanes.load_if"))
    assert "rhs[" in str(error)


def test_an_element_off_by_one_is_misaligned():
    error = caught(planted("int32(v * VECTOR)", "int32(v * VECTOR + 1)"))
    assert (error.kind, error.line) == ("misaligned", line_of("x = lanes.load(lhs"))


def test_a_slice_of_odd_length_is_misaligned():
    error = caught(planted("int32(subwarp * TILE_NNZ)", "int32(subwarp * (TILE_NNZ + 1))"))
    assert (error.kind, error.line) == ("misaligned", line_of("indices = lanes.load(staged"))
    assert "shared array" in str(error)


READ_BACK = "lanes.load(out, batch * out_stride + first + j, 1)"
UNWRITTEN = {
    "staging one column short": ("range(RESULTS):  # New", "range(RESULTS - 1):  # New", "load(staged"),
    "sums that nobody zeroes": ("acc[j] = SUM(0)", "pass", "lanes.dot("),
    "a result that is read back": ("lanes.take(acc, i * SUBWARP, 1)", READ_BACK, "lanes.store(out"),
}


@pytest.mark.parametrize("bug", UNWRITTEN)
def test_reading_what_nothing_was_written_to_is_unwritten(bug):
    old, new, line = UNWRITTEN[bug]
    error = caught(planted(old, new), replace(BEST, subwarp=4, reduction="butterfly"))
    assert (error.kind, error.line) == ("unwritten", line_of(line))


def test_a_full_mask_where_only_some_subwarps_have_a_strip_is_a_deadlock():
    make = planted("SUBWARP_MASK << (subwarp % PER_WARP * SUBWARP)", "lanes.FULL_MASK")
    for work in ("grid", "strips"):
        error = caught(make, replace(BEST, work=work, split=2))
        assert (error.kind, error.line) == ("deadlock", line_of("cuda.syncwarp(mask)"))
        assert f"in syncthreads at line {line_of('cuda.syncthreads()')}" in str(error)


@pytest.mark.parametrize(
    "reduction, old, new",
    [
        ("halving", "given, half)", "given, 2 * half)"),
        ("butterfly", "total, SUBWARP >> (h + 1))", "total, SUBWARP >> h)"),
    ],
)
def test_a_shuffle_with_a_lane_of_another_subwarp_is_an_error_of_its_mask(reduction, old, new):
    error = caught(planted(old, new), replace(BEST, reduction=reduction))
    assert (error.kind, error.line) == ("collective", line_of(old))
    assert "reads lane 8, which has exited or is not in its mask" in str(error)


def test_a_mask_that_is_one_lane_short_does_not_name_its_caller():
    error = caught(planted("FULL_MASK >> (32 - SUBWARP)", "FULL_MASK >> (33 - SUBWARP)"))
    assert (error.kind, error.line) == ("collective", line_of("cuda.syncwarp(mask)"))
    assert "syncwarp with mask 0x0000007f does not name its caller, lane 7" in str(error)


def test_a_shuffle_from_a_lane_that_has_left_is_an_error():
    leave = "cuda.syncwarp(mask)\n            if lane == 3:\n                return"
    error = caught(planted("cuda.syncwarp(mask)", leave))
    assert (error.kind, error.line) == ("collective", line_of("given, half)") + 2)
    assert "reads lane 3, which has exited" in str(error)


STAGE, READ = "lanes.store(staged, slot + j", "lanes.load(staged, slot + j, GROUP)"
STORE_PARTIAL = "partial[place + ((part - 1) * RESULTS + i)"
RACES = {  # bug -> (old text, new text, line of the report, line of the other access)
    "one slice for two": ("int32(subwarp * TILE_NNZ)", "int32(subwarp // 2 * TILE_NNZ)", STAGE, STAGE),
    "one place for all parts": (STORE_PARTIAL, "partial[place + i", STORE_PARTIAL, STORE_PARTIAL),
    "columns of a neighbour": (READ, "lanes.load(staged, (slot ^ TILE_NNZ) + j, GROUP)", READ, STAGE),
}


@pytest.mark.parametrize("bug", RACES)
def test_lanes_that_meet_at_one_word_without_a_barrier_are_a_race(bug):
    old, new, line, other = RACES[bug]
    error = caught(planted(old, new), replace(BEST, split=4))
    assert (error.kind, error.line) == ("race", line_of(line))
    assert f"wrote it at line {line_of(other)}" in str(error)
