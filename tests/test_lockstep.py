"""Lanes in lockstep compute what they do on the emulator, one by one."""

import ast

import numpy as np
import pytest
from lockstep_runs import FULL, SIZE, both, number
from numba import cuda, float32, float64, int32, int64, njit

from sparsekern.machine import lanes, lockstep
from sparsekern.machine.lockstep import launch

KERNELS = []


def alike(kernel):
    """Enters a kernel of (x, z, y): SIZE random int32, as many float32, and float64 for what it finds."""
    KERNELS.append(kernel)
    return kernel


@alike
def branches(x, z, y):
    i = number()
    if x[i] % 3 == 0:
        if x[i] > 0:
            y[i] = 1
        r = 10
    elif x[i] % 3 == 1:
        r = x[i]
    else:
        r = 1.5
    y[i] += r


@alike
def returns(x, z, y):
    i = number()
    if x[i] < 0:
        return
    for t in range(5):
        if x[i] % 5 == t:
            return
        y[i] = t
    y[i] = 77


@alike
def ranges(x, z, y):
    i = number()
    s = 0
    for t in range(i % 4, abs(x[i]) % 7, i % 2 + 1):
        s = s * 3 + t
    for t in range(i % 5, -2, -2):
        s = s * 3 + t
    for t in range(3):
        s += t * i
    y[i] = s


@alike
def counters_after_loops(x, z, y):
    i = number()
    t = u = 100
    for t in range(i % 3):
        for u in range(t + i % 4):
            y[i] += u
    y[i] += 1000 * t + 7 * u


@alike
def breaks_and_continues(x, z, y):
    i, s, n = number(), 0, 0
    while n < 10:
        n += 1
        if (x[i] + n) % 3 == 0:
            continue
        for t in range(6):
            if t * n > x[i] % 13:
                break
            if t == i % 6:
                continue
            s += t
        else:
            s += 1000
        if s > 40 + i % 9:
            break
    else:
        s = -s
    y[i] = s * 100 + n


@alike
def conditional_expressions(x, z, y):
    i = number()
    a = x[i] if i % 2 else z[i]
    given, kept = (i, x[i]) if x[i] > 3 else (x[i], i)
    pair = (i, i + 1) if i % 3 else (7, i)
    y[i] = given * 2 + kept + a + (1 if i > 20 else 2.5 if i > 10 else 3) + pair[0] * pair[i % 2]


@alike
def what_need_not_be_evaluated(x, z, y):
    i = number()
    if i < 10 and x[i + 150] > 0 or i > 155 or x[i + 4] > 5:
        y[i] = 1
    y[i] += (i > 90 and x[i]) or 0.5
    y[i] += 10 * (not i % 4 and 3)


@alike
def chained_comparisons(x, z, y):
    i = number()
    if 150 <= i < x[i - 150] + 152 <= 158:
        y[i] = 1
    y[i] += 2 * (-3 < x[i] <= 3) + (0 < i % 4 < 3 == True)  # noqa: E712


