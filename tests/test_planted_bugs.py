"""Bugs planted in the SpMM kernel are found, each at its line."""

import inspect
from dataclasses import replace
from functools import partial

import numpy as np
import planted as edits
import pytest
from lattice import poisoned, problem

from sparsekern import LADDERS, EmulatorError, Types, make_spmm, spmm
from sparsekern.kernels import spmm as page
from sparsekern.machine.emulator import emulate

PAPER = [variant for _, variant in LADDERS["spmm"] if not variant.in_flight]
BEST = replace(PAPER[-1], tile_k=8, split=4)
planted, line_of = (partial(function, page) for function in (edits.planted, edits.line_of))
STAGE_VALUES = "lanes.store(staged_values, slot + s, a)"
STAGE_COLUMNS = "lanes.store(staged_columns, slot + s, indices)"
LOAD_STAGED = "a = lanes.load(staged_values, slot + j + g"
STORE_PARTIAL, ADD_PARTIAL = "] = acc[i]", "acc[i] += partial["


def caught(make, variant=BEST):
    a, b = problem()
    with pytest.raises(EmulatorError) as info:
        spmm(a, b, variant, make=make, out=poisoned(a.shape[0]), backend="emulator")
    return info.value


def test_a_row_of_b_too_far_is_out_of_bounds():
    error = caught(planted("start = shift + index if", "start = shift + index + 24 * ldb if"))
    assert (error.kind, error.line) == ("out of bounds", line_of("b = lanes.load_if"))
    assert "B[" in str(error)


def test_a_column_off_by_one_is_misaligned():
    error = caught(planted("TILE_N + lane * VECTOR)", "TILE_N + lane * VECTOR + 1)"))
    assert (error.kind, error.line) == ("misaligned", line_of("b = lanes.load_if"))


def test_a_slice_of_odd_length_is_misaligned():
    error = caught(planted("int32(subwarp * SLICE)", "int32(subwarp * (SLICE + 1))"))
    assert error.kind == "misaligned" and "shared array" in str(error)


def test_a_full_mask_in_a_loop_of_uneven_length_is_a_deadlock():
    old = "FULL_MASK if UNIFORM_TRIP else SUBWARP_MASK << (subwarp % PER_WARP * SUBWARP)"
    variant = replace(BEST, uniform_trip=False, split=2, rows_per_block=4)
    error = caught(planted(old, "FULL_MASK"), variant)
    assert error.kind == "deadlock"
    assert error.line in {line_of("# the tile before has been read"), line_of("# the tile is there")}
    assert f"in syncthreads at line {line_of('cuda.syncthreads()')}" in str(error)


def test_reading_the_residue_past_what_was_staged_is_unwritten():
    error = caught(planted("for i in range(SCALAR_STEPS)", "for i in range(SCALAR_STEPS - 1)"))
    assert (error.kind, error.line) == ("unwritten", line_of(LOAD_STAGED))


def test_a_tile_that_is_overwritten_while_others_read_it_is_a_race():
    error = caught(planted("cuda.syncwarp(mask)  # the tile before has been read", "pass"))
    assert (error.kind, error.line, error.thread) == ("race", line_of(LOAD_STAGED), (1, 0, 0))
    assert f"thread (0, 0, 0) wrote it at line {line_of(STAGE_VALUES)}" in str(error)


@pytest.mark.parametrize(
    "barrier, line",
    [("cuda.syncwarp(mask)  # the tile is there", LOAD_STAGED), ("cuda.syncthreads()", ADD_PARTIAL)],
)
def test_what_is_read_before_the_other_lanes_have_run_is_unwritten(barrier, line):
    error = caught(planted(barrier, "pass"))
    assert (error.kind, error.line) == ("unwritten", line_of(line))


def test_a_barrier_of_too_few_lanes_is_a_race():
    error = caught(planted("cuda.syncthreads()", "cuda.syncwarp()"))  # a row is two warps
    assert (error.kind, error.line) == ("race", line_of(ADD_PARTIAL))
    assert f"wrote it at line {line_of(STORE_PARTIAL)}" in str(error)
    mask = "FULL_MASK if UNIFORM_TRIP else SUBWARP_MASK << (subwarp % PER_WARP * SUBWARP)"
    error = caught(planted(mask, "1 << cuda.laneid"))
    assert (error.kind, error.line) == ("race", line_of(LOAD_STAGED))
    assert f"wrote it at line {line_of(STAGE_VALUES)}" in str(error)


@pytest.mark.parametrize(
    "old, new, line",
    [
        ("int32(subwarp * SLICE)", "int32(subwarp // 2 * SLICE)", STAGE_COLUMNS),
        ("variant.slice_words", "variant.slice_words - 8", STAGE_COLUMNS),
        ("int32(subwarp // SPLIT * (SPLIT - 1) * TILE_N + lane)", "lane", STORE_PARTIAL),
        ("partial[mine + (part - 1) * TILE_N + i", "partial[mine + i", STORE_PARTIAL),
    ],
)
def test_two_subwarps_that_write_to_the_same_place_are_a_race(old, new, line):
    error = caught(planted(old, new))
    assert (error.kind, error.line) == ("race", line_of(line))
    assert f"wrote it at line {line_of(line)}" in str(error)


def test_a_prescaled_index_that_overflows_int32_is_out_of_bounds_where_it_is_used():
    columns, values = np.array([3], np.int32), np.ones(1, np.float32)
    work, offsets, b, c = (
        np.array([0, 1 << 32]),
        np.array([0, 1], np.int32),
        np.ones(64, np.float32),
        values * 0,
    )
    ldb = 2**30 - 4  # 3 * ldb wraps around to a negative int32
    arguments = [work, offsets, columns, values, b, ldb, c, 4, 1, 1, 0, 0, 0]
    with pytest.raises(EmulatorError) as info:
        emulate(make_spmm(BEST, Types()), (1, 1), BEST.block, arguments, outputs=(6,))
    first = inspect.getsourcelines(page.make_spmm)[1]
    assert (info.value.kind, info.value.line - first + 1) == ("out of bounds", line_of("b = lanes.load_if"))
    assert f"B[{3 * ldb - 2**32}:" in str(info.value)


def test_a_shuffle_from_lanes_that_have_left_is_an_error():
    where = "        if exists:\n            if SWIZZLE"
    make = planted(where, "        if not exists:\n            return\n" + where)
    error = caught(make, replace(BEST, rows_per_block=16, subwarp=2, split=1))  # half a warp has rows
    assert (error.kind, error.line) == ("collective", line_of("trips = lanes.warp_max") + 2)
    assert "which has exited" in str(error)
