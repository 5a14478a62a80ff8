"""The emulator: arithmetic as on a device, collectives, and bugs reported where they are."""

import gc
import inspect
from fractions import Fraction

import numpy as np
import pytest
from greenlet import greenlet
from hypothesis import given
from hypothesis import strategies as st
from numba import cuda, float32, int32, njit

from sparsekern.machine import lanes
from sparsekern.machine.arithmetic import Float32, to_float32, to_int32
from sparsekern.machine.emulator import EmulatorError, emulate
from sparsekern.machine.lanes import accumulate_here as accumulate
from sparsekern.machine.lanes import fma_here as fma

floats32 = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**60), max_value=2.0**60)


def line_of(function, text):
    """The line of the file in which the source of `function` says `text`."""
    source, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(source) if text in line)


def caught(kernel, block, arguments, grid=(1,), **options):
    with pytest.raises(EmulatorError) as info:
        emulate(kernel, grid, block, arguments, **options)
    return info.value


# Arithmetic


@given(floats32, floats32, floats32)
def test_fma_rounds_once(a, x, y):
    exact = Fraction(a) * Fraction(x) + Fraction(y)
    found = fma(a, x, y)
    below, above = np.nextafter(np.float32(found), np.float32([-np.inf, np.inf]))
    distance = abs(Fraction(float(found)) - exact)
    assert distance <= abs(Fraction(float(below)) - exact)
    assert distance <= abs(Fraction(float(above)) - exact)


def test_fma_is_not_rounded_twice():
    # 1 + 2**-24 + 2**-54 lies above the tie between two float32s; rounded to float64 first, it is the tie.
    a, x, y = 1 + 2.0**-12, 2.0**-12, 1 - 2.0**-12 - 2.0**-24
    tiny = 2.0**-54
    assert fma(2.0**-27, 2.0**-27, 1 + 2.0**-23) == 1 + 2.0**-23
    assert np.float32(np.float64(1 + 2.0**-24) + tiny) == 1
    assert fma(1 + 2.0**-23, 1 + 2.0**-23, 2.0**-24 - 2.0**-23) == float32_of(
        Fraction(1 + 2.0**-23) ** 2 + Fraction(2.0**-24 - 2.0**-23)
    )
    assert fma(a, x, y) == float32_of(Fraction(a) * Fraction(x) + Fraction(y))


def float32_of(exact):
    """The float32 nearest to a fraction in [1, 2), ties to even."""
    unit = Fraction(1, 2**23)
    low = exact // unit
    rest = exact / unit - low
    up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2)
    return float((low + up) * unit)


@given(floats32, floats32, floats32)
def test_float32_arithmetic_rounds_as_numpy_s_does(x, y, z):
    with np.errstate(all="ignore"):
        a, b, c = map(np.float32, (x, y, z))
        assert Float32(x) * Float32(y) == a * b
        assert Float32(x) + Float32(y) - Float32(z) == a + b - c
        assert type(Float32(x) * Float32(y)) is Float32


def test_float32_with_an_integer_or_a_python_float_is_float64_as_in_numba():
    assert Float32(1.0) / 3 == 1.0 / 3
    assert 0.1 * Float32(3.0) == 0.1 * 3.0
    assert -Float32(2.0) == abs(Float32(-2.0)) * -1


@pytest.mark.parametrize("value, wrapped", [(2**31, -(2**31)), (-(2**31) - 1, 2**31 - 1), (7, 7), (-1.9, -1)])
def test_a_cast_to_int32_wraps_or_truncates(value, wrapped):
    assert to_int32(value) == wrapped


def test_a_cast_to_float32_overflows_to_infinity_and_keeps_denormals():
    assert to_float32(1e39) == np.inf
    assert to_float32(2.0**-149) == 2.0**-149


def test_many_multiply_adds_at_once_come_out_as_one_by_one(rng):
    multipliers, rows = rng.standard_normal(50, np.float32), rng.standard_normal(200, np.float32)
    sums = np.zeros(4, np.float32)
    accumulate(multipliers, rows, sums)
    expected = [0.0] * 4
    for i in range(50):
        expected = [fma(multipliers[i], rows[4 * i + j], expected[j]) for j in range(4)]
    assert sums.tolist() == expected


