"""Bugs planted in the SpMM kernel with loads in flight are found, each at its line or in the result."""

import inspect
from dataclasses import replace
from functools import partial

import numpy as np
import planted as edits
import pytest
from lattice import SHORT, poisoned, problem

from sparsekern import LADDERS, EmulatorError, Types, spmm
from sparsekern.kernels import spmm_in_flight as page
from sparsekern.machine.emulator import emulate

# Tiles of two groups. A warp has two rows, each in two parts; or it is one part of a row.
BEST = replace(LADDERS["spmm"][-1][1], subwarp=8, tile_k=8, in_flight=4, rows_per_block=4, split=2)
PLAIN = replace(BEST, prefetch=False)
WIDE, WIDE_PLAIN = (replace(variant, subwarp=32) for variant in (BEST, PLAIN))
planted, line_of = (partial(function, page) for function in (edits.planted, edits.line_of))

READ_BEFORE = "cuda.syncwarp(FULL_MASK)  # the tile before has been read"
IS_THERE = "cuda.syncwarp(FULL_MASK)  # the tile is there"
IN_GROUP = "cuda.syncwarp(FULL_MASK)\n"
OF_BLOCK = "cuda.syncthreads()"
STAGE_COLUMNS, STAGE_VALUES = "lanes.store(staged_columns, slot + s", "lanes.store(staged_values, slot + s"
READ_COLUMNS, READ_VALUES = "indices = lanes.load(staged_columns", "a = lanes.load(staged_values"
LOAD_B = "b = lanes.load_if(wanted"
STORE_PARTIAL, ADD_PARTIAL = "] = acc[i]", "acc[i] += partial["


def barrier(text):
    """The line of the one barrier whose text, to the end of its line if it is there, is this."""
    return edits.source_of(page).partition(text)[0].count("\n") + 1


def run(make, variant):
    a, b = problem(SHORT)
    out = poisoned(a.shape[0])
    spmm(a, b, variant, make=make, out=out, backend="emulator")
    return out


def caught(make, variant=BEST):
    with pytest.raises(EmulatorError) as info:
        run(make, variant)
    return info.value


def changed(make, variant=BEST):
    """(rows of C that a planted kernel, which runs without an error, gets otherwise; what it gets there)."""
    found, expected = (run(factory, variant) for factory in (make, page.make_spmm_in_flight))
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    rows = np.flatnonzero(~same.all(axis=1))
    return rows.tolist(), found[rows]


