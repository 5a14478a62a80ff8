"""What lanes cannot do in lockstep is refused, by name and line, and never counted wrongly."""

import math

import numpy as np
import pytest
from lockstep_runs import caught
from numba import cuda, float32, int32, njit

from sparsekern.machine import lanes
from sparsekern.machine.lockstep import launch
from sparsekern.machine.report import EmulatorError


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


def test_a_plain_helper_is_refused_as_the_compiler_would():
    def helper(x):
        return x

    def kernel(x):
        x[0] = helper(1)

    with pytest.raises(TypeError, match="helper is a plain function.*njit"):
        launch(kernel, (1,), (1,), [np.zeros(1, np.int32)])
