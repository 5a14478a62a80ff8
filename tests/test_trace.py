"""Traces of little kernels, whose instructions, sectors and wavefronts are counted by hand."""

from dataclasses import astuple

import numpy as np
import pytest
from numba import cuda, float32, int32, njit

from sparsekern.machine import lanes, lockstep
from sparsekern.machine.emulator import emulate
from sparsekern.machine.lockstep import launch
from sparsekern.machine.trace import Cost
from sparsekern.machine.transactions import wavefronts
from sparsekern.study.counters import aligned

LANES = np.arange(32)


def floats(size):
    """(size,) float32, from 256 bytes on: a multiple of eight is the start of a sector."""
    return aligned(np.arange(size, dtype=np.float32))


def trace(kernel, *arguments, grid=(1,), block=(32,)):
    return launch(kernel, grid, block, arguments)


def total(costs, verb, array="", space=""):
    """The `Cost` of all kinds of a verb, of one array, or of a space."""
    chosen = [
        astuple(cost)
        for kind, cost in costs.items()
        if kind.verb == verb and kind.array.startswith(array) and kind.space.startswith(space)
    ]
    return Cost(*map(sum, zip(*chosen, strict=True))) if chosen else Cost()


def instructions(recorded, verb, array=""):
    """(low, high)"""
    return tuple(total(costs, verb, array).instructions for costs in (recorded.low, recorded.high))


# Global memory


def loading(stride, shift=0, width=1):
    def kernel(x):
        lanes.load(x, cuda.threadIdx.x * stride + shift, width)

    return kernel


@pytest.mark.parametrize(
    "kernel, sectors, ideal",
    [
        pytest.param(loading(1), 4, 4, id="32 lanes * 4 bytes = 128 = 4 sectors of 32"),
        pytest.param(loading(32), 32, 4, id="a stride of 128 bytes: a sector for each lane"),
        pytest.param(loading(8), 32, 4, id="a stride of 32 bytes: a sector for each lane"),
        pytest.param(loading(4), 16, 4, id="a stride of 16 bytes: two lanes to a sector"),
        pytest.param(loading(1, shift=1), 5, 4, id="off by one element: bytes 4 to 132 touch 5 sectors"),
        pytest.param(loading(1, shift=8), 4, 4, id="off by one sector: as many as aligned"),
        pytest.param(loading(0, shift=5), 1, 1, id="a broadcast: one sector for all"),
        pytest.param(loading(4, width=4), 16, 16, id="128 bits a lane: 32 * 16 bytes = 512 = 16 sectors"),
        pytest.param(loading(4, shift=4, width=4), 17, 16, id="128 bits a lane, off by half a sector: 17"),
        pytest.param(loading(2, width=2), 8, 8, id="64 bits a lane: 32 * 8 bytes = 256 = 8 sectors"),
        pytest.param(loading(0, width=4), 1, 1, id="a broadcast of 128 bits"),
    ],
)
def test_a_load_of_a_warp_is_one_request_for_the_sectors_that_its_lanes_touch(kernel, sectors, ideal):
    recorded = trace(kernel, floats(32 * 32))
    for costs in (recorded.low, recorded.high):
        assert total(costs, "load", "x", "global") == Cost(1, 1, 32, sectors, ideal, 0)


def test_a_store_touches_sectors_as_a_load_does():
    def kernel(x, y):
        i = cuda.threadIdx.x
        x[i * 2] = float32(1)
        lanes.store(y, i * 4, (float32(1), float32(2), float32(3), float32(4)))

    recorded = trace(kernel, floats(64), floats(128))
    # 32 lanes * 8 bytes apart = 256 bytes = 8 sectors, of which half is wanted
    assert total(recorded.low, "store", "x") == Cost(1, 1, 32, 8, 4)
    assert total(recorded.low, "store", "y") == Cost(1, 1, 32, 16, 16)
    assert not total(recorded.low, "load").instructions


def test_integers_of_64_bits_are_eight_bytes_a_lane():
    def kernel(x):
        lanes.load(x, cuda.threadIdx.x + 1, 1)

    # bytes 8 to 264: 9 sectors, where 32 * 8 / 32 = 8 would do
    assert total(trace(kernel, aligned(np.arange(40))).low, "load") == Cost(1, 1, 32, 9, 8)


