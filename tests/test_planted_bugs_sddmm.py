"""Bugs planted in the SDDMM kernel are found, each at its line."""

from dataclasses import replace
from functools import partial

import numpy as np
import planted as edits
import pytest
from lattice import depth, sampled

from sparsekern import LADDERS, EmulatorError, Topology, sddmm
from sparsekern.kernels import sddmm as page

BEST = LADDERS["sddmm"][-1][1]
BOUNDED = replace(BEST, work="bounded", by_column=False)  # where a subwarp has a mask of its own
planted, line_of = (partial(function, page) for function in (edits.planted, edits.line_of))


def caught(make, variant=BEST):
    topology, lhs, rhs = sampled(variant.tile_nnz, depth(variant))
    with pytest.raises(EmulatorError) as info:
        sddmm(topology, lhs, rhs, variant, make=make, backend="emulator")
    return info.value


def wrong(make, variant=BEST):
    """Where the result of a planted kernel, which runs without an error, is not what it should be."""
    topology, lhs, rhs = sampled(variant.tile_nnz, depth(variant))
    found, expected = (
        sddmm(topology, lhs, rhs, variant, make=factory, backend="emulator").values
        for factory in (make, page.make_sddmm)
    )
    return (found != expected) & ~(np.isnan(found) & np.isnan(expected)), found


def test_columns_past_the_last_strip_are_out_of_bounds():
    error = caught(planted("lanes.load_if(j < count, columns", "lanes.load_if(True, columns"))
    assert (error.kind, error.line) == ("out of bounds", line_of("columns, first + j, 1"))
    topology, _, _ = sampled(BEST.tile_nnz, depth(BEST))
    assert f"columns[{topology.stored}]" in str(error)


PAST_THE_END = {  # bug -> (old text, new text, variant, line, what is read)
    "the row after the last": (
        "lanes.load(offsets, row + 1, 1)",
        "lanes.load(offsets, row + 2, 1)",
        replace(BOUNDED, bundle=False, bin=False),
        "count = int32(lanes.load(offsets",
        "offsets[6]",
    ),
    "a strip after the last": (
        "position < positions",
        "position <= positions",
        BEST,
        "work, 2 *",
        "work[10:12]",
    ),
    "the next strip": ("work, 2 * position", "work, 2 * position + 2", BEST, "work, 2 *", "work[10:12]"),
    "the next row": ("work, 2 * position", "work, 2 * position + 2", BOUNDED, "work, 2 *", "work[10:12]"),
}


@pytest.mark.parametrize("bug", PAST_THE_END)
def test_work_past_the_last_is_out_of_bounds(bug):
    old, new, variant, line, what = PAST_THE_END[bug]
    error = caught(planted(old, new), variant)
    assert (error.kind, error.line) == ("out of bounds", line_of(line))
    assert f"{what} read" in str(error)


@pytest.mark.parametrize("tile_nnz, load", [(8, "y = lanes.load_or_leave"), (64, "y = lanes.load_if")])
@pytest.mark.parametrize(
    "prescale, old, new",
    [
        (False, "shift + rows[j] * ld_rhs", "shift + (rows[j] + 200) * ld_rhs"),
        (True, "int32(rows[j] + s)", "int32(rows[j] + 200 * ld_rhs + s)"),
    ],
)
def test_a_row_of_rhs_too_far_is_out_of_bounds(prescale, old, new, tile_nnz, load):
    error = caught(planted(old, new), replace(BEST, prescale=prescale, tile_nnz=tile_nnz))
    assert (error.kind, error.line) == ("out of bounds", line_of(load))
    assert "rhs[" in str(error)


def test_an_element_off_by_one_is_misaligned():
    error = caught(planted("t * STRIDE + lane * VECTOR)", "t * STRIDE + lane * VECTOR + 1)"))
    assert (error.kind, error.line) == ("misaligned", line_of("x = lanes.load_or_leave"))
    assert "lhs[" in str(error)