def test_stores_wrap_to_the_dtype_of_the_array():
    def kernel(x, y):
        x[0] = 2**31 + 5
        y[0] = 1e300

    x, y = np.zeros(1, np.int32), np.zeros(1, np.float32)
    emulate(kernel, (1,), (1,), [x, y])
    assert (x[0], y[0]) == (-(2**31) + 5, np.inf)


# Grids, arrays, collectives


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


# Bugs


@pytest.mark.parametrize("index", [8, -1, 2**40])
def test_an_access_out_of_bounds_names_line_block_and_thread(index):
    def kernel(x, index):
        if cuda.threadIdx.x == 3 and cuda.blockIdx.x == 1:
            x[index] = 1  # here

    x = np.zeros(8, np.float32)
    error = caught(kernel, (4,), [x, index], grid=(2,))
    assert (error.kind, error.line) == ("out of bounds", line_of(kernel, "# here"))
    assert (error.block, error.thread) == ((1, 0, 0), (3, 0, 0))
    assert f"x[{index}]" in str(error) and "8 elements" in str(error)
    assert not x.any()


def test_a_vector_that_reaches_past_the_end_is_out_of_bounds():
    def kernel(x):
        lanes.load(x, 8, 4)

    assert caught(kernel, (1,), [np.zeros(10, np.float32)]).kind == "out of bounds"


