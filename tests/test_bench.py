"""Timing, and the libraries that are timed beside: what can be tested without a GPU, then what cannot."""

import sys

import numpy as np
import pytest
from numba import cuda

from sparsekern import LADDERS, plan_spmm
from sparsekern.generators import uniform
from sparsekern.machine.backends import device_backend
from sparsekern.reference import error, sddmm_reference, spmm_reference, tolerance

pytest.importorskip(
    "cuda.bindings", reason="needs cuda.bindings, which comes with the extra cuda12 or cuda13"
)

from sparsekern.study.baselines import PRECISIONS, SPMM_ALGORITHMS, Libraries, MissingLibrary  # noqa: E402
from sparsekern.study.bench import captured, fill, time_launches, time_plan  # noqa: E402
from sparsekern.study.records import LEVELS
from sparsekern.study.sweep import WrongKernel  # noqa: E402
from sparsekern.study.workbench import (  # noqa: E402
    CHUNK,
    Laboratory,
    Workbench,
    allowed,
    operands_of,
    reference_of,
    within,
)

OPS = ["spmm", "sddmm"]
A = uniform(96, 200, 0.9)


@pytest.mark.parametrize("op, width", [("spmm", 52), ("sddmm", 64)])
def test_the_dense_reference_is_that_of_scipy(op, width):
    o = operands_of(op, A, width)
    result, scale = reference_of(o)
    expected = spmm_reference(A, o.right) if op == "spmm" else sddmm_reference(A, o.left, o.right)
    for found, wanted in zip((result, scale), expected, strict=True):
        assert found.dtype == np.float64 and found.shape == wanted.shape
        assert np.allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_a_matrix_with_nothing_to_multiply_is_refused():
    with pytest.raises(ValueError, match="has no nonzeros"):
        operands_of("spmm", uniform(4, 4, 1.0), 8)


def test_without_nvmath_the_error_names_the_extra_and_the_way_round(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath", None)
    with pytest.raises(MissingLibrary, match=r"pip install 'sparsekern\[bench\]'.*--no-baselines"):
        Libraries(None)


def compared(seed, size=3 * CHUNK + 5):
    """(result, reference, scale) of sums that are as wrong as float32 makes them, and here and there 0."""
    rng = np.random.default_rng(seed)
    reference = rng.standard_normal(size) * 10.0 ** rng.integers(-40, 4, size)
    scale = abs(reference) * rng.uniform(1, 8, size)
    reference[::97], scale[::97] = 0, 0
    result = (reference + scale * rng.uniform(-1, 1, size) * 1e-6).astype(np.float32)
    return result, reference, scale


@pytest.mark.parametrize("least", [0.0, 2.0**-11])
@pytest.mark.parametrize("seed", range(10))
def test_a_result_is_within_what_is_allowed_exactly_if_its_error_is(seed, least):
    result, reference, scale = compared(seed)
    worst = error(result, reference, np.maximum(scale, least))
    for most, holds in ((worst * (1 + 1e-9), True), (worst * (1 - 1e-9), False)):
        assert within(result, reference, allowed(scale, most, least)) is holds


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e-30])
@pytest.mark.parametrize("at", [0, 97, CHUNK, -1], ids=["first", "in another zero", "next chunk", "last"])
def test_one_element_that_is_wrong_or_no_number_is_found_wherever_it_is(at, value):
    result, reference, scale = compared(0)
    reference[at], scale[at] = 0, 0
    result[at] = 0
    limit = allowed(scale, 2e-6)
    assert within(result, reference, limit)
    result[at] = value
    assert not within(result, reference, limit)


def test_a_result_of_no_elements_is_right():
    none = np.empty(0)
    assert within(none, none, none)


@pytest.mark.skipif(device_backend() == "cuda", reason="a CUDA GPU answers here")
def test_without_a_gpu_there_is_nothing_to_time_with():
    with pytest.raises(RuntimeError, match="timing needs a CUDA GPU"):
        Laboratory(baselines=False)


# On a GPU


@pytest.fixture
def laboratory():
    with Laboratory(baselines=False) as made:
        yield made


@pytest.fixture
def libraries(laboratory):
    pytest.importorskip("nvmath", reason="needs nvmath-python, which comes with the extra bench")
    made = Libraries(laboratory.stream)
    yield made
    made.close()


def least(timings):
    """The shortest of a few times: other tests that use the GPU meanwhile only add to one."""
    return min(timing.us for timing in timings)


BASELINES = [
    *(("spmm", name) for name in (*SPMM_ALGORITHMS, *PRECISIONS)),
    *(("sddmm", name) for name in ("SDDMM", *PRECISIONS)),
]


