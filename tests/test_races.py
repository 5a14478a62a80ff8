"""Accesses to shared memory that no barrier orders are reported, where they are; what is ordered is not."""

import numpy as np
import pytest
from numba import cuda, float32, int32, njit
from test_emulator_errors import caught, line_of

from sparsekern.machine import lanes
from sparsekern.machine.emulator import emulate

FULL = 0xFFFFFFFF


def race(kernel, block, *arguments):
    """The race that `kernel` has at the line that says "# later", with the one that says "# earlier"."""
    error = caught(kernel, block, arguments)
    assert (error.kind, error.line) == ("race", line_of(kernel, "# later"))
    assert f"at line {line_of(kernel, '# earlier')}, and" in str(error)
    return error


def run(kernel, block, *arguments):
    emulate(kernel, (2,), block, arguments)


def test_two_lanes_that_write_the_same_element_even_the_same_value():
    def kernel():
        shared = cuda.shared.array(4, int32)
        shared[2] = 7  # earlier and # later

    error = race(kernel, (2,))
    assert error.thread == (1, 0, 0)
    assert "[2] written; thread (0, 0, 0) wrote it" in str(error)


def test_a_read_of_what_another_lane_wrote():
    def kernel(out):
        shared = cuda.shared.array(32, int32)
        shared[cuda.threadIdx.x] = 1  # earlier
        if cuda.threadIdx.x == 9:
            out[0] = shared[4]  # later

    error = race(kernel, (32,), np.zeros(1, np.int32))
    assert error.thread == (9, 0, 0)
    assert "[4] read; thread (4, 0, 0) wrote it" in str(error)


def test_a_write_of_what_another_lane_has_read():
    def kernel(out):
        shared = cuda.shared.array(1, int32)
        if cuda.threadIdx.x == 0:
            shared[0] = 1
        cuda.syncthreads()
        out[cuda.threadIdx.x] = shared[0]  # earlier
        if cuda.threadIdx.x == 33:
            shared[0] = 2  # later

    error = race(kernel, (64,), np.zeros(64, np.int32))
    assert error.thread == (33, 0, 0)
    assert "[0] written; thread (0, 0, 0) read it" in str(error)


@pytest.mark.parametrize("barriers", [1, 2])
def test_a_loop_that_stages_tiles_needs_two_barriers(barriers):
    def kernel(x, out):
        me = cuda.threadIdx.x
        tile = cuda.shared.array(32, int32)
        for start in range(0, 96, 32):
            tile[me] = x[start + me]  # later
            cuda.syncthreads()
            out[start + me] = tile[(me + 1) % 32]  # earlier
            if barriers == 2:
                cuda.syncthreads()

    x, out = np.arange(96, dtype=np.int32), np.zeros(96, np.int32)
    if barriers == 2:
        run(kernel, (32,), x, out)
        assert out.tolist() == np.roll(x.reshape(3, 32), -1, axis=1).ravel().tolist()
    else:
        error = race(kernel, (32,), x, out)
        assert error.thread == (1, 0, 0)
        assert "[1] written; thread (0, 0, 0) read it" in str(error)


def test_shuffles_and_votes_do_not_order():
    def kernel(out):
        shared = cuda.shared.array(32, int32)
        shared[cuda.laneid] = 1  # earlier
        cuda.shfl_xor_sync(FULL, 1, 1)
        cuda.all_sync(FULL, True)
        cuda.ballot_sync(FULL, True)
        out[cuda.laneid] = shared[cuda.laneid ^ 1]  # later

    race(kernel, (32,), np.zeros(32, np.int32))


def test_syncwarp_orders_the_lanes_of_its_mask():
    def kernel(out):
        team = cuda.laneid // 8
        shared = cuda.shared.array(32, int32)
        shared[cuda.laneid] = cuda.laneid
        cuda.syncwarp(0xFF << (team * 8))
        out[cuda.laneid] = shared[cuda.laneid ^ 7]

    out = np.zeros(32, np.int32)
    run(kernel, (32,), out)
    assert out.tolist() == [lane ^ 7 for lane in range(32)]


