"""Strips: rows cut into pieces for SDDMM, and put in order of work."""

from itertools import product

import numpy as np
import pytest

from sparsekern.problem import TILES, RowStats
from sparsekern.zoo import ZOO

SWIZZLES = list(product((False, True), repeat=2))


def cut(topology, tile, *order):
    """(rows, starts, lengths) of strips."""
    rows, starts = topology.strips(tile, *order)
    return rows, starts, np.minimum(topology.offsets[rows + 1] - starts, tile)


@pytest.mark.parametrize("name", ZOO)
def test_strips_cover_every_nonzero_once_and_none_is_empty(name):
    topology = ZOO[name].make().topology
    first, last = topology.offsets[[0, -1]]
    for tile, swizzle, per_block in product(TILES, SWIZZLES, (1, 4, 32)):
        rows, starts, lengths = cut(topology, tile, *swizzle, per_block)
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
        assert len(topology.strips(tile, False, False, 1)[0]) == stats.strips_of(tile)


@pytest.mark.parametrize("name", ["lengths_0_to_40", "power_law_rows", "window_of_rows"])
def test_strips_are_in_the_order_of_rows_unless_bundled_or_binned(name):
    topology = ZOO[name].make().topology
    for tile in TILES:
        _, starts, _ = cut(topology, tile, False, False, 4)
        assert (np.diff(starts) > 0).all()


@pytest.mark.parametrize("name", ["lengths_0_to_40", "power_law_rows", "window_of_rows"])
def test_bundling_puts_strips_of_like_length_into_a_block_and_binning_the_longest_first(name):
    topology = ZOO[name].make().topology
    for tile, per_block in product(TILES, (1, 4)):
        *_, lengths = cut(topology, tile, True, True, per_block)
        assert (np.diff(lengths) <= 0).all()
        *_, lengths = cut(topology, tile, False, True, per_block)
        whole = lengths[: len(lengths) // per_block * per_block].reshape(-1, per_block)
        assert (np.diff(whole.max(axis=1)) <= 0).all()
        *_, bundled = cut(topology, tile, True, False, per_block)
        alike = -np.sort(-lengths)
        blocks = range(0, len(lengths), per_block)
        assert sorted(tuple(bundled[i : i + per_block]) for i in blocks) == sorted(
            tuple(alike[i : i + per_block]) for i in blocks
        )


def test_strips_are_cut_once():
    topology = ZOO["pruned_layer"].make().topology
    assert topology.strips(8, True, True, 4) is topology.strips(8, True, True, 4)
    assert topology.strips(8, True, True, 4) is not topology.strips(8, True, True, 8)