def named(libraries, op, name):
    """The `prepare` of a baseline."""
    (found,) = [p for column, algorithm, p in libraries.rivals(op) if name in (column, algorithm)]
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("op, name", BASELINES)
def test_a_baseline_agrees_with_float64_within_its_tolerance(op, name, laboratory, libraries):
    o = operands_of(op, A, 52)
    reference, scale = reference_of(o)
    with named(libraries, op, name)(o) as rival:
        assert error(rival.result(), reference, scale) > rival.tolerance  # nothing is computed yet
        rival.launch()
        laboratory.stream.synchronize()
        found = error(rival.result(), reference, np.maximum(scale, rival.least))
    assert found <= rival.tolerance
    assert rival.tolerance <= tolerance(o.k) + 2.0**-8


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
def test_fp32_is_not_computed_in_tf32(op, laboratory, libraries):
    o, errors = operands_of(op, A, 64), {}
    for column in ("dense_fp32_us", "dense_tf32_us"):
        with libraries.gemm(column, o) as rival:
            rival.launch()
            laboratory.stream.synchronize()
            errors[column] = error(rival.result(), *reference_of(o))
    assert errors["dense_fp32_us"] <= tolerance(o.k)
    assert errors["dense_fp32_us"] <= errors["dense_tf32_us"]


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
def test_all_baselines_are_timed_and_the_fastest_algorithm_is_named(op):
    pytest.importorskip("nvmath", reason="needs nvmath-python, which comes with the extra bench")
    with Laboratory() as laboratory:
        found, wrong = Workbench(laboratory, operands_of(op, A, 64)).rivals("warm")
    assert not wrong
    assert set(found) == {"cusparse_us", "cusparse_alg", *PRECISIONS}
    assert found["cusparse_alg"] in (*SPMM_ALGORITHMS, "SDDMM")
    assert all(0.3 < us < 1e4 for name, us in found.items() if name != "cusparse_alg")


@pytest.mark.gpu
def test_a_plan_takes_some_time():
    b = np.random.default_rng(0).standard_normal((200, 64), np.float32)
    plan = plan_spmm(A, b, LADDERS["spmm"][-1][1], backend="cuda")
    timings = [time_plan(plan, A.values, b) for _ in range(3)]
    assert 0.3 < least(timings) < 1e4
    assert 0 <= min(timing.spread for timing in timings) < 1


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
def test_every_step_of_the_ladder_is_checked_and_timed_warm_and_flushed(op, laboratory):
    bench = Workbench(laboratory, operands_of(op, A, 64))
    for step, variant in LADDERS[op]:
        warm, flushed = (least(bench.time(variant, l2) for _ in range(3)) for l2 in LEVELS)
        assert 0.3 < warm < 1e4, step
        assert flushed > 0.9 * warm, step


@pytest.mark.gpu
def test_the_library_s_choice_can_be_timed(laboratory):
    bench = Workbench(laboratory, operands_of("spmm", A, 64))
    assert bench.time(bench.choose(), "warm").us > 0.3


def make_ones(variant, types):
    """A factory of a wrong kernel: it writes 1 to some elements of C."""

    def ones(work, offsets, columns, values, B, ldb, C, ldc, m, n, sa, sb, sc):
        i = cuda.grid(1)
        if i < C.size:
            C[i] = 1

    return ones


@pytest.mark.gpu
def test_a_wrong_kernel_is_refused_before_it_is_timed(monkeypatch):
    with Laboratory(baselines=False, make={"spmm": make_ones}) as laboratory:
        bench = Workbench(laboratory, operands_of("spmm", A, 64))
        monkeypatch.setattr(laboratory, "time", lambda *_: pytest.fail("a wrong kernel was timed"))
        with pytest.raises(WrongKernel, match="error .* allowed"):
            bench.time(LADDERS["spmm"][0][1], "warm")


@pytest.mark.gpu
def test_a_launch_that_fails_while_it_is_captured_leaves_the_stream_usable(laboratory):
    calls, stream = [], laboratory.stream
    array = cuda.device_array(1000, np.uint8)

    def launch():
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        fill(array, 7, stream)

    with pytest.raises(KeyboardInterrupt):
        with captured(launch, stream, 10):
            pass
    stream.synchronize()
    assert time_launches(lambda: fill(array, 9, stream), stream).us > 0
    assert (array.copy_to_host() == 9).all()


@pytest.mark.gpu
def test_times_of_repeats_are_close(laboratory):
    bench = Workbench(laboratory, operands_of("spmm", uniform(512, 512, 0.9), 256))
    variant = LADDERS["spmm"][-1][1]
    found = [least(bench.time(variant, "warm") for _ in range(3)) for _ in range(3)]
    assert max(found) < 1.5 * min(found)
