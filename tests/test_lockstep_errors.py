"""What a kernel does wrong in lockstep is said as the emulator says it."""

import numpy as np
import pytest
from lockstep_runs import caught
from numba import cuda, float32, int32, njit

from sparsekern.machine import lanes
from sparsekern.machine.emulator import emulate
from sparsekern.machine.lockstep import launch


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