@alike
def tuples_and_fragments(x, z, y):
    i = number()
    a, (b, c) = i, (x[i], 2)
    a, b = b, a
    four = lanes.load(z, i // 4 * 4, 4)
    p, _, q, _ = four
    for v in four:
        y[i] += v
    for v in (1, 2, 4):
        y[i] += v
    for v in (i, b):
        y[i] += v
    y[i] += a * 3 + b * c + p - q + four[i % 4] - four[-1] + len(four)


@alike
def augmented_assignments(x, z, y):
    i = number()
    s, f = x[i], z[i]
    s += i
    s -= 3
    s *= 2
    s //= 3
    s %= 17
    s <<= i % 5
    s >>= 1
    s |= 8
    s &= 61
    s ^= i
    f /= 3
    r = cuda.local.array(4, float32)
    for k in range(4):
        r[k] = k
    r[i % 4] += f
    r[1] *= float32(1.5)
    x[i] -= 5
    y[i] += s + r[0] + r[1] + r[2] + r[3]


@alike
def arrays_in_place(x, z, y):
    i = number()
    t = cuda.threadIdx.y * 8 + cuda.threadIdx.x
    staged = cuda.shared.array(40, int32)
    if t % 2:
        staged[t] = i * 1000000
    else:
        staged[t] = x[i]
    cuda.syncthreads()
    registers = cuda.local.array(8, float64)
    for k in range(8):
        registers[k] = staged[(t + k * 3) % 40]
    for k in range(i % 4):
        registers[(k + i) % 8] += k
    y[i] = registers[i % 8] + 3 * registers[2] + len(registers) + registers.size + len(staged) + x.size


@alike
def casts_and_functions(x, z, y):
    i = number()
    big = int64(x[i]) * 1000003 * 4099
    a = int32(big) + int32(z[i] * 100) + int(z[i]) + int32(-7.9)
    y[i] = a + min(x[i], i, 5) + max(i, x[i]) + abs(x[i]) + float32(big) + bool(x[i] % 2) + max((i, 3))
    x[i] = big
    z[i] = float64(big) / 3


@alike
def integers(x, z, y):
    i = number()
    a, b = x[i], i % 7 - 3
    if b != 0:
        y[i] = a // b * 100 + a % b + a / b
    y[i] += (a << (i % 3)) + (a >> 2) + (a & i) + (a | i) + (a ^ i) + ~a - (-a) + (not a)
    y[i] += (a > 2) + (b > 0) + ~(a > 2) + (FULL << (i % 4))


@alike
def floats(x, z, y):
    i = number()
    s = float32(0.1)
    for _ in range(i % 5):
        s = s * z[i] + float32(0.3)
    y[i] = s + z[i] / 3 + z[i] * x[i]
    zero = z[i] - z[i]
    nan = zero / zero
    z[i] = min(nan, z[i]) + max(z[i], nan) if i % 2 else 1 / (zero + float32(i % 4 == 0))


@alike
def one_name_of_several_kinds(x, z, y):
    i = number()
    v = 0
    if i % 2:
        v = z[i]
    y[i] = v * 3
    if i % 3 == 0:
        (v,) = lanes.load(x, i, 1)
        y[i] += v
    else:
        v = lanes.load(x, i // 4 * 4, 4)
        y[i] += v[3]
    for v in range(3):
        if v == i % 3:
            w = v
    y[i] += v + 10 * w


@njit(inline="always")
def inner(a, b=3, scale=2):
    if a > b:
        return a * scale
    for t in range(5):
        if t == a:
            return t + b
    return -a


@njit(inline="always")
def pair(a, i):
    if i % 2:
        return a, i
    return i, inner(a, b=i)


@njit(inline="always")
def mark(y, i):
    if i % 5:
        return
    y[i] += 5


@alike
def helpers(x, z, y):
    i = number()
    p, q = pair(x[i], i)
    mark(y, i)
    y[i] += inner(x[i]) + inner(i, 100) + inner(scale=i, a=x[i], b=-2) + p - 2 * q + inner(7)


@alike
def who_and_where(x, z, y):
    i = number()
    y[i] = cuda.threadIdx.x + 10 * cuda.threadIdx.y + 1e2 * cuda.blockIdx.x + 1e3 * cuda.blockIdx.y
    y[i] += cuda.laneid / 64 + cuda.gridDim.y * 1e4 + cuda.blockDim.y * 1e5 + cuda.warpsize * 1e6
    y[i] += cuda.threadIdx.z + cuda.blockIdx.z + cuda.grid(1)


@alike
def shuffles_and_votes(x, z, y):
    i, full = number(), 0xFFFFFFFF
    if cuda.threadIdx.y < 4:
        lane = cuda.laneid
        s = cuda.shfl_xor_sync(full, x[i], 5) + cuda.shfl_up_sync(full, z[i], 3)
        s += (
            cuda.shfl_down_sync(full, x[i], 3) * 5
            + cuda.shfl_sync(full, i, lane // 2)
            + cuda.shfl_sync(-1, 4, 0)
        )
        s += cuda.any_sync(full, x[i] > 8) + 2 * cuda.all_sync(full, x[i] > -100) + cuda.all_sync(full, lane)
        mine = 0xFF << (lane // 8 * 8)
        s += cuda.ballot_sync(mine, x[i] > 0) + cuda.shfl_xor_sync(mine, i, 3)
        y[i] = s + lanes.warp_max(int32(lane // 8 * 3), 8) + 100 * lanes.warp_min(int32(lane // 8 + 1), 8)


@alike
def subwarps_on_their_own(x, z, y):
    i, lane = number(), cuda.threadIdx.y * 8 + cuda.threadIdx.x
    team = cuda.threadIdx.y % 4
    staged = cuda.shared.array(40, int32)
    for t in range(team + 1):
        staged[lane] = i + t
        cuda.syncwarp(0xFF << (team * 8))
        y[i] += staged[lane ^ 3]
        cuda.syncwarp(0xFF << (team * 8))
    cuda.syncthreads()


@alike
def words_of_lanes(x, z, y):
    i = number()
    acc = cuda.local.array(6, float32)
    for k in range(6):
        acc[k] = float32(k)
    four = lanes.load_if(i % 3 > 0, z, i // 4 * 4, 4)
    if i % 7:
        lanes.axpy(z[i], four, acc, 1)
        lanes.dot(four, lanes.load(z, index=0, width=4), acc, 0)
    acc[5] = lanes.fma(acc[0], z[i], acc[1])
    if i % 2 == 0:
        lanes.store(x, i, lanes.scale(lanes.load(x, i, 2), 1 << 29))
    s = float32(0)
    for k in range(0, 6, 2):
        a, b = lanes.take(acc, k, 2)
        s += a * 2 + b
    y[i] = s


@alike
def places(x, z, y):
    i = number()
    mine, all_ = lanes.place(z, i // 4 * 4), lanes.place(x, 8)
    back = lanes.place(mine, -(i // 8 * 4))  # of each lane another
    a, b = lanes.load(back, 0, 4), lanes.load_if(i % 3 > 0, mine, 0, 4)
    (c,) = lanes.load(all_, i // 2, 1)
    (d,) = lanes.load(lanes.place(all_, 3), -i % 8, 1)  # one place for all
    (e,) = lanes.load(mine, (1 << 32) + 1 - i % 2, 1)  # indices and places of places are int32 ...
    (f,) = lanes.load(lanes.place(all_, (1 << 32) * i - 8), i, 1)
    (g,) = lanes.load(lanes.place(x, (1 << 33) + i), -(1 << 31), 1) if i < 0 else lanes.load(x, i, 1)
    y[i] = a[0] + 2 * a[3] + 3 * b[1] + c + 5 * d + 7 * e + 11 * f + 13 * g


@alike
def loads_that_leave_their_registers(x, z, y):
    i = number()
    four = lanes.load_or_leave(i % 3 > 0, z, i // 4 * 4 + (i % 3 == 0) * 10000000, 4)
    (column,) = lanes.load_or_leave(x[i] > 0, lanes.place(x, i), 0 if x[i] > 0 else -(1 << 30), 1)
    (none,) = lanes.load_or_leave(False, z, -1, 1)
    (all_,) = lanes.load_or_leave(True, z, i, 1)
    y[i] = (four[0] + four[3] + column + all_) if none != none else 100


@alike
def what_is_put_into_registers(x, z, y):
    i = number()
    held = cuda.local.array(12, float32)
    for k in range(0, 12, 4):
        lanes.put(lanes.load_if(i % 5 > 0, z, i // 4 * 4, 4), held, k)
    if i % 7:
        lanes.put((float32(i), z[i]), held, i % 8)  # of each lane others
    lanes.put((1, 2, 3), held, 9)
    if i % 2:
        lanes.axpy(z[i], lanes.take(held, 4, 4), held, 0)
    for k in range(12):
        y[i] += (k + 1) * held[k]


@pytest.mark.parametrize("width", [32, 1 << 15], ids=["a block at a time", "all blocks at once"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_lanes_in_lockstep_compute_what_they_do_on_the_emulator(monkeypatch, kernel, width):
    monkeypatch.setattr(lockstep, "WIDTH", width)
    rng = np.random.default_rng(3)
    x = rng.integers(-9, 10, SIZE).astype(np.int32)
    memory = np.empty(SIZE + 4, np.float32)
    z = memory[-memory.ctypes.data // 4 % 4 :][:SIZE]
    z[:] = rng.standard_normal(SIZE)
    expected, found = both(kernel, x, z, np.zeros(SIZE))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6)
    assert any(array.any() for array in found[2:])


def test_a_construct_of_the_language_that_is_followed_is_in_a_kernel_here():
    tree = ast.parse(open(__file__).read())
    names = {kernel.__name__ for kernel in KERNELS} | {"inner", "pair", "mark", "number"}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    used = {type(node).__name__ for function in functions for node in ast.walk(function)}
    followed = {name for name in dir(lockstep.Lockstep) if name[0].isupper()}
    assert followed - used == {"Pass"}


def test_an_array_that_is_passed_twice_keeps_what_was_stored_through_one():
    def kernel(x, y):
        x[0] = y[1] + 1

    x = np.ones(2)
    launch(kernel, (1,), (1,), [x, x])
    assert x.tolist() == [2, 1]


def test_a_helper_with_a_shared_array_has_one_for_each_place_that_calls_it():
    @njit(inline="always")
    def through_shared(value):
        word = cuda.shared.array(1, int32)
        word[0] = value
        return word

    def kernel(out):
        first = through_shared(1)
        second = through_shared(2)
        out[0], out[1] = first[0], second[0]

    _, (found,) = both(kernel, np.zeros(2, np.int32), grid=(1,), block=(1,))
    assert found.tolist() == [1, 2]
