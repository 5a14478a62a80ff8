"""Lanes in lockstep do what they do on the emulator, one by one; or they are refused."""

import ast
import math

import numpy as np
import pytest
from numba import cuda, float32, float64, int32, int64, njit

from sparsekern.machine import lanes, lockstep
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


# Errors, as the emulator has them


def out_of_bounds(x, out):
    if cuda.threadIdx.x == 3 and cuda.blockIdx.x == 1:
        x[cuda.threadIdx.x + 5] = 1


def negative_index(x, out):
    out[0] = x[cuda.threadIdx.x - 1]


def past_the_end(x, out):
    lanes.load(x, cuda.threadIdx.x * 4, 4)


def misaligned(x, out):
    lanes.load(x, (cuda.threadIdx.x > 1) * 2 + (cuda.threadIdx.x > 2), 2)


def masked(x, out):
    lanes.load_if(cuda.threadIdx.x > 1, x, cuda.threadIdx.x * 3, 1)


def flat(x, out):
    x[0] = x[1, 2]


def unwritten_output(x, out):
    if cuda.threadIdx.x == 2:
        out[1] += 1


def unwritten_shared(x, out):
    words = cuda.shared.array(8, int32)
    words[cuda.threadIdx.x] = 1
    words[(cuda.threadIdx.x > 0) * 4 + cuda.threadIdx.x]


def unwritten_register(x, out):
    registers = cuda.local.array(4, int32)
    if cuda.threadIdx.x > 0:
        registers[2] = 1
    registers[2] += 1


def no_such_register(x, out):
    registers = cuda.local.array(4, int32)
    registers[cuda.threadIdx.x + 2] = 1


def read_only(x, out):
    x[0] = 1


def division_by_zero(x, out):
    out[0] = 1 // (cuda.threadIdx.x - 2)


def division_of_integers(x, out):
    out[0] = 1 / (cuda.threadIdx.x - 2)


def remainder(x, out):
    out[0] = cuda.blockIdx.x % (cuda.threadIdx.x - 2)


def negative_shift(x, out):
    out[0] = 1 << (1 - cuda.threadIdx.x)


def no_such_element(x, out):
    (1, 2, 3)[cuda.threadIdx.x]


def too_many_to_unpack(x, out):
    a, b = lanes.load(x, 0, 4)


def integer_of_nan(x, out):
    int32(float32(1e38) * float32(1e38) * (x[cuda.threadIdx.x] - float32(1)))


def unbound(x, out):
    if cuda.threadIdx.x < 2:
        late = 1
    out[0] = late


def no_such_name(x, out):
    nowhere(x)  # noqa: F821


def unknown_word(x, out):
    cuda.atomic.add(x, 0, 1)


def two_dimensions(x, out):
    cuda.shared.array((2, 2), int32)


def foreign_mask(x, out):
    cuda.syncwarp(3)


def exited_lane(x, out):
    if cuda.threadIdx.x != 2:
        cuda.shfl_xor_sync(0xF, 1, 1)