@pytest.mark.parametrize(
    "variant, kind, line",
    [
        (BOUNDED, "misaligned", "lanes.load(staged"),
        (BEST, "out of bounds", "lanes.store(staged"),  # where subwarps that have no strip stage as well
    ],
    ids=lambda value: getattr(value, "work", ""),
)
def test_a_slice_of_odd_length_is_misaligned_or_leaves_none_for_the_last(variant, kind, line):
    error = caught(planted("int32(subwarp * TILE_NNZ)", "int32(subwarp * (TILE_NNZ + 1))"), variant)
    assert (error.kind, error.line) == (kind, line_of(line))
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


STAGED_BARRIER = "cuda.syncwarp(mask)"


@pytest.mark.parametrize(
    "variant, old, new",
    [
        (
            replace(BOUNDED, work="grid"),
            "FULL_MASK if TOGETHER else SUBWARP_MASK",
            "FULL_MASK if True else SUBWARP_MASK",
        ),
        (BOUNDED, "FULL_MASK if TOGETHER else SUBWARP_MASK", "FULL_MASK if True else SUBWARP_MASK"),
        (replace(BEST, tile_nnz=32), "FULL_MASK if TOGETHER else", "FULL_MASK if True else"),
        (BEST, "if TOGETHER or count > 0:", "if count > 0:"),  # the last warp of a list is half empty
    ],
    ids=lambda value: getattr(value, "work", ""),
)
def test_a_full_mask_where_only_some_subwarps_have_a_strip_is_a_deadlock(variant, old, new):
    error = caught(planted(old, new), variant)
    assert (error.kind, error.line) == ("deadlock", line_of(STAGED_BARRIER))
    assert f"in syncthreads at line {line_of('cuda.syncthreads()')}" in str(error)


FOREIGN = pytest.mark.parametrize(
    "reduction, old, new",
    [
        ("halving", "given, half)", "given, 2 * half)"),
        ("butterfly", "total, SUBWARP >> (h + 1))", "total, SUBWARP >> h)"),
    ],
)


@FOREIGN
def test_a_shuffle_with_a_lane_of_another_subwarp_is_an_error_of_its_mask(reduction, old, new):
    error = caught(planted(old, new), replace(BOUNDED, reduction=reduction))
    assert (error.kind, error.line) == ("collective", line_of(old))
    assert "reads lane 8, which has exited or is not in its mask" in str(error)


@FOREIGN
def test_under_the_full_mask_of_a_list_it_is_a_wrong_result(reduction, old, new):
    where, _ = wrong(planted(old, new), replace(BEST, reduction=reduction, split=1))
    assert where.any()


@pytest.mark.parametrize(
    "variant, old, new, mask, lane",
    [
        (BOUNDED, "FULL_MASK >> (32 - SUBWARP)", "FULL_MASK >> (33 - SUBWARP)", "0x0000007f", 7),
        (BEST, "FULL_MASK if TOGETHER", "FULL_MASK >> 1 if TOGETHER", "0x7fffffff", 31),
    ],
    ids=lambda value: getattr(value, "work", ""),
)
def test_a_mask_that_is_one_lane_short_does_not_name_its_caller(variant, old, new, mask, lane):
    error = caught(planted(old, new), variant)
    assert (error.kind, error.line) == ("collective", line_of(STAGED_BARRIER))
    assert f"syncwarp with mask {mask} does not name its caller, lane {lane}" in str(error)


def test_a_shuffle_from_a_lane_that_has_left_is_an_error():
    leave = "cuda.syncwarp(mask)\n            if lane == 3:\n                return"
    error = caught(planted("cuda.syncwarp(mask)", leave))
    assert (error.kind, error.line) == ("collective", line_of("given, half)") + 2)
    assert "reads lane 3, which has exited" in str(error)


STAGE, READ = "lanes.store(staged, slot + j", "lanes.load(staged, slot + j, GROUP)"
STORE_PARTIAL = "partial[mine + ((part - 1) * RESULTS + i)"
RACES = {  # bug -> (old text, new text, line of the report, line of the other access)
    "one slice for two": ("int32(subwarp * TILE_NNZ)", "int32(subwarp // 2 * TILE_NNZ)", STAGE, STAGE),
    "one place for all parts": (STORE_PARTIAL, "partial[mine + i", STORE_PARTIAL, STORE_PARTIAL),
    "columns of a neighbour": (READ, "lanes.load(staged, (slot ^ TILE_NNZ) + j, GROUP)", READ, STAGE),
    "a barrier for each": (STAGED_BARRIER, "cuda.syncwarp(1 << cuda.laneid)", READ, STAGE),
}