def test_syncwarp_does_not_order_lanes_of_two_masks_or_two_warps():
    def teams(out):
        shared = cuda.shared.array(32, int32)
        shared[cuda.laneid] = 1  # earlier
        cuda.syncwarp(0xFF << (cuda.laneid // 8 * 8))
        out[cuda.laneid] = shared[cuda.laneid ^ 8]  # later

    def warps(out):
        shared = cuda.shared.array(64, int32)
        shared[cuda.threadIdx.x] = 1  # earlier
        cuda.syncwarp()
        out[cuda.threadIdx.x] = shared[cuda.threadIdx.x ^ 32]  # later

    race(teams, (32,), np.zeros(32, np.int32))
    race(warps, (64,), np.zeros(64, np.int32))


def test_syncthreads_orders_the_block():
    def kernel(out):
        shared = cuda.shared.array(96, int32)
        for step in range(3):
            shared[cuda.threadIdx.x] = step
            cuda.syncthreads()
            out[cuda.threadIdx.x] += shared[95 - cuda.threadIdx.x]
            cuda.syncthreads()

    out = np.zeros(96, np.int32)
    run(kernel, (96,), out)
    assert (out == 2 * (0 + 1 + 2)).all()


@pytest.mark.parametrize("ordered", [True, False])
def test_order_is_handed_on_by_a_lane_that_takes_part_in_two_barriers(ordered):
    def kernel(out):
        lane = cuda.laneid
        shared = cuda.shared.array(1, int32)
        if lane == 0:
            shared[0] = 5  # earlier
        if lane <= 1 and ordered:
            cuda.syncwarp(0b011)
        if lane >= 1:
            cuda.syncwarp(0b110)
        if lane <= 1 and not ordered:
            cuda.syncwarp(0b011)  # too late to tell lane 2
        if lane == 2:
            out[0] = shared[0]  # later

    out = np.zeros(1, np.int32)
    if ordered:
        run(kernel, (3,), out)
        assert out[0] == 5
    else:
        race(kernel, (3,), out)


def test_what_a_lane_does_after_a_barrier_is_not_ordered_by_it():
    def kernel(out):
        shared = cuda.shared.array(1, int32)
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            shared[0] = 5  # earlier
            cuda.syncwarp(0b01)
        else:
            cuda.syncwarp(0b10)
            out[0] = shared[0]  # later

    race(kernel, (2,), np.zeros(1, np.int32))


def test_a_lane_that_has_exited_is_ordered_by_no_later_barrier():
    def kernel(out):
        shared = cuda.shared.array(1, int32)
        if cuda.threadIdx.x == 0:
            shared[0] = 5  # earlier
            return
        cuda.syncthreads()
        out[0] = shared[0]  # later

    race(kernel, (2,), np.zeros(1, np.int32))


def test_a_lane_does_not_race_with_itself_nor_a_block_with_another():
    def kernel(out):
        shared = cuda.shared.array(4, int32)
        for step in range(3):
            shared[step] = step
            shared[step] += 1
            lanes.store(shared, 3, lanes.load(shared, step, 1))
        out[0] = shared[3]

    out = np.zeros(1, np.int32)
    run(kernel, (1,), out)
    assert out[0] == 3


def test_reads_race_with_writes_only_and_global_memory_is_not_watched():
    def kernel(x, out):
        shared = cuda.shared.array(1, int32)
        if cuda.threadIdx.x == 0:
            shared[0] = 5
        cuda.syncthreads()
        out[0] = shared[0] + shared[0] + x[0]

    out = np.zeros(1, np.int32)
    run(kernel, (64,), np.ones(1, np.int32), out)
    assert out[0] == 11


def test_vectors_that_overlap_in_part():
    def stores():
        shared = cuda.shared.array(8, float32, 16)
        one = float32(1)
        if cuda.threadIdx.x == 0:
            lanes.store(shared, 4, (one, one, one, one))  # earlier
        else:
            lanes.store(shared, 6, (one, one))  # later

    def load(out):
        shared = cuda.shared.array(8, float32, 16)
        for i in range(8):
            if cuda.threadIdx.x == 0:
                shared[i] = i
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            shared[7] = 9  # earlier
        else:
            lanes.load_if(True, shared, 4, 4)  # later

    def store(out):
        shared = cuda.shared.array(8, float32, 16)
        for i in range(8):
            if cuda.threadIdx.x == 0:
                shared[i] = i
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            lanes.load(shared, 4, 4)  # earlier
        else:
            shared[3] = 1
            shared[5] = 1  # later

    out = np.zeros(1, np.float32)
    assert "[6] written" in str(race(stores, (2,)))
    assert "[7] read" in str(race(load, (2,), out))
    assert "[5] written" in str(race(store, (2,), out))


def test_the_message_is_whole():
    def kernel(out):
        mine = cuda.threadIdx.x + 2 * (cuda.threadIdx.y + 3 * cuda.threadIdx.z)
        shared = cuda.shared.array(12, int32)  # array
        shared[mine] = 1  # earlier
        if mine == 11:
            out[0] = shared[3]  # later

    error = race(kernel, (2, 3, 2), np.zeros(1, np.int32))
    assert (error.block, error.thread) == ((0, 0, 0), (1, 2, 1))
    lines = str(error).splitlines()
    assert lines[0] == (
        f"race: shared array (line {line_of(kernel, '# array')})[3] read; "
        f"thread (1, 1, 0) wrote it at line {line_of(kernel, '# earlier')}, and no barrier orders the two"
    )
    assert lines[1].endswith(f":{line_of(kernel, '# later')}, block (0, 0, 0), thread (1, 2, 1)")


def test_a_helper_is_named_by_its_own_line_and_a_library_helper_by_that_of_its_caller(monkeypatch):
    @njit(inline="always")
    def put(shared, index):
        shared[index] = 1  # in the helper

    def mine(out):
        shared = cuda.shared.array(1, int32)
        put(shared, 0)

    error = caught(mine, (2,), [np.zeros(1, np.int32)])
    line = line_of(put.py_func, "# in the helper")
    assert (error.kind, error.line) == ("race", line) and f"at line {line}, and" in str(error)

    put.py_func.__module__ = lanes.__name__
    monkeypatch.setattr(lanes, "write", put, raising=False)

    def library(out):
        shared = cuda.shared.array(1, int32)
        if cuda.threadIdx.x == 0:
            lanes.write(shared, 0)  # earlier
        else:
            lanes.write(shared, 0)  # later

    race(library, (2,), np.zeros(1, np.int32))
