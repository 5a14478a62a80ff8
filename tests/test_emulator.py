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
