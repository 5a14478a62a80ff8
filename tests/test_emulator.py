"""The emulator runs kernels as hardware would: grids, memory, barriers, collectives, counts."""

import dis

import numpy as np
from numba import cuda, float32, int32, njit

from sparsekern.machine import lanes
from sparsekern.machine.emulator import emulate
from sparsekern.machine.sites import instruction


def test_every_thread_runs_once_with_its_own_indices():
    def kernel(out, width):
        x, y = cuda.grid(2)
        out[y * width + x] += x + 100 * y + 10000 * cuda.blockIdx.z + cuda.laneid * 0

    out = np.zeros(24, np.int32)
    counts = emulate(kernel, (3, 2), (2, 2), [out, 6])
    assert out.tolist() == [x + 100 * y for y in range(4) for x in range(6)]
    assert counts.lanes == 24


def test_shared_memory_belongs_to_a_block_and_a_barrier_orders_it():
    def kernel(out):
        shared = cuda.shared.array(32, int32)
        shared[cuda.threadIdx.x] = cuda.threadIdx.x + 100 * cuda.blockIdx.x
        cuda.syncthreads()
        out[cuda.grid(1)] = shared[31 - cuda.threadIdx.x]

    out = np.zeros(64, np.int32)
    counts = emulate(kernel, (2,), (32,), [out])
    assert out.tolist() == [*range(31, -1, -1), *range(131, 99, -1)]
    assert counts.barriers == 64
    assert counts.loads == {("shared", 4): 64} and counts.stores == {("shared", 4): 64, ("global", 4): 64}