def deadlock(x, out):
    for _ in range(cuda.threadIdx.x // 2 + 1):
        cuda.syncwarp(0xF)
    cuda.syncthreads()


def deadlock_of_masks(x, out):
    cuda.syncwarp(0xF if cuda.threadIdx.x < 2 else 0xE)


def products_of_two_lengths(x, out):
    sums = cuda.local.array(1, float32)
    sums[0] = float32(0)
    lanes.dot(lanes.load(x, 0, 4), lanes.load(x, 0, 2), sums, 0)


def place_in_shared(x, out):
    staged = cuda.shared.array(4, float32)
    lanes.place(staged, cuda.threadIdx.x)


def past_a_place(x, out):
    lanes.load(lanes.place(x, 4), cuda.threadIdx.x + 2, 1)


def before_a_place_of_a_place(x, out):
    lanes.load(lanes.place(lanes.place(x, cuda.threadIdx.x), 0 - 2), 1, 1)


def misaligned_from_a_place(x, out):
    lanes.load(lanes.place(x, 2), cuda.threadIdx.x // 2, 2)


def overflow_from_a_place(x, out):
    lanes.load(lanes.place(x, 1), cuda.threadIdx.x << 31, 1)


def unwritten_through_a_place(x, out):
    lanes.load(lanes.place(out, 0), 1, 1)


def left_but_wanted(x, out):
    lanes.load_or_leave(cuda.threadIdx.x > 1, x, cuda.threadIdx.x * 4, 1)


def put_past_the_end(x, out):
    registers = cuda.local.array(4, float32)
    lanes.put(lanes.load(x, 0, 2), registers, cuda.threadIdx.x + 1)


def put_before_the_first(x, out):
    registers = cuda.local.array(4, float32)
    lanes.put((x[0], x[1]), registers, -1)


@njit(inline="always")
def beyond(x, i):
    return x[i + 6]


def in_a_helper(x, out):
    out[1] = beyond(x, cuda.threadIdx.x)


ERRORS = {
    out_of_bounds: "out of bounds", negative_index: "out of bounds", past_the_end: "out of bounds",
    misaligned: "misaligned", masked: "out of bounds", flat: "unsupported", unwritten_output: "unwritten",
    unwritten_shared: "unwritten", unwritten_register: "unwritten", no_such_register: "out of bounds",
    read_only: "read-only", division_by_zero: "exception", division_of_integers: "exception",
    remainder: "exception", negative_shift: "exception", no_such_element: "exception",
    too_many_to_unpack: "exception", integer_of_nan: "exception", unbound: "exception",
    no_such_name: "exception", unknown_word: "unsupported", two_dimensions: "unsupported",
    foreign_mask: "collective", exited_lane: "collective", deadlock: "deadlock",
    deadlock_of_masks: "deadlock", products_of_two_lengths: "unsupported", in_a_helper: "out of bounds",
    place_in_shared: "unsupported", past_a_place: "out of bounds", before_a_place_of_a_place: "out of bounds",
    misaligned_from_a_place: "misaligned", overflow_from_a_place: "out of bounds",
    unwritten_through_a_place: "unwritten", left_but_wanted: "out of bounds",
    put_past_the_end: "out of bounds", put_before_the_first: "out of bounds",
}  # fmt: skip


def caught(run, kernel, *arguments, grid=(2,), block=(4,), outputs=()):
    with pytest.raises(EmulatorError) as info:
        run(kernel, grid, block, arguments, outputs)
    return info.value


@pytest.mark.parametrize("kernel", ERRORS, ids=lambda kernel: kernel.__name__)
def test_what_a_kernel_does_wrong_is_said_as_the_emulator_says_it(kernel):
    x, out = np.ones(8, np.float32), np.zeros(2, np.float32)
    x.flags.writeable = kernel is not read_only
    expected, found = (caught(run, kernel, x, out, outputs=(1,)) for run in (emulate, launch))
    assert (found.kind, found.file, found.line) == (ERRORS[kernel], __file__, expected.line)
    assert (found.block, found.thread) == (expected.block, expected.thread)
    if found.kind != "exception":  # what Python says differs between its versions, and arrays from numbers
        assert str(found) == str(expected)
    assert x.all() and not out.any()


def load_from_an_integer(x, out):
    lanes.load(3, 0, 1)


def load_from_integers(x, out):
    lanes.load(cuda.threadIdx.x, 0, 1)


def load_from_a_larger_integer(x, out):
    lanes.load(1 << 60, 0, 1)


INTEGERS = [load_from_an_integer, load_from_integers, load_from_a_larger_integer]


@pytest.mark.parametrize("kernel", INTEGERS, ids=lambda kernel: kernel.__name__)
def test_an_integer_is_no_place(kernel):
    x, out = np.ones(8, np.float32), np.zeros(2, np.float32)
    expected, found = (caught(run, kernel, x, out) for run in (emulate, launch))
    assert (expected.kind, found.kind) == ("exception", "exception")
    assert (found.file, found.line) == (__file__, expected.line)
    assert "TypeError: lanes access global and shared arrays, not" in str(found)


def index_of_a_place(x, out):
    lanes.place(x, cuda.threadIdx.x)[0]


def index_of_one_place_for_all(x, out):
    lanes.place(x, 4)[0]


def element_of_a_place(x, out):
    place = lanes.place(x, cuda.threadIdx.x)
    place[0] = 1


def store_to_a_place(x, out):
    lanes.store(lanes.place(x, cuda.threadIdx.x), 0, (float32(1),))


def store_to_one_place_for_all(x, out):
    lanes.store(lanes.place(x, 4), 0, (float32(1),))


@pytest.mark.parametrize(
    "kernel",
    [
        index_of_a_place,
        index_of_one_place_for_all,
        element_of_a_place,
        store_to_a_place,
        store_to_one_place_for_all,
    ],
    ids=lambda kernel: kernel.__name__,
)
def test_a_place_that_is_not_only_loaded_from_is_an_error_at_its_line(kernel):
    """In lockstep it is a number, which has no elements: the kind differs."""
    x, out = np.ones(8, np.float32), np.zeros(2, np.float32)
    expected, found = (caught(run, kernel, x, out, outputs=(1,)) for run in (emulate, launch))
    assert (expected.kind, found.kind) == ("unsupported", "exception")
    assert (found.file, found.line, found.thread) == (__file__, expected.line, expected.thread)
    assert "TypeError" in str(found) and x.all()


def test_a_load_that_leaves_its_registers_makes_no_access_where_it_is_not_wanted():
    def kernel(x):
        i = cuda.threadIdx.x
        lanes.load_or_leave(i < 9, lanes.place(x, 32), i, 1)
        lanes.load_or_leave(i > 31, x, i, 1)

    x = np.ones(64, np.float32)
    cost = {kind.verb: cost for kind, cost in launch(kernel, (1,), (32,), [x]).low.items()}
    assert (cost["load"].instructions, cost["load"].lanes) == (1, 9)
    assert emulate(kernel, (1,), (32,), [x]).loads == {("global", 4): 9}


def test_an_exception_is_named_as_python_names_it():
    x = np.ones(8, np.float32)
    for kernel, name in ((division_by_zero, "ZeroDivisionError: integer"), (unbound, "UnboundLocalError")):
        assert name in str(caught(launch, kernel, x, x.copy()))


# What is refused


def a_list(x):
    [t for t in range(3)]


def a_function_in_a_kernel(x):
    def inner(i):
        return x[i]


def a_power(x):
    x[0] = cuda.threadIdx.x**2


def membership(x):
    x[0] = cuda.threadIdx.x in (1, 2)


def a_function_of_python(x):
    math.sqrt(x[0])


def a_slice(x):
    x[0:2]


def an_attribute_of_a_number(x):
    x[1] = x[0].real


def starred(x):
    lanes.load(*(x, 0, 1))


def keywords(x):
    lanes.load(**{})


def a_try(x):
    try:
        x[0]
    except IndexError:
        pass


def two_arrays(x):
    staged = cuda.shared.array(8, float32)
    array = x if cuda.threadIdx.x else staged
    array[0] = 1


def two_widths(x):
    v = lanes.load(x, 0, 2)
    if cuda.threadIdx.x:
        v = lanes.load(x, 0, 4)
    v[0]


def a_tuple_of_two_types(x):
    v = (1, x[0])
    v[0]


def a_place_that_is_kept(x):
    place = cuda.threadIdx
    x[place.x]


def a_range_that_is_kept(x):
    trips = range(cuda.threadIdx.x)
    for t in trips:
        x[t]


@njit(inline="always")
def any_number(*values):
    return values[0]


def parameters_of_any_number(x):
    any_number(x[0])


def a_target(x):
    cuda.threadIdx.x = 1


TABLE = np.arange(3)


def an_array_that_is_no_argument(x):
    x[0] = TABLE[0]


def two_shuffles_that_meet(x):
    if cuda.threadIdx.x < 2:
        cuda.syncwarp(0xF)
    else:
        cuda.syncwarp(0xF)


def a_sum_of_fragments(x):
    v = lanes.load(x, 0, 4)
    v = v + v


def a_product_of_a_fragment(x):
    2 * lanes.load(x, 0, 4)


def a_sum_of_tuples(x):
    (x[0], 1) + (2, 3)


def a_fragment_that_is_negated(x):
    -lanes.load(x, 0, 4)


def not_a_fragment(x):
    not lanes.load(x, 0, 4)


def fragments_that_are_compared(x):
    x[0] = lanes.load(x, 0, 4) == lanes.load(x, 4, 4)


def tuples_that_are_compared(x):
    x[0] = (x[0], 1) == (x[0], 1)


def tuples_in_order(x):
    x[0] = (1, 2) < (x[0], 1)


def truth_of_a_fragment(x):
    if lanes.load(x, 0, 4):
        x[0] = 1


def truth_of_a_tuple(x):
    x[0] = (x[0], 1) and 1


def the_smaller_fragment(x):
    min(lanes.load(x, 0, 4), lanes.load(x, 4, 4))


def the_larger_tuple(x):
    max((x[0], 1), (x[0], 2))


def absolute_fragment(x):
    abs(lanes.load(x, 0, 4))


def a_fragment_that_is_cast(x):
    int32(lanes.load(x, 0, 4))


def a_fragment_as_an_index(x):
    x[lanes.load(x, 0, 4)]


def a_constant_of_64_bits(x):
    cuda.threadIdx.x * 0x9E3779B97F4A7C15


def a_comparison_with_64_bits(x):
    x[0] = cuda.threadIdx.x < 1 << 63


def a_range_past_64_bits(x):
    for _ in range(cuda.threadIdx.x, 1 << 64):
        pass


def a_shuffle_of_64_bits(x):
    cuda.shfl_xor_sync(0xF, 1, 1 << 64)


def lanes_that_will_have_left(x):
    if cuda.threadIdx.x < 2:
        cuda.syncthreads()
    else:
        return


REFUSED = {
    a_list: "cannot do ListComp, as in", a_function_in_a_kernel: "cannot do FunctionDef, as in def inner",
    a_power: "no operator Pow", membership: "not by In",
    a_function_of_python: "math.sqrt of values that differ",
    a_slice: "cannot do Slice", an_attribute_of_a_number: "no attributes of numbers",
    starred: "cannot do Starred",
    keywords: r"cannot do \*\*", a_try: "cannot do Try", two_arrays: "must be a number, not Memory",
    two_widths: "fragments of one width", a_tuple_of_two_types: "numbers of one type",
    a_place_that_is_kept: "cannot keep a Dim3", a_range_that_is_kept: "cannot keep a Span",
    parameters_of_any_number: "parameters of any_number", a_target: "cannot assign to cuda.threadIdx.x",
    an_array_that_is_no_argument: "TABLE is none",
    **dict.fromkeys(
        [
            a_sum_of_fragments, a_product_of_a_fragment, a_sum_of_tuples, a_fragment_that_is_negated,
            not_a_fragment, fragments_that_are_compared, tuples_that_are_compared, tuples_in_order,
            truth_of_a_fragment, truth_of_a_tuple, the_smaller_fragment, the_larger_tuple,
            absolute_fragment, a_fragment_that_is_cast, a_fragment_as_an_index,
        ],
        "numbers, not fragments and tuples",
    ),
    **dict.fromkeys(
        [
            a_constant_of_64_bits, a_comparison_with_64_bits, a_range_past_64_bits, a_shuffle_of_64_bits,
        ],
        "have 64 bits, and [0-9]+ has more",
    ),
    two_shuffles_that_meet: "syncwarp with mask 0x0000000f: lanes meet here from different places",
    lanes_that_will_have_left: "syncthreads: lanes meet here from different places",
}  # fmt: skip


def test_a_refusal_changes_nothing():
    x = np.ones(8, np.float32)

    def kernel(x):
        x[cuda.threadIdx.x] = 5
        two_barriers(x)

    @njit(inline="always")
    def two_barriers(x):
        if cuda.threadIdx.x < 2:
            cuda.syncwarp(0xF)
        else:
            cuda.syncwarp(0xF)

    caught(launch, kernel, x)
    assert (x == 1).all()


@pytest.mark.parametrize("kernel", REFUSED, ids=lambda kernel: kernel.__name__)
def test_what_cannot_be_followed_is_refused_by_name_and_line(kernel):
    error = caught(launch, kernel, np.ones(8, np.float32))
    first = kernel.__code__.co_firstlineno
    assert error.kind == "unsupported" and error.file == __file__
    assert first < error.line <= first + 4
    with pytest.raises(EmulatorError, match=REFUSED[kernel]):
        raise error


def test_a_kernel_without_a_text_or_a_def_is_refused():
    scope = {}
    exec("def kernel(x):\n    x[0] = 1\n", scope)
    assert "text of kernel cannot be had" in str(caught(launch, scope["kernel"], np.ones(1)))
    assert "not made by a def" in str(caught(launch, lambda x: x[0], np.ones(1)))


@pytest.mark.parametrize(
    "edited",
    ["def kernel(x):\n    x[0] = 2\n", "\ndef kernel(x):\n    x[0] = 1\n", "def kernel(x):\n    x[0] =\n"],
    ids=["another constant", "another line", "no Python"],
)
def test_a_text_that_has_changed_since_it_was_loaded_is_refused(tmp_path, edited):
    file, scope = tmp_path / "edited.py", {}
    text = "def kernel(x):\n    x[0] = 1\n"
    file.write_text(text)
    exec(compile(text, str(file), "exec"), scope)
    kernel, x = scope["kernel"], np.zeros(1)
    file.write_text(edited)
    error = caught(launch, kernel, x)
    assert (error.kind, error.file) == ("unsupported", str(file)) and not x.any()
    assert "the text of kernel has changed since it was loaded" in str(error)
    file.write_text(text + "# more\n")
    launch(kernel, (1,), (1,), [x])
    assert x.tolist() == [1]


def test_an_array_that_is_passed_twice_keeps_what_was_stored_through_one():
    def kernel(x, y):
        x[0] = y[1] + 1

    x = np.ones(2)
    launch(kernel, (1,), (1,), [x, x])
    assert x.tolist() == [2, 1]


def test_a_plain_helper_is_refused_as_the_compiler_would():
    def helper(x):
        return x

    def kernel(x):
        x[0] = helper(1)

    with pytest.raises(TypeError, match="helper is a plain function.*njit"):
        launch(kernel, (1,), (1,), [np.zeros(1, np.int32)])


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
