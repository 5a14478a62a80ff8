"""Bugs planted in the SpMM kernel are found, each at its line."""

import inspect
import linecache
from dataclasses import replace

import numpy as np
import pytest
from lattice import poisoned, problem

from sparsekern import LADDERS, EmulatorError, Types, make_spmm, spmm
from sparsekern.kernels import spmm as page
from sparsekern.machine.emulator import emulate

BEST = replace(LADDERS["spmm"][-1][1], tile_k=8)
SOURCE = inspect.getsource(make_spmm)


def line_of(text, source=SOURCE):
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


def planted(old, new):
    """`make_spmm` with one piece of its text changed, as an edit in a notebook would."""
    assert SOURCE.count(old) == 1
    source = SOURCE.replace(old, new)
    name = f"<planted {new}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope = dict(vars(page))
    exec(compile(source, name, "exec"), scope)
    return scope["make_spmm"]


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
    assert (error.kind, error.line) == ("unwritten", line_of("a = lanes.load(staged_values, slot + j + g"))


def test_a_prescaled_index_that_overflows_int32_is_out_of_bounds_where_it_is_used():
    columns, values = np.array([3], np.int32), np.ones(1, np.float32)
    order, offsets, b, c = (
        np.zeros(1, np.int32),
        np.array([0, 1], np.int32),
        np.ones(64, np.float32),
        values * 0,
    )
    ldb = 2**30 - 4  # 3 * ldb wraps around to a negative int32
    arguments = [order, offsets, columns, values, b, ldb, c, 4, 1, 1, 0, 0, 0]
    with pytest.raises(EmulatorError) as info:
        emulate(make_spmm(BEST, Types()), (1, 1), BEST.block, arguments, outputs=(6,))
    first = inspect.getsourcelines(make_spmm)[1]
    assert (info.value.kind, info.value.line - first + 1) == ("out of bounds", line_of("b = lanes.load_if"))
    assert f"B[{3 * ldb - 2**32}:" in str(info.value)
