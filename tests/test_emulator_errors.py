"""What hardware would not survive is reported, where it is."""

import gc
import inspect

import numpy as np
import pytest
from greenlet import greenlet
from numba import cuda, float32, int32, njit

from sparsekern.machine import lanes
from sparsekern.machine.emulator import emulate
from sparsekern.machine.report import EmulatorError


def line_of(function, text):
    """The line of the file in which the source of `function` says `text`."""
    source, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(source) if text in line)


def caught(kernel, block, arguments, grid=(1,), **options):
    with pytest.raises(EmulatorError) as info:
        emulate(kernel, grid, block, arguments, **options)
    return info.value


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


def test_an_index_of_two_dimensions_is_refused_since_arrays_are_flat():
    def kernel(x):
        x[0] = x[1, 2]

    assert "x is flat" in str(caught(kernel, (1,), [np.zeros(9, np.float32)]))


def test_the_message_shows_the_line():
    def kernel(x):
        x[99] = 7  # far away

    assert str(caught(kernel, (1,), [np.zeros(9, np.float32)])).endswith("x[99] = 7  # far away")


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


def test_a_dot_of_fragments_of_two_lengths_is_refused():
    def kernel(x):
        sums = cuda.local.array(1, float32)
        sums[0] = float32(0)
        lanes.dot(lanes.load(x, 0, 4), lanes.load(x, 0, 2), sums, 0)

    error = caught(kernel, (1,), [np.ones(4, np.float32)])
    assert error.kind == "unsupported" and "4 and 2 elements have no product" in str(error)


def test_a_place_in_memory_that_is_not_global_is_refused():
    def kernel():
        shared = cuda.shared.array(4, float32)
        lanes.place(shared, 1)  # here

    error = caught(kernel, (1,), [])
    assert (error.kind, error.line) == ("unsupported", line_of(kernel, "# here"))
    assert "is in shared memory; places are in global memory" in str(error)


@pytest.mark.parametrize("index, kind", [(4, "out of bounds"), (-8, "out of bounds"), (-2, "misaligned")])
def test_an_access_from_a_place_that_is_wrong_names_the_element_of_its_array(index, kind):
    def kernel(x, index):
        lanes.load(lanes.place(lanes.place(x, 3), 1), index, 4)  # here

    memory = np.zeros(12, np.float32)
    x = memory[-memory.ctypes.data // 4 % 4 :][:8]
    error = caught(kernel, (1,), [x, index])
    assert (error.kind, error.line) == (kind, line_of(kernel, "# here"))
    assert f"x[{4 + index}:{8 + index}] read" in str(error)


def test_an_index_from_a_place_that_overflows_an_int32_wraps_around():
    def kernel(x):
        lanes.load(lanes.place(x, 4), 2**31, 1)

    error = caught(kernel, (1,), [np.zeros(8, np.float32)])
    assert error.kind == "out of bounds" and f"x[{4 - 2**31}] read" in str(error)


def test_reading_an_output_that_nothing_was_written_to_through_a_place_is_an_error():
    def kernel(x):
        lanes.load(lanes.place(x, 2), -1, 1)

    error = caught(kernel, (1,), [np.zeros(4, np.float32)], outputs=(0,))
    assert error.kind == "unwritten" and "x[1] read" in str(error)


def test_a_place_can_only_be_loaded_from():
    def read(x):
        lanes.place(x, 0)[1]  # here

    def write(x):
        lanes.place(x, 0)[1] = 2  # here

    def store(x):
        lanes.store(lanes.place(x, 0), 0, (float32(1),))  # here

    def size(x):
        x[0] = lanes.place(x, 0).size  # here

    x = np.zeros(4, np.float32)
    for kernel, said in (
        (read, "takes no [1]: say lanes.load"),
        (write, "takes no [1]: say lanes.load"),
        (store, "it can only be loaded from"),
        (size, "a place has no size"),
    ):
        error = caught(kernel, (1,), [x])
        assert (error.kind, error.line) == ("unsupported", line_of(kernel, "# here"))
        assert said in str(error)


@pytest.mark.parametrize("start, span", [(3, "[3:5]"), (-1, "[-1:1]"), (4, "[4:6]")])
def test_what_is_put_past_the_registers_is_out_of_bounds(start, span):
    def kernel(start):
        held = cuda.local.array(4, float32)
        lanes.put((float32(1), float32(2)), held, start)  # here

    error = caught(kernel, (1,), [start])
    assert (error.kind, error.line) == ("out of bounds", line_of(kernel, "# here"))
    assert f"register {span} of a local array of 4" in str(error)


def test_a_load_that_leaves_its_registers_is_checked_where_it_is_wanted():
    def kernel(x):
        lanes.load_or_leave(cuda.threadIdx.x == 2, x, 9, 1)  # here

    error = caught(kernel, (4,), [np.zeros(9, np.float32)])
    assert (error.kind, error.line, error.thread) == ("out of bounds", line_of(kernel, "# here"), (2, 0, 0))


def test_lanes_in_two_shuffles_do_not_meet():
    def kernel(x):
        i = cuda.threadIdx.x
        if i % 2 == 0:
            y = cuda.shfl_xor_sync(0xFFFFFFFF, x[i], 1)
        else:
            y = cuda.shfl_xor_sync(0xFFFFFFFF, x[i], 1)
        x[i] = y

    error = caught(kernel, (32,), [np.zeros(32, np.float32)])
    first = kernel.__code__.co_firstlineno
    assert (error.kind, error.line) == ("deadlock", first + 3)
    assert f"16 wait in shfl_xor_sync with mask 0xffffffff at line {first + 5}" in str(error)


def test_lanes_in_two_barriers_of_the_block_do_not_meet():
    def kernel(x):
        if cuda.threadIdx.x < 16:
            cuda.syncthreads()
        else:
            cuda.syncthreads()

    assert caught(kernel, (32,), [np.zeros(1, np.float32)]).kind == "deadlock"
