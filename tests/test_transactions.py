"""Sectors and wavefronts, against what an H200 counted."""

import csv
from pathlib import Path

import numpy as np

from sparsekern.machine.transactions import least, sectors, wavefronts

RECORD = Path(__file__).parents[1] / "data" / "results" / "nvidia-h200" / "wavefronts.csv"


def patterns():
    """(bytes a lane, addresses of the 32 lanes, wavefronts, sectors) by the hardware."""
    with open(RECORD, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            addresses = 4 * np.array(row["words"].split(), np.int64)
            yield int(row["bytes"]), addresses, int(row["wavefronts"]), int(row["sectors"])


def one_warp(addresses):
    return np.zeros(32, np.int64), np.arange(32), addresses


def test_every_pattern_takes_the_wavefronts_and_sectors_that_hardware_took():
    seen = list(patterns())
    assert len(seen) == 207 and {size for size, *_ in seen} == {4, 8, 16}
    for size, addresses, passes, parts in seen:
        assert wavefronts(size, *one_warp(addresses)) == passes, (size, addresses)
        assert sectors(*one_warp(addresses)) == parts, (size, addresses)


def test_instructions_add_up():
    seen = [(addresses, passes) for size, addresses, passes, _ in patterns() if size == 16]
    numbers = np.repeat(np.arange(len(seen)), 32)
    lanes, addresses = np.tile(np.arange(32), len(seen)), np.concatenate([a for a, _ in seen])
    assert wavefronts(16, numbers, lanes, addresses) == sum(passes for _, passes in seen)


def test_the_least_holds_each_byte_once():
    same, spread = np.zeros(32, np.int64), 128 * np.arange(32)
    assert least("global", 4, *one_warp(same)) == 1 and least("global", 4, *one_warp(spread)) == 4
    assert least("shared", 16, *one_warp(16 * np.arange(32))) == 4
    assert wavefronts(4, *(np.zeros(0, np.int64),) * 3) == 0
