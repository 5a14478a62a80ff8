"""What accesses of a warp cost its memory: sectors of global memory, passes through banks of shared memory.

Everywhere numbers, lanes and addresses are (accesses,) int64: of each access the instruction that it is part
of, its lane and its byte address. An access is aligned to its size, at most 16 bytes.
"""

import numpy as np

from sparsekern.toggles import WARP

SECTOR = 32  # bytes: the least that a cache line is read or written in
BANKS, WORD = 32, 4  # of shared memory: banks, and bytes that each gives in a pass
NOBODY = -1  # address of a lane that takes no part


def sectors(numbers, lanes, addresses):
    """Sectors that the instructions ask global memory for: each once an instruction."""
    return len(_pairs(numbers, addresses // SECTOR)[0])


def least(space, size, numbers, lanes, addresses):
    """Sectors, or wavefronts of shared memory, that would do for the bytes that each instruction asks for."""
    pieces = np.unique(_pairs(numbers, addresses)[0], return_counts=True)[1]
    return int((-(-pieces * size // (SECTOR if space == "global" else BANKS * WORD))).sum())


def wavefronts(size, numbers, lanes, addresses):
    """Passes through the 32 banks of shared memory, for accesses of `size` bytes a lane.

    A pass serves each bank once, and any number of lanes that want the same word. Accesses of 8 bytes go by
    half warps and those of 16 by quarters; but if each lane wants what its neighbour at distance 1 wants, or
    each what the one at distance 2 does, by whole and half warps. Found on an H200, where it explains all 207
    patterns of data/results/nvidia-h200/wavefronts.csv.
    """
    if not len(numbers):
        return 0
    instructions, rows = np.unique(numbers, return_inverse=True)
    wanted = np.full((len(instructions), WARP), NOBODY)
    wanted[rows, lanes] = addresses
    group = WARP * WORD // max(size, WORD)
    if group < WARP:
        alike = np.zeros(len(instructions), bool)
        for distance in (1, 2):
            neighbour = wanted[:, np.arange(WARP) ^ distance]
            alike |= ((wanted == neighbour) | (wanted == NOBODY) | (neighbour == NOBODY)).all(axis=1)
        group = np.where(alike, 2 * group, group)[rows]
    groups = (rows * WARP + lanes // group)[:, None]
    words = addresses[:, None] // WORD + np.arange(max(size // WORD, 1))
    groups, words, _ = _pairs(np.broadcast_to(groups, words.shape).ravel(), words.ravel())
    groups, _, counts = _pairs(groups, words % BANKS)
    worst = np.zeros(groups.max() + 1, np.int64)
    np.maximum.at(worst, groups, counts)
    return int(worst.sum())


def _pairs(firsts, seconds):
    """The different pairs, in order, and how often each is there."""
    low = seconds.min(initial=0)
    span = seconds.max(initial=0) - low + 1
    pairs, counts = np.unique(firsts * span + (seconds - low), return_counts=True)
    return pairs // span, pairs % span + low, counts