@pytest.mark.parametrize("slice_", [slice(0, 8), slice(1, 9)])
def test_a_misaligned_vector_is_an_error_whether_index_or_pointer_is_off(slice_):
    def kernel(x, index):
        lanes.load(x, index, 4)  # here

    memory = np.zeros(16, np.float32)
    memory = memory[-memory.ctypes.data // 4 % 4 :]
    x, index = memory[slice_], 1 - slice_.start
    error = caught(kernel, (1,), [x, index])
    assert (error.kind, error.line) == ("misaligned", line_of(kernel, "# here"))
    assert "4 bytes past alignment" in str(error)
    emulate(kernel, (1,), (1,), [x, (4 - slice_.start) % 4])


def test_a_shared_array_is_aligned_no_better_than_asked():
    def kernel(alignment):
        shared = cuda.shared.array(8, float32, alignment)
        lanes.store(shared, 4, (float32(1), float32(2), float32(3), float32(4)))

    emulate(kernel, (1,), (1,), [16])
    assert caught(kernel, (1,), [None]).kind == "misaligned"


def test_a_barrier_that_some_lanes_never_reach_is_a_deadlock_that_names_both_lines():
    def kernel(lengths):
        for _ in range(lengths[cuda.threadIdx.x // 16]):
            cuda.syncwarp()  # here
        cuda.syncthreads()  # there

    error = caught(kernel, (32,), [np.array([2, 3], np.int32)])
    assert (error.kind, error.line, error.thread) == ("deadlock", line_of(kernel, "# here"), (16, 0, 0))
    assert f"16 wait in syncthreads at line {line_of(kernel, '# there')}" in str(error)


def test_a_mask_that_does_not_name_its_caller_is_an_error():
    def kernel():
        cuda.syncwarp(0xF)

    error = caught(kernel, (8,), [])
    assert (error.kind, error.thread) == ("collective", (4, 0, 0))


def test_a_shuffle_from_an_exited_lane_is_an_error():
    def kernel(out):
        if cuda.laneid != 2:
            out[cuda.laneid] = cuda.shfl_xor_sync(0xFFFFFFFF, 1, 1)  # here

    error = caught(kernel, (32,), [np.zeros(32, np.int32)])
    assert (error.kind, error.line, error.thread) == ("collective", line_of(kernel, "# here"), (3, 0, 0))
    assert "lane 2" in str(error)


def test_reading_memory_that_nothing_was_written_to_is_an_error():
    def shared(out):
        words = cuda.shared.array(4, int32)
        out[0] = words[2]

    def local(out):
        registers = cuda.local.array(4, int32)
        out[0] = registers[1]

    def output(out):
        out[0] += 1

    out = np.zeros(1, np.int32)
    assert caught(shared, (1,), [out]).kind == "unwritten"
    assert caught(local, (1,), [out]).kind == "unwritten"
    assert caught(output, (1,), [out], outputs=(0,)).kind == "unwritten"


def test_writing_to_a_read_only_argument_is_an_error():
    def kernel(x):
        x[0] = 1

    x = np.zeros(1, np.float32)
    x.flags.writeable = False
    assert caught(kernel, (1,), [x]).kind == "read-only"


def test_words_outside_the_vocabulary_are_named():
    def kernel(x):
        cuda.atomic.add(x, 0, 1)  # here

    error = caught(kernel, (1,), [np.zeros(1, np.int32)])
    assert (error.kind, error.line) == ("unsupported", line_of(kernel, "# here"))
    assert "cuda.atomic" in str(error) and "syncwarp" in str(error)


def test_an_exception_in_a_kernel_is_reported_at_its_line():
    def kernel(x):
        x[0] = 1 // x[1]  # here

    error = caught(kernel, (1,), [np.zeros(2, np.int32)])
    assert (error.kind, error.line) == ("exception", line_of(kernel, "# here"))
    assert "ZeroDivisionError" in str(error)


def test_a_plain_helper_is_refused_as_the_compiler_would():
    def helper(x):
        return x

    def kernel(x):
        x[0] = helper(1)

    with pytest.raises(TypeError, match="helper is a plain function.*njit"):
        emulate(kernel, (1,), (1,), [np.zeros(1, np.int32)])


def test_an_error_inside_a_nested_function_or_a_library_helper_names_the_kernel_s_own_line():
    def nested(x):
        def inner(i):
            return x[i]  # here

        x[0] = inner(99)

    def stuck(x):
        if cuda.laneid < 16:
            lanes.warp_max(int32(1), 16)  # there
        else:
            cuda.syncwarp()

    assert caught(nested, (1,), [np.zeros(4, np.int32)]).line == line_of(nested, "# here")
    error = caught(stuck, (32,), [np.zeros(4, np.int32)])
    assert (error.kind, error.line) == ("deadlock", line_of(stuck, "# there"))


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

    out = np.zeros(2, np.int32)
    emulate(kernel, (1,), (1,), [out])
    assert out.tolist() == [1, 2]


def test_division_by_zero_gives_an_infinity_or_nan():
    def kernel(x):
        x[0], x[1], x[2], x[3] = x[0] / x[3], x[1] / x[3], x[3] / x[3], 1 / x[3]

    x = np.array([1, -1, 0, 0], np.float32)
    emulate(kernel, (1,), (1,), [x])
    assert np.array_equal(x, [np.inf, -np.inf, np.nan, np.inf], equal_nan=True)


def test_a_failed_launch_leaves_nothing_behind():
    def kernel(x):
        cuda.syncthreads()
        x[9] = 1

    caught(kernel, (64,), [np.zeros(1, np.int32)])
    gc.collect()
    assert not [g for g in gc.get_objects() if isinstance(g, greenlet) and g and g.parent]


@pytest.mark.parametrize("block", [(0,), (1025,), (32, 33)])
def test_a_block_that_no_gpu_has_is_refused(block):
    with pytest.raises(ValueError, match="it must have 1 to 1024"):
        emulate(lambda: None, (1,), block, [])


def test_outputs_and_arguments_must_fit_the_kernel():
    def kernel(x):
        x[0] = 1

    with pytest.raises(ValueError, match="outputs is .*positions of arguments"):
        emulate(kernel, (1,), (1,), [np.zeros(1, np.int32)], outputs=("x",))
    with pytest.raises(TypeError, match="kernel has 1 parameters, x; a kernel here is called with 2"):
        emulate(kernel, (1,), (1,), [np.zeros(1, np.int32), 3])


def test_a_failed_launch_changes_nothing():
    def kernel(x):
        x[cuda.blockIdx.x] = 5

    x = np.zeros(3, np.int32)
    caught(kernel, (1,), [x], grid=(4,))
    assert not x.any()