# bug -> (old text, new text, variants, line of the report, line of the other access)
RACES = {
    "the tile before not yet read": (READ_BEFORE, "pass", (PLAIN, WIDE_PLAIN), STAGE_VALUES, READ_VALUES),
    "the tile not yet there": (IS_THERE, "pass  #", (PLAIN, BEST), READ_COLUMNS, STAGE_COLUMNS),
    "sums not yet there": (OF_BLOCK, "cuda.syncwarp()", (WIDE_PLAIN, WIDE), ADD_PARTIAL, STORE_PARTIAL),
    "one buffer for two": ("t % BUFFERS", "0", (BEST, WIDE), STAGE_VALUES, READ_VALUES),
    "the slot of a neighbour": (
        "(subwarp * BUFFERS", "(subwarp // 2 * BUFFERS", (PLAIN, BEST), STAGE_COLUMNS, STAGE_COLUMNS,
    ),
    "slots that overlap": (
        "variant.slice_words", "variant.slice_words - 8", (PLAIN, WIDE_PLAIN), STAGE_COLUMNS, STAGE_COLUMNS,
    ),
    "a group past the tile": (
        "+ g, READ)\n                    for u in range(READ):\n                        b_row",
        "+ g + TILE_K, READ)\n                    for u in range(READ):\n                        b_row",
        (replace(PLAIN, stage_pad=0),), READ_COLUMNS, STAGE_COLUMNS,
    ),
    "one place for all parts": (
        "partial[mine + (part - 1) * TILE_N + i", "partial[mine + i",
        (replace(PLAIN, split=4), replace(BEST, split=4)), STORE_PARTIAL, STORE_PARTIAL,
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", RACES)
def test_accesses_to_one_word_without_a_barrier_are_a_race(bug):
    old, new, variants, line, other = RACES[bug]
    for variant in variants:
        error = caught(planted(old, new), variant)
        assert (error.kind, error.line) == ("race", line_of(line))
        verb = "read" if "load" in other else "wrote"
        assert f"{verb} it at line {line_of(other)}" in str(error)


# bug -> (old text, new text, variants, line)
UNWRITTEN = {
    "a barrier after the tile": (IS_THERE, "pass  #", (WIDE_PLAIN, WIDE), READ_COLUMNS),
    "a barrier before the sums": (OF_BLOCK, "pass", (PLAIN, BEST), ADD_PARTIAL),
    "the last nonzero of a tile": ("if s < TILE_K:", "if s < TILE_K - 1:", (PLAIN, BEST), READ_COLUMNS),
    "the last step of a tile": (
        "STEPS = -(-TILE_K // SUBWARP)", "STEPS = TILE_K // SUBWARP", (WIDE_PLAIN, WIDE), READ_COLUMNS,
    ),
    "a group past the tile": (
        "int32(0), lanes.warp_max(stop, SUBWARP)", "int32(0), lanes.warp_max(stop, SUBWARP) + GROUP",
        (PLAIN, BEST), READ_COLUMNS,
    ),
    "sums that nobody zeroes": ("acc[i] = SUM(0)", "pass", (PLAIN, BEST), "lanes.axpy("),
    "one place for the rows of a group": (
        "lanes.put(b, held, (g + u)", "lanes.put(b, held, g", (PLAIN, BEST), "b = lanes.take(held",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", UNWRITTEN)
def test_what_is_missing_and_read_all_the_same_is_unwritten(bug):
    old, new, variants, line = UNWRITTEN[bug]
    for variant in variants:
        error = caught(planted(old, new), variant)
        assert (error.kind, error.line) == ("unwritten", line_of(line))


# bug -> (old text, new text, kind, line, what)
ACCESSES = {
    "columns past the last": (
        " & (int32(column + i * STRIDE) < n)", "", "out of bounds", LOAD_B, "B[288:292]",
    ),
    "a column off by one": ("lane * VECTOR)  #", "lane * VECTOR + 1)  #", "misaligned", LOAD_B, "B["),
    "an index that is not scaled": (", 1), ldb)", ", 1), 1)", "misaligned", LOAD_B, "B["),
    "nonzeros past the last row": (
        " & (tile + s < length)", "", "out of bounds", "row_values, int32(tile + s)", "values[95]",
    ),
    "columns past the last row": (
        "load_if(ours, row_columns", "load_if(s < TILE_K, row_columns",
        "out of bounds", "row_columns, int32(tile + s)", "columns[95]",
    ),
    "too few registers": (
        "HELD = GROUP", "HELD = (GROUP - 1)", "out of bounds", "lanes.put(b", "register [12:16]",
    ),
    "the next position": (
        "work, 2 * position", "work, 2 * position + 2", "out of bounds", "work, 2 *", "work[16:18]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("variant", [PLAIN, BEST], ids=["plain", "prefetch"])
@pytest.mark.parametrize("bug", ACCESSES)
def test_an_access_past_the_end_or_between_vectors_is_an_error(bug, variant):
    old, new, kind, line, what = ACCESSES[bug]
    error = caught(planted(old, new), variant)
    assert (error.kind, error.line) == (kind, line_of(line))
    assert what in str(error)


@pytest.mark.parametrize("variant", [PLAIN, BEST], ids=["plain", "prefetch"])
@pytest.mark.parametrize(
    "old, new, line",
    [
        ("trips = lanes.warp_max(trips, SUBWARP)", "pass", IS_THERE),
        ("lanes.warp_max(stop, SUBWARP)", "stop", IN_GROUP),
    ],
    ids=["tiles", "groups"],
)
def test_subwarps_of_a_warp_that_loop_on_their_own_are_a_deadlock(old, new, line, variant):
    error = caught(planted(old, new), variant)
    assert (error.kind, error.line) == ("deadlock", barrier(line))
    assert f"in syncthreads at line {line_of(OF_BLOCK)}" in str(error)


# bug -> (old text, new text, variants, rows of C that come out otherwise)
RESULTS = {
    "no mask for the last of a row": ("(g + u < left) & ", "", (WIDE_PLAIN, WIDE), [1, 2, 5, 6, 7]),
    "nor for rows that end before their neighbour": (
        "(g + u < left) & ", "", (PLAIN, BEST), [0, 1, 2, 3, 5, 6, 7],
    ),
    "the next part's tile": ("tile + SPLIT * TILE_K", "tile + TILE_K", (WIDE,), [4, 6]),
    "rows as columns": (
        "row_block, column_tile = cuda.blockIdx.y, cuda.blockIdx.x", "pass", (PLAIN, BEST), [0, 2, 5, 7],
    ),
    "the first of a group for all": (
        "lanes.take(held, (g + u)", "lanes.take(held, g", (PLAIN, BEST), [1, 3, 5, 6, 7],
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", RESULTS)
def test_what_no_access_betrays_is_a_wrong_result(bug):
    old, new, variants, rows = RESULTS[bug]
    for variant in variants:
        assert changed(planted(old, new), variant)[0] == rows


@pytest.mark.parametrize("variant", [PLAIN, BEST], ids=["plain", "prefetch"])
def test_a_row_of_b_that_should_have_been_masked_leaks_its_nan(variant):
    """What is past a row has position 0 and value 0; row 0 of B, which no nonzero touches, is NaN."""
    rows, found = changed(planted("(g + u < left) & ", ""), variant)
    assert rows and np.isnan(found).all()


@pytest.mark.parametrize("variant", [PLAIN, BEST, WIDE], ids=str)
def test_the_barrier_inside_a_group_orders_no_memory_and_changes_no_result(variant):
    """It keeps the compiler from moving loads past it. All that it orders has been ordered before."""
    assert changed(planted(IN_GROUP, "pass\n"), variant)[0] == []


def test_a_prescaled_index_that_overflows_int32_is_out_of_bounds_where_it_is_used():
    columns, values = np.array([3], np.int32), np.ones(1, np.float32)
    work, offsets = np.array([0, 1 << 32]), np.array([0, 1], np.int32)
    b, c = np.ones(64, np.float32), np.zeros(4, np.float32)
    ldb = 2**30 - 4  # 3 * ldb wraps around to a negative int32
    arguments = [work, offsets, columns, values, b, ldb, c, 4, 1, 1, 0, 0, 0]
    with pytest.raises(EmulatorError) as info:
        emulate(page.make_spmm_in_flight(BEST, Types()), (1, 1), BEST.block, arguments, outputs=(6,))
    first = inspect.getsourcelines(page.make_spmm_in_flight)[1]
    assert (info.value.kind, info.value.line - first + 1) == ("out of bounds", line_of(LOAD_B))
    assert f"B[{3 * ldb - 2**32}:" in str(info.value)
