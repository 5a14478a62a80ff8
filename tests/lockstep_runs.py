"""Launches in lockstep beside the same ones on the emulator."""

import numpy as np
import pytest
from numba import cuda, njit

from sparsekern.machine.emulator import emulate
from sparsekern.machine.lockstep import launch
from sparsekern.machine.report import EmulatorError

GRID, BLOCK = (2, 2), (8, 5)  # of a block the last warp has 8 lanes
SIZE = 160  # lanes
FULL = 0xFFFFFFFF


@njit(inline="always")
def number():
    x, y = cuda.grid(2)
    return y * 16 + x


def both(kernel, *arguments, grid=GRID, block=BLOCK):
    """Arrays after the launch, on the emulator and in lockstep."""
    results = []
    for run in (emulate, launch):
        copies = [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]
        run(kernel, grid, block, copies)
        results.append([x for x in copies if isinstance(x, np.ndarray)])
    return results


def caught(run, kernel, *arguments, grid=(2,), block=(4,), outputs=()):
    with pytest.raises(EmulatorError) as info:
        run(kernel, grid, block, arguments, outputs)
    return info.value
