"""Strips: rows cut into pieces for SDDMM, and put in order of work."""

from functools import partial
from itertools import product

import numpy as np
import pytest

from sparsekern import Topology
from sparsekern.problem import TILES, RowStats
from sparsekern.zoo import ZOO

ORDERS = list(product((False, True), repeat=3))  # by_column, bundle, bin


def cut(topology, tile, *order):
    """(rows, starts, lengths) of strips."""
    rows, starts = topology.strips(tile, *order)
    return rows, starts, np.minimum(topology.offsets[rows + 1] - starts, tile)


@pytest.mark.parametrize("name", ZOO)
def test_strips_cover_every_nonzero_once_and_none_is_empty(name):
    topology = ZOO[name].make().topology
    first, last = topology.offsets[[0, -1]]
    for tile, order, per_block in product(TILES, ORDERS, (1, 4, 32)):
        rows, starts, lengths = cut(topology, tile, *order, per_block)
        assert (rows.dtype, starts.dtype) == (np.int32, topology.offsets.dtype)
        assert ((1 <= lengths) & (lengths <= tile)).all()
        assert ((topology.offsets[rows] <= starts) & (starts < topology.offsets[rows + 1])).all()
        covered = [np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        assert sorted(np.concatenate([*covered, []])) == list(range(first, last))


@pytest.mark.parametrize("name", ZOO)
def test_strips_are_as_many_as_a_problem_says(name):
    topology = ZOO[name].make().topology
    stats = RowStats.of(topology.row_lengths)
    for tile in TILES:
        assert len(topology.strips(tile, False, False, False, 1)[0]) == stats.strips_of(tile)


@pytest.mark.parametrize("name", ["lengths_0_to_40", "power_law_rows", "window_of_rows"])
def test_strips_are_in_the_order_of_rows_unless_bundled_or_binned(name):
    topology = ZOO[name].make().topology
    for tile in TILES:
        _, starts, _ = cut(topology, tile, False, False, False, 4)
        assert (np.diff(starts) > 0).all()


@pytest.mark.parametrize("name", ["lengths_0_to_40", "power_law_rows", "window_of_rows"])
def test_bundling_puts_strips_of_like_length_into_a_block_and_binning_the_longest_first(name):
    topology = ZOO[name].make().topology
    for tile, per_block in product(TILES, (1, 4)):
        *_, lengths = cut(topology, tile, False, True, True, per_block)
        assert (np.diff(lengths) <= 0).all()
        *_, lengths = cut(topology, tile, False, False, True, per_block)
        whole = lengths[: len(lengths) // per_block * per_block].reshape(-1, per_block)
        assert (np.diff(whole.max(axis=1)) <= 0).all()
        *_, bundled = cut(topology, tile, False, True, False, per_block)
        alike = -np.sort(-lengths)
        blocks = range(0, len(lengths), per_block)
        assert sorted(tuple(bundled[i : i + per_block]) for i in blocks) == sorted(
            tuple(alike[i : i + per_block]) for i in blocks
        )


@pytest.mark.parametrize("name", ["lengths_0_to_40", "power_law_rows", "window_of_rows"])
def test_of_strips_alike_those_that_begin_further_left_come_first(name):
    topology = ZOO[name].make().topology
    for tile in TILES:
        _, starts, lengths = cut(topology, tile, True, True, True, 4)
        left = topology.columns[starts]
        assert all((np.diff(left[lengths == length]) >= 0).all() for length in set(lengths))
        _, starts, _ = cut(topology, tile, True, False, False, 4)
        assert (np.diff(topology.columns[starts]) >= 0).all()


def test_strips_are_cut_once():
    topology = ZOO["pruned_layer"].make().topology
    order = 8, True, True, True
    assert topology.strips(*order, 4) is topology.strips(*order, 4)
    assert topology.strips(*order, 4) is not topology.strips(*order, 8)
    assert topology.strips(*order, 4) is not topology.strips(8, False, True, True, 4)


# The lists of work that kernels read are the same, packed


def unpacked(work):
    """(first, rows, lengths), as a kernel takes them out of its two int64."""
    first, packed = work.T
    return first, packed.astype(np.int32), (packed >> 32).astype(np.int32)


def check_lists(topology, tile, by_column, *order):
    lengths = np.diff(topology.offsets)
    rows = topology.row_order(*order)
    of_rows = rows, topology.offsets[rows], lengths[rows]
    for work, expected in (
        (topology.row_list(*order), of_rows),
        (topology.strip_list(tile, by_column, *order), cut(topology, tile, by_column, *order)),
    ):
        rows, starts, lengths = expected
        assert (work.dtype, work.shape, work.flags.writeable) == (np.int64, (len(rows), 2), False)
        for found, column in zip(unpacked(work), (starts, rows, lengths), strict=True):
            assert found.tolist() == column.tolist()


@pytest.mark.parametrize("name", ZOO)
def test_lists_say_what_orders_strips_and_offsets_say(name):
    topology = ZOO[name].make().topology
    for tile, order, per_block in product((1, 8, 64), ORDERS, (1, 4)):
        check_lists(topology, tile, *order, per_block)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("shift", [0, 5])
def test_lists_of_offsets_that_do_not_begin_at_0_name_positions_in_the_whole_of_columns(dtype, shift):
    offsets = (np.array([0, 3, 3, 4, 14]) + shift).astype(dtype)
    topology = Topology(offsets, np.zeros(offsets[-1] + 2, np.int32), (4, 3))
    listed = (topology.row_list(False, False, 1), topology.strip_list(8, False, True, True, 1))
    assert [[column.tolist() for column in unpacked(work)] for work in listed] == [
        [[shift, shift + 3, shift + 3, shift + 4], [0, 1, 2, 3], [3, 0, 1, 10]],
        [[shift + 4, shift, shift + 12, shift + 3], [3, 0, 3, 2], [8, 3, 2, 1]],
    ]
    for order in ORDERS:
        check_lists(topology, 8, *order, 2)


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (3, 0), (3, 4)])
def test_lists_of_an_empty_matrix_have_its_rows_and_no_strip(shape):
    topology = Topology(np.zeros(shape[0] + 1, np.int32), np.zeros(0, np.int32), shape)
    for order in ORDERS:
        check_lists(topology, 8, *order, 4)
    assert topology.row_list(True, True, 4).tolist() == [[0, row] for row in range(shape[0])]
    assert topology.strip_list(8, True, True, True, 4).shape == (0, 2)


def test_a_list_holds_positions_and_lengths_near_the_ends_of_their_ranges():
    topology = Topology(np.zeros(3, np.int64), np.zeros(0, np.int32), (2, 1))
    offsets = np.array([2**40, 2**40, 2**40 + 2**31 - 1])  # of columns that would take 4 TiB
    vars(topology).update(offsets=offsets, row_lengths=np.diff(offsets))
    long = [2**40, 1 + (2**31 - 1 << 32)]
    assert topology.row_list(False, False, 1).tolist() == [[2**40, 0], long]
    assert topology.row_list(True, True, 1).tolist() == [long, [2**40, 0]]


def test_lists_are_made_once():
    topology = ZOO["pruned_layer"].make().topology
    for make in (topology.row_list, partial(topology.strip_list, 8, False)):
        assert make(True, True, 4) is make(True, True, 4)
        assert make(True, True, 4) is not make(True, False, 4)
    assert topology.strip_list(8, True, True, True, 4) is not topology.strip_list(16, True, True, True, 4)