@pytest.mark.parametrize("bug", RACES)
def test_lanes_that_meet_at_one_word_without_a_barrier_are_a_race(bug):
    old, new, line, other = RACES[bug]
    error = caught(planted(old, new), replace(BOUNDED, split=4))
    assert (error.kind, error.line) == ("race", line_of(line))
    assert f"wrote it at line {line_of(other)}" in str(error)


@pytest.mark.parametrize("barrier, line", [(STAGED_BARRIER, READ), ("cuda.syncthreads()", "] += partial[")])
def test_what_is_read_before_the_other_lanes_have_run_is_unwritten(barrier, line):
    error = caught(planted(barrier, "pass"))
    assert (error.kind, error.line) == ("unwritten", line_of(line))


def test_a_barrier_of_too_few_lanes_is_a_race():
    wide = replace(BEST, subwarp=32, reduction="butterfly", rows_per_block=1)  # each part is a warp
    error = caught(planted("cuda.syncthreads()", "cuda.syncwarp()"), wide)
    assert (error.kind, error.line) == ("race", line_of("] += partial["))
    assert f"wrote it at line {line_of(STORE_PARTIAL)}" in str(error)


# What load_or_leave leaves in registers is never stored.

STORED = "if j < count:"
IN_OUT = "if count > 0 and first + j < out.size:"


@pytest.mark.parametrize("new", ["if True:", "if j <= count:"])
def test_a_sum_past_the_strip_that_is_stored_is_out_of_bounds_at_the_last(new):
    error = caught(planted(STORED, new))
    assert (error.kind, error.line) == ("out of bounds", line_of("lanes.store(out"))
    topology, _, _ = sampled(BEST.tile_nnz, depth(BEST))
    assert f"out[{topology.stored}] written" in str(error)


def test_a_sum_past_the_strip_that_is_stored_is_nan_in_the_next_row():
    """Of the strips, which are those of 3 and 1 nonzeros, the longer is stored first."""
    topology = Topology(np.array([0, 1, 4], np.int32), np.arange(4, dtype=np.int32), (2, 4))
    lhs, rhs = np.ones((2, 64), np.float32), np.ones((4, 64), np.float32)
    for new, expected in ((STORED, [64] * 4), (IN_OUT, [64, *[np.nan] * 3])):
        found = sddmm(topology, lhs, rhs, BEST, make=planted(STORED, new), backend="emulator").values
        assert np.array_equal(found, expected, equal_nan=True)


def test_the_row_of_lhs_that_is_not_loaded_for_an_only_nonzero_leaves_nan():
    where, found = wrong(
        planted("lanes.load_or_leave(count > 0, left", "lanes.load_or_leave(count > 1, left")
    )
    single = 2 * BEST.tile_nnz  # the last nonzero of a row of two strips more, and the one of the next row
    assert np.flatnonzero(where).tolist() == [single, single + 1]
    assert np.isnan(found[where]).all()


@pytest.mark.parametrize("prescale", [False, True])
def test_a_row_of_rhs_that_is_not_loaded_leaves_nan(prescale):
    """The last of each strip, but for those of lhs's row of NaN, whose results are NaN anyway."""
    make = planted("lanes.load_or_leave(j < count", "lanes.load_or_leave(j < count - 1")
    where, found = wrong(make, replace(BEST, prescale=prescale))
    tile = BEST.tile_nnz
    assert np.flatnonzero(where).tolist() == [tile - 1, 2 * tile - 1, 2 * tile, 2 * tile + 1]
    assert np.isnan(found[where]).all()


def test_a_list_of_lengths_that_are_one_too_long_is_out_of_bounds():
    error = caught(planted("int32(packed >> 32)", "int32(packed >> 32) + 1"))
    assert (error.kind, error.line) == ("out of bounds", line_of("columns, first + j, 1"))