def test_lanes_that_are_switched_off_touch_no_sector_and_the_rest_is_one_request():
    def kernel(x):
        i = cuda.threadIdx.x
        lanes.load_if(i < 9, x, i, 1)

    recorded = trace(kernel, floats(32))
    for costs in (recorded.low, recorded.high):
        # 9 lanes * 4 bytes = 36 bytes: two sectors
        assert total(costs, "load") == Cost(1, 1, 9, 2, 2)


def test_a_load_switched_off_for_all_lanes_is_nothing_or_an_instruction_without_request():
    def kernel(x):
        i = cuda.threadIdx.x
        lanes.load_if(i > 31, x, i, 1)

    recorded = trace(kernel, floats(32))
    assert total(recorded.low, "load") == Cost()
    assert total(recorded.high, "load") == Cost(instructions=1)


def test_the_address_of_an_array_decides_on_its_sectors():
    def kernel(x):
        lanes.load(x, cuda.threadIdx.x, 1)

    assert total(trace(kernel, floats(33)[1:]).low, "load").sectors == 5
    assert total(trace(kernel, floats(40)[8:]).low, "load").sectors == 4


def test_a_load_of_32_bytes_is_two():
    def kernel(x):
        lanes.load(x, cuda.threadIdx.x * 8, 8)

    assert instructions(trace(kernel, floats(256)), "load") == (2, 2)


# Shared memory