def test_shuffles_and_votes_answer_as_on_hardware():
    def kernel(out):
        lane = cuda.laneid
        full = 0xFFFFFFFF
        out[lane] = cuda.shfl_xor_sync(full, lane, 5)
        out[32 + lane] = cuda.shfl_up_sync(full, lane, 3)
        out[64 + lane] = cuda.shfl_down_sync(full, lane, 3)
        out[96 + lane] = cuda.shfl_sync(full, lane * lane, 4)
        out[128 + lane] = cuda.ballot_sync(full, lane % 2) & 0xFF
        out[160 + lane] = cuda.any_sync(full, lane == 9) + 2 * cuda.all_sync(full, lane < 31)
        out[192 + lane] = lanes.warp_max(int32(lane // 8 * 3), 8) + 100 * lanes.warp_min(
            int32(lane // 8 + 1), 8
        )

    out = np.zeros(224, np.int32)
    emulate(kernel, (1,), (32,), [out])
    lane = np.arange(32)
    expected = [lane ^ 5, np.where(lane < 3, lane, lane - 3), np.where(lane > 28, lane, lane + 3)]
    expected += [lane * 0 + 16, lane * 0 + 0xAA, lane * 0 + 1, lane * 0 + 109]
    assert out.tolist() == np.concatenate(expected).tolist()


def test_a_subwarp_meets_on_its_own_mask_while_another_has_gone_on():
    def kernel(out):
        team = cuda.threadIdx.x // 8
        for _ in range(team + 1):
            cuda.syncwarp(0xFF << (team * 8))
        cuda.syncthreads()
        out[cuda.threadIdx.x] = team

    out = np.zeros(32, np.int32)
    assert emulate(kernel, (1,), (32,), [out]).barriers == 8 * (1 + 2 + 3 + 4) + 32
    assert out[31] == 3


def test_lanes_that_have_exited_are_not_waited_for():
    def kernel(out):
        if cuda.threadIdx.x >= 5:
            return
        cuda.syncwarp()
        cuda.syncthreads()
        out[cuda.threadIdx.x] = 1

    out = np.zeros(5, np.int32)
    emulate(kernel, (1,), (32,), [out])
    assert out.all()


def test_vector_access_is_counted_by_width_and_multiply_adds_by_element():
    def kernel(x, y):
        acc = cuda.local.array(4, float32)
        for i in range(4):
            acc[i] = float32(1)
        lanes.axpy(float32(2), lanes.load(x, 4, 4), acc, 0)
        acc[0] = lanes.fma(acc[0], acc[1], acc[2])
        lanes.store(y, 0, lanes.take(acc, 0, 4))

    x, y = np.arange(8, dtype=np.float32), np.zeros(4, np.float32)
    counts = emulate(kernel, (1,), (1,), [x, y])
    assert y.tolist() == [9 * 11 + 13, 11, 13, 15]
    assert (counts.loads, counts.stores, counts.fma) == ({("global", 16): 1}, {("global", 16): 1}, 5)


def test_multiply_adds_that_nobody_reads_are_counted_too():
    def kernel(x):
        acc = cuda.local.array(2, float32)
        acc[0] = acc[1] = float32(0)
        for _ in range(3):
            lanes.axpy(float32(2), lanes.load(x, 0, 2), acc, 0)

    assert emulate(kernel, (2,), (4,), [np.ones(2, np.float32)]).fma == 2 * 4 * 3 * 2


def test_a_masked_load_is_zeros_and_touches_nothing():
    def kernel(x, y):
        lanes.store(y, 0, lanes.load_if(False, x, 10**12, 2))

    y = np.ones(2, np.float32)
    counts = emulate(kernel, (1,), (1,), [np.ones(2, np.float32), y])
    assert y.tolist() == [0, 0] and not counts.loads


def test_a_load_that_leaves_its_registers_is_nan_or_the_smallest_integer_where_it_is_not_wanted():
    def kernel(x, columns, y, z):
        i = cuda.threadIdx.x
        lanes.store(y, 2 * i, lanes.load_or_leave(i > 0, x, 2 if i > 0 else 10**12, 2))
        lanes.store(z, i, lanes.load_or_leave(i > 0, columns, i if i > 0 else -7, 1))

    x, columns = np.arange(4, dtype=np.float32), np.array([5, 6], np.int32)
    y, z = np.zeros(4, np.float32), np.zeros(2, np.int32)
    counts = emulate(kernel, (1,), (2,), [x, columns, y, z])
    assert np.array_equal(y, [np.nan, np.nan, 2, 3], equal_nan=True) and z.tolist() == [-(2**31), 6]
    assert counts.loads == {("global", 8): 1, ("global", 4): 1}


def test_a_multiply_add_of_what_was_left_is_nan():
    def kernel(x, y):
        acc = cuda.local.array(1, float32)
        acc[0] = float32(0)
        lanes.dot(lanes.load(x, 0, 2), lanes.load_or_leave(False, x, 0, 2), acc, 0)
        y[0] = acc[0]

    y = np.zeros(1, np.float32)
    emulate(kernel, (1,), (1,), [np.zeros(2, np.float32), y])
    assert np.isnan(y[0])


def test_a_load_from_a_place_counts_from_there_and_is_an_access_of_its_array():
    def kernel(x, y):
        there = lanes.place(x, 4)
        before = lanes.place(there, -3)
        lanes.store(y, 0, lanes.load(there, 4, 4))
        lanes.store(y, 4, lanes.load(before, -1, 1))
        lanes.store(y, 5, lanes.load_if(True, before, 0, 1))
        lanes.store(y, 6, lanes.load_if(False, there, 10**6, 2))

    x, y = np.arange(12, dtype=np.float32), np.ones(8, np.float32)
    counts = emulate(kernel, (1,), (1,), [x, y])
    assert y.tolist() == [8, 9, 10, 11, 0, 1, 0, 0]
    assert counts.loads == {("global", 16): 1, ("global", 4): 2}


def test_an_index_from_a_place_is_an_int32_and_the_position_of_a_place_in_an_array_is_not():
    def kernel(x, y, start):
        there = lanes.place(x, start)
        y[0] = lanes.load(there, 2**32 + 1 - start, 1)[0]
        y[1] = lanes.load(lanes.place(there, 2**32 + 2 - start), 0, 1)[0]

    y = np.zeros(2, np.float32)
    for start in (0, 3, -(2**31) + 4):  # 1 - start and 2 - start fit an int32
        emulate(kernel, (1,), (1,), [np.arange(4, dtype=np.float32), y, start])
        assert y.tolist() == [1, 2]


def test_what_is_put_into_registers_is_taken_out_again_rounded_and_without_an_access():
    def kernel(x, y):
        held = cuda.local.array(6, float32)
        lanes.put((float32(7), float32(8)), held, 0)
        lanes.put(lanes.load(x, 0, 4), held, 2)
        lanes.put((0.1,), held, 1)
        lanes.axpy(float32(2), lanes.take(held, 2, 2), held, 4)
        lanes.put(lanes.take(held, 4, 1), held, 0)  # after a multiply-add that is put off
        for i in range(6):
            y[i] = held[i]

    y = np.zeros(6, np.float32)
    counts = emulate(kernel, (1,), (1,), [np.arange(1, 5, dtype=np.float32), y])
    assert y.tolist() == [5, np.float32(0.1), 1, 2, 5, 8]
    assert counts.loads == {("global", 16): 1} and counts.stores == {("global", 4): 6}


def test_helpers_get_the_same_vocabulary():
    @njit(inline="always")
    def mine(scale):
        return cuda.threadIdx.x * scale

    def kernel(out):
        out[cuda.threadIdx.x] = mine(3)

    out = np.zeros(4, np.int32)
    emulate(kernel, (1,), (4,), [out])
    assert out.tolist() == [0, 3, 6, 9]


def test_an_instruction_is_the_same_wherever_in_it_a_frame_is():
    def code(x):
        return x[0] + x[1]

    starts = [found.offset for found in dis.get_instructions(code)]
    for start, end in zip(starts, [*starts[1:], len(code.__code__.co_code)], strict=True):
        assert {instruction(code.__code__, at) for at in range(start, end)} == {start}