PATTERNS = {  # measured on an H200: (bytes a lane, word of each lane) -> wavefronts
    "16, two halves 36 words apart": (16, LANES // 16 * 36, 2),
    "16, two halves in the same bank": (16, LANES // 16 * 32, 2),
    "16, pairs 36 words apart": (16, LANES // 2 * 36, 2),
    "16, pairs 8 words apart": (16, LANES // 2 * 8, 4),
    "16, lanes 36 words apart": (16, LANES * 36, 4),
    "16, quarters 8 words apart": (16, LANES // 8 * 8, 2),
    "16, fours 8 words apart": (16, LANES // 4 * 8, 2),
    "16, all the same": (16, LANES * 0, 2),
    "16, consecutive": (16, LANES * 4, 4),
    "16, all in the same banks": (16, LANES * 32, 32),
    "8, all the same": (8, LANES * 0, 1),
    "8, consecutive": (8, LANES * 2, 2),
    # by the rule for 4 bytes: words of a bank that differ
    "4, consecutive": (4, LANES, 1),
    "4, backwards": (4, 31 - LANES, 1),
    "4, all the same": (4, LANES * 0 + 7, 1),
    "4, every second word": (4, LANES * 2, 2),
    "4, an odd stride": (4, LANES * 3, 1),
    "4, all in one bank": (4, LANES * 32, 32),
    "4, four words of one bank, each for eight lanes": (4, LANES // 8 * 32, 4),
    "4, the same with four words of padding": (4, LANES // 8 * 36, 1),
}


@pytest.mark.parametrize("size, words, expected", PATTERNS.values(), ids=PATTERNS)
def test_wavefronts_of_a_pattern(size, words, expected):
    one = np.zeros(32, np.int64)
    assert wavefronts(size, one, LANES, words * 4) == expected
    # twice the same, in the other order, and somewhere else in memory by whole rows of banks
    twice = np.concatenate([one + 7, one + 3]), np.tile(LANES, 2), np.tile(words * 4 + 1280, 2)
    assert wavefronts(size, *(x[::-1] for x in twice)) == 2 * expected


def test_no_access_is_no_wavefront_and_one_lane_is_one():
    none = np.zeros(0, np.int64)
    assert wavefronts(4, none, none, none) == 0
    for size in (4, 8, 16):
        assert wavefronts(size, *(np.array([x]) for x in (0, 31, 64))) == 1


@pytest.mark.parametrize(
    "stride, passes",
    [(1, 1), (2, 2), (4, 4), (32, 32), (33, 1), (0, 1)],
    ids=lambda x: str(x),
)
def test_shared_memory_is_served_bank_by_bank(stride, passes):
    def kernel(x):
        i = cuda.threadIdx.x
        staged = cuda.shared.array(33 * 32, float32)
        for j in range(33):
            staged[j * 32 + i] = x[i]
        cuda.syncwarp()
        staged[i * stride]

    recorded = trace(kernel, floats(32))
    assert total(recorded.low, "store", space="shared") == Cost(33, 33, 33 * 32, 0, 33, 33)
    # ideal: 32 * 4 bytes = 128, one pass; but where all want one word, it is one too
    assert total(recorded.low, "load", space="shared") == Cost(1, 1, 32, 0, 1, passes)


def test_vectors_of_shared_memory_go_by_quarters_of_a_warp():
    def kernel(x):
        i = cuda.threadIdx.x
        staged = cuda.shared.array(32 * 4, float32, 16)
        lanes.store(staged, i * 4, lanes.load(x, i * 4, 4))
        cuda.syncwarp()
        lanes.load(staged, 0, 4)  # 16 bytes for all: ideal 1, but two halves
        lanes.load(staged, i // 8 * 32, 4)

    recorded = trace(kernel, floats(128))
    assert total(recorded.low, "store", space="shared") == Cost(1, 1, 32, 0, 4, 4)
    # the second: four addresses of 16 bytes, ideal 1; in halves of 16 lanes two words of a bank: 2 + 2
    assert total(recorded.low, "load", space="shared") == Cost(2, 2, 64, 0, 2, 2 + 4)


def test_shared_memory_of_every_block_is_the_same_array():
    def kernel(x):
        i = cuda.threadIdx.x
        staged = cuda.shared.array(32, float32)
        staged[i] = x[i]
        cuda.syncthreads()
        staged[31 - i]

    recorded = trace(kernel, floats(32), grid=(5,))
    (kind,) = [kind for kind in recorded.low if kind[:3:2] == ("load", "shared")]
    assert recorded.low[kind] == Cost(5, 5, 160, 0, 5, 5)
    assert instructions(recorded, "barrier") == (5, 5)


# Lanes that part


def test_two_sides_of_a_branch_are_two_instructions_and_what_follows_is_one_or_two():
    def kernel(x, y):
        i = cuda.threadIdx.x
        if i % 2:
            (a,) = lanes.load(x, i, 1)
        else:
            (a,) = lanes.load(x, i + 32, 1)
        y[i] = a

    recorded = trace(kernel, floats(64), floats(32))
    for costs in (recorded.low, recorded.high):
        # 16 lanes each, 8 bytes apart over 128: 4 sectors a side, where 16 * 4 / 32 = 2 would do
        assert total(costs, "load") == Cost(2, 2, 32, 2 * 4, 2 * 2)
    assert total(recorded.low, "store") == Cost(1, 1, 32, 4, 4)
    assert total(recorded.high, "store") == Cost(2, 2, 32, 2 * 4, 2 * 2)


def test_a_branch_that_all_lanes_take_parts_nobody():
    def kernel(x, y, flag):
        i = cuda.threadIdx.x
        (y[i],) = lanes.load(x, i, 1) if flag else lanes.load(x, 31 - i, 1)

    recorded = trace(kernel, floats(32), floats(32), 1)
    assert recorded.low == recorded.high


def test_lanes_with_short_loops_wait_at_the_end_or_go_on():
    def kernel(x, y):
        i = cuda.threadIdx.x
        for t in range(i // 8 + 1):
            lanes.load(x, t * 32 + i, 1)
        y[i] = float32(0)

    recorded = trace(kernel, floats(128), floats(32))
    # trips 1, 2, 3, 4: the first for 32 lanes, then 24, 16, 8; of 4, 3, 2, 1 sectors
    for costs in (recorded.low, recorded.high):
        assert total(costs, "load") == Cost(4, 4, 32 + 24 + 16 + 8, 4 + 3 + 2 + 1, 10)
    assert instructions(recorded, "store") == (1, 4)


def test_two_sides_in_turn_are_paired_by_their_times_or_each_goes_its_way():
    def kernel(x, y):
        i = cuda.threadIdx.x
        for t in range(4):
            if (t + i) % 2:
                lanes.load(x, i, 1)
            else:
                lanes.load(y, i, 1)

    recorded = trace(kernel, floats(32), floats(32))
    # each lane loads x twice and y twice; apart, two ways of four loads
    assert instructions(recorded, "load", "x") == (2, 4)
    assert instructions(recorded, "load", "y") == (2, 4)
    # of all lanes together: four sectors; of each second lane, as many
    assert [total(c, "load", "x").sectors for c in (recorded.low, recorded.high)] == [2 * 4, 4 * 4]


def test_a_lane_that_skips_an_iteration_is_taken_to_be_one_behind():
    def kernel(x, y):
        i = cuda.threadIdx.x
        for t in range(3):
            if t != 1 or i > 0:
                lanes.load(x, t * 32 + i, 1)
        y[i] = float32(0)

    recorded = trace(kernel, floats(96), floats(32))
    assert instructions(recorded, "load") == (3, 3)
    assert instructions(recorded, "store") == (1, 2)
    assert total(recorded.low, "load").lanes == 3 * 32 - 1
    # lane 0 goes to the third line of 128 bytes while the others are at the second: 4 + (4 + 1) + 4 sectors.
    # Hardware that keeps to the iterations needs 12: `low` is least in instructions, not in sectors.
    assert total(recorded.low, "load").sectors == 13


def test_a_return_is_a_way_of_its_own():
    def kernel(x, y):
        i = cuda.threadIdx.x
        if i < 8:
            return
        (y[i],) = lanes.load(x, i, 1)

    recorded = trace(kernel, floats(32), floats(32))
    for costs in (recorded.low, recorded.high):
        assert total(costs, "store") == Cost(1, 1, 24, 3, 3)


# Where they meet again


def test_lanes_of_a_subwarp_meet_at_its_barrier():
    def kernel(x, y):
        i = cuda.threadIdx.x
        if i % 2:
            lanes.load(x, i, 1)
        cuda.syncwarp(0xFF << (i // 8 * 8))
        lanes.load(y, i, 1)

    recorded = trace(kernel, floats(32), floats(32))
    for array in ("x", "y"):
        assert instructions(recorded, "load", array) == (1, 1)
    assert instructions(recorded, "barrier") == (1, 1)


def test_subwarps_that_have_parted_stay_apart_at_barriers_of_their_own():
    def kernel(x, y):
        i = cuda.threadIdx.x
        if i < 8:
            lanes.load(x, i, 1)
        cuda.syncwarp(0xFF << (i // 8 * 8))
        lanes.load(y, i, 1)

    recorded = trace(kernel, floats(32), floats(32))
    assert instructions(recorded, "barrier") == (1, 2)
    assert instructions(recorded, "load", "y") == (1, 2)


def test_trips_of_subwarps_with_a_barrier_in_the_loop():
    def kernel(x, y):
        i = cuda.threadIdx.x
        for _ in range(i // 8 + 1):
            lanes.load(x, i, 1)
            cuda.syncwarp(0xFF << (i // 8 * 8))
        lanes.load(y, i, 1)

    recorded = trace(kernel, floats(32), floats(32))
    assert instructions(recorded, "barrier") == (4, 4)
    assert instructions(recorded, "load", "y") == (1, 4)


@pytest.mark.parametrize("way", ["syncwarp", "syncthreads", "shuffle", "vote"])
def test_the_whole_warp_meets_and_goes_on_together(way):
    BARRIER, THREADS, SHUFFLE = way == "syncwarp", way == "syncthreads", way == "shuffle"

    def kernel(x, y):
        i = cuda.threadIdx.x
        for _ in range(2):
            for _ in range(i % 3):
                lanes.load(x, i, 1)
            if BARRIER:
                cuda.syncwarp()
            elif THREADS:
                cuda.syncthreads()
            elif SHUFFLE:
                cuda.shfl_xor_sync(0xFFFFFFFF, i, 1)
            else:
                cuda.ballot_sync(0xFFFFFFFF, i > 3)
            lanes.load(y, i, 1)

    recorded = trace(kernel, floats(32), floats(32))
    verb = way if way in ("shuffle", "vote") else "barrier"
    assert instructions(recorded, verb) == (2, 2)
    assert instructions(recorded, "load", "y") == (2, 2)
    assert instructions(recorded, "load", "x") == (4, 4)


def test_what_is_before_a_meeting_is_never_one_with_what_is_after():
    @njit(inline="always")
    def read(x, i):
        lanes.load(x, i, 1)

    def kernel(x):
        i = cuda.threadIdx.x
        for t in range(2):
            if (t + i) % 2:
                read(x, i)
            cuda.syncwarp()

    # odd lanes load in the first trip, even ones in the second
    assert instructions(trace(kernel, floats(32)), "load") == (2, 2)


def test_lanes_that_are_gone_do_not_keep_a_warp_from_meeting():
    def kernel(x, y):
        i = cuda.threadIdx.x
        if i >= 5:
            return
        if i % 2:
            lanes.load(x, i, 1)
        cuda.syncwarp()
        lanes.load(y, i, 1)

    recorded = trace(kernel, floats(32), floats(32))
    assert instructions(recorded, "load", "y") == (1, 1)
    assert total(recorded.high, "load", "y") == Cost(1, 1, 5, 1, 1)
    assert total(recorded.low, "barrier").lanes == 5


def test_a_barrier_of_some_lanes_before_does_not_keep_them_from_meeting_the_others():
    def kernel(x):
        i = cuda.threadIdx.x
        if i < 4:
            cuda.syncwarp(0xF)
        cuda.syncwarp(0xFF)
        lanes.load(x, i, 1)

    recorded = trace(kernel, floats(8), block=(8,))
    assert instructions(recorded, "barrier") == (2, 2)
    assert instructions(recorded, "load") == (1, 1)


def test_a_mask_is_not_mistaken_for_an_instruction():
    """The second load follows instruction 1 and is site 0; the mask of the barrier is 1, none met before."""

    def kernel(x):
        if cuda.threadIdx.x == 0:
            for _ in range(2):
                lanes.load(x, 0, 1)
                cuda.syncwarp(1)

    recorded = trace(kernel, floats(1), block=(2,))
    assert instructions(recorded, "load") == (2, 2)
    assert instructions(recorded, "barrier") == (2, 2)


# Places in the program


def test_a_helper_that_is_called_from_two_places_is_two_places():
    @njit(inline="always")
    def read(x, i):
        return lanes.load(x, i, 1)[0]

    @njit(inline="always")
    def twice(x, i):
        return read(x, i) + read(x, i)

    def kernel(x):
        i = cuda.threadIdx.x
        if i < 16:
            twice(x, i)
        else:
            twice(x, i)

    # 2 calls of `read` in 2 calls of `twice`, for half a warp each: 2 sectors
    recorded = trace(kernel, floats(32))
    for costs in (recorded.low, recorded.high):
        assert total(costs, "load") == Cost(4, 4, 64, 8, 8)


def test_a_helper_in_a_loop_is_one_place():
    @njit(inline="always")
    def read(x, i):
        return lanes.load(x, i, 1)[0]

    def kernel(x):
        i = cuda.threadIdx.x
        for _ in range(1 + i % 2):
            read(x, i)

    assert instructions(trace(kernel, floats(32)), "load") == (2, 2)


def test_the_condition_of_a_loop_is_one_place():
    """CPython compiles it twice: for the first trip, and for the others."""

    def kernel(x):
        i = cuda.threadIdx.x
        for _ in range(2 - i % 2):
            t = 0
            while x[t] < i % 2:
                t += 1

    # x is 0, 1, ...: odd lanes test it twice in their only trip, even ones once in each of two
    assert instructions(trace(kernel, floats(32)), "load") == (2, 2)


def test_places_are_told_apart_after_lanes_have_waited():
    """Some lanes wait in the first trip of a loop."""

    def kernel(x, y):
        i = cuda.threadIdx.x
        for t in range(3):
            lanes.load(x, i, 1)
            if t == 0 and i < 8:
                cuda.syncwarp(0xFF)
        lanes.load(y, i, 1)

    recorded = trace(kernel, floats(32), floats(32))
    assert instructions(recorded, "load", "x")[0] == 3
    assert instructions(recorded, "load", "y")[0] == 1


def test_a_plain_read_is_one_place_however_often_it_has_run():
    def kernel(x):
        x[cuda.threadIdx.x]

    found = [instructions(trace(kernel, floats(32)), "load") for _ in range(3)]
    assert found == [(1, 1)] * 3


# Arithmetic and collectives


def test_multiply_adds_are_instructions_for_each_element():
    def kernel(x, y):
        i = cuda.threadIdx.x
        acc = cuda.local.array(4, float32)
        for j in range(4):
            acc[j] = float32(0)
        a, b = lanes.load(x, i * 4, 4), lanes.load(x, i * 4, 4)
        lanes.axpy(float32(2), a, acc, 0)  # 4
        lanes.dot(a, b, acc, 1)  # 4
        if i < 8:
            acc[0] = lanes.fma(acc[0], acc[1], acc[2])  # 1
        y[i] = acc[0]

    recorded = trace(kernel, floats(128), floats(32))
    assert instructions(recorded, "multiply-add") == (9, 9)
    assert total(recorded.low, "multiply-add").lanes == 32 * 4 + 32 * 4 + 8
    counts = emulate(kernel, (1,), (32,), [floats(128), floats(32)])
    assert counts.fma == total(recorded.low, "multiply-add").lanes


def test_shuffles_votes_and_barriers_are_instructions_of_warps():
    def kernel(x):
        i = cuda.threadIdx.x
        for h in range(3):
            cuda.shfl_xor_sync(0xFFFFFFFF, i, 1 << h)
        cuda.shfl_sync(0xFFFFFFFF, i, 0)
        cuda.any_sync(0xFFFFFFFF, i > 3)
        cuda.all_sync(0xFFFFFFFF, i > 3)
        cuda.syncwarp()
        cuda.syncthreads()
        cuda.syncthreads()

    recorded = trace(kernel, floats(1), block=(96,), grid=(2,))
    for verb, each in (("shuffle", 4), ("vote", 2), ("barrier", 3)):
        assert instructions(recorded, verb) == (each * 6, each * 6)
        assert total(recorded.low, verb).lanes == each * 6 * 32


def test_a_maximum_over_the_subwarps_of_a_warp_is_one_shuffle_for_each_halving():
    def kernel(x):
        lanes.warp_max(int32(cuda.threadIdx.x // 8), 8)

    # distances 8 and 16
    assert instructions(trace(kernel, floats(1)), "shuffle") == (2, 2)


# Warps and blocks


def test_warps_and_blocks_add_up_and_each_has_its_work():
    def kernel(x):
        warp = cuda.threadIdx.x // 32
        for _ in range(warp + 1 + cuda.blockIdx.x):
            lanes.load(x, cuda.threadIdx.x, 1)

    recorded = trace(kernel, floats(96), block=(96,), grid=(2,))
    assert recorded.work == [[1, 2, 3], [2, 3, 4]]
    assert total(recorded.low, "load") == Cost(15, 15, 15 * 32, 15 * 4, 15 * 4)


def test_the_last_warp_of_a_block_may_be_partly_full():
    def kernel(x):
        lanes.load(x, cuda.threadIdx.x, 1)

    recorded = trace(kernel, floats(48), block=(48,))
    assert recorded.work == [[1, 1]]
    assert total(recorded.low, "load") == Cost(2, 2, 48, 4 + 2, 6)


def test_warps_follow_the_order_of_threads_x_first():
    def kernel(x):
        lanes.load(x, cuda.threadIdx.y * 8 + cuda.threadIdx.x, 1)

    assert total(trace(kernel, floats(64), block=(8, 8)).low, "load") == Cost(2, 2, 64, 8, 8)


def test_blocks_may_run_a_few_at_a_time(monkeypatch):
    def kernel(x, y):
        i = cuda.threadIdx.x
        for _ in range(i % 3):
            lanes.load(x, i + cuda.blockIdx.x, 1)
        y[i] = float32(1)

    whole = trace(kernel, floats(40), floats(32), grid=(7,))
    monkeypatch.setattr(lockstep, "WIDTH", 64)
    parts = trace(kernel, floats(40), floats(32), grid=(7,))
    assert (whole.low, whole.high, whole.work) == (parts.low, parts.high, parts.work)


def test_the_work_of_a_warp_is_its_instructions():
    def kernel(x):
        i = cuda.threadIdx.x
        acc = cuda.local.array(4, float32)
        for j in range(4):
            acc[j] = float32(0)
        lanes.axpy(float32(2), lanes.load(x, i * 4, 4), acc, 0)

    recorded = trace(kernel, floats(128))
    assert recorded.work == [[1 + 4]]  # a load, and four multiply-adds


def test_what_is_switched_off_for_all_lanes_is_no_work():
    def kernel(x):
        lanes.load_if(False, x, 0, 1)

    assert trace(kernel, floats(1)).work == [[0]]


def test_a_launch_that_does_nothing_has_warps_without_work():
    def kernel(x):
        return

    recorded = trace(kernel, floats(1), block=(64,), grid=(3,))
    assert recorded.work == [[0, 0]] * 3 and not recorded.low and not recorded.high


def test_a_traced_launch_computes_the_same_and_counts_the_same():
    def kernel(x, y):
        i = cuda.threadIdx.x
        staged = cuda.shared.array(32, float32)
        staged[i] = x[i] * float32(2)
        cuda.syncwarp()
        y[i] = lanes.fma(staged[31 - i], x[i], x[i])

    x, y, again = floats(32), floats(32), floats(32)
    counts = emulate(kernel, (1,), (32,), [x, y])
    recorded = trace(kernel, x, again)
    assert total(recorded.low, "multiply-add").lanes == counts.fma
    assert y.tolist() == again.tolist()


def test_a_mask_of_all_ones_may_be_negative():
    def kernel(out):
        value = cuda.shfl_xor_sync(-1, cuda.laneid, 1)
        cuda.syncwarp(-1)
        out[cuda.laneid] = value

    recorded = trace(kernel, floats(32))
    for verb in ("shuffle", "barrier"):
        assert instructions(recorded, verb) == (1, 1)
