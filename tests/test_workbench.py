"""What is timed was checked before, and what is wrong never is: on the emulator, in the place of a GPU."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from sparsekern import LADDERS, plan_sddmm, plan_spmm
from sparsekern.generators import uniform
from sparsekern.reference import tolerance

pytest.importorskip(
    "cuda.bindings", reason="needs cuda.bindings, which comes with the extra cuda12 or cuda13"
)

from sparsekern.study import workbench  # noqa: E402
from sparsekern.study.baselines import Rival  # noqa: E402
from sparsekern.study.sweep import WrongKernel  # noqa: E402
from sparsekern.study.workbench import Workbench, operands_of, reference_of  # noqa: E402

OPS = ["spmm", "sddmm"]
A = uniform(40, 50, 0.8)


class OnDevice(np.ndarray):
    """Host memory that is used as if it were on a device."""

    def copy_to_host(self, array):
        array[:] = self
        return array


class Emulated(Workbench):
    """A workbench whose kernels run on the emulator; `spoil(result)` may then change what they wrote."""

    spoil = staticmethod(lambda result: None)

    def plan(self, variant):
        o = self.operands
        if o.op == "spmm":
            planned, shapes = plan_spmm(o.a, o.right, variant, backend="emulator"), ((-1,), o.right.shape)
        else:
            planned = plan_sddmm(o.a.topology, o.left, o.right, variant, backend="emulator")
            shapes = o.left.shape, o.right.shape

        def launch(*arrays, stream):
            *inputs, out = arrays
            inputs = [x.reshape(shape) for x, shape in zip(inputs, shapes, strict=True)]
            out[:] = np.asarray(planned(*inputs)).reshape(-1)
            self.spoil(out)

        return SimpleNamespace(launch=launch, variant=planned.variant, problem=planned.problem)


@pytest.fixture
def laboratory(monkeypatch):
    """A laboratory that times nothing, and notes how often it should have; of libraries it has none yet."""
    memory = SimpleNamespace(
        to_device=lambda x: x,
        device_array=lambda size, dtype: np.zeros(size, dtype).view(OnDevice),
        pinned_array=np.empty,
    )
    monkeypatch.setattr(workbench, "cuda", memory)
    monkeypatch.setattr(workbench, "fill", lambda array, byte, stream: array.fill(np.nan))
    stream = SimpleNamespace(synchronize=lambda: None)
    made = SimpleNamespace(stream=stream, compare=map, timed=[], libraries=None)
    made.time = lambda launch, l2: made.timed.append(l2) or SimpleNamespace(us=float(len(made.timed)))
    return made


@pytest.mark.parametrize("op", OPS)
def test_a_kernel_that_is_right_is_timed(op, laboratory):
    bench = Emulated(laboratory, operands_of(op, A, 12))
    for _, variant in LADDERS[op][::6]:
        bench.time(variant, "warm")
    assert laboratory.timed == ["warm"] * len(LADDERS[op][::6])
    assert bench.problem.nnz == A.nnz and bench.choose().op == op


WRONG = {
    "one element is off": lambda out: out.__setitem__(7, out[7] + 1),
    "the last is not written": lambda out: out.__setitem__(-1, np.nan),
    "nothing is written": lambda out: out.fill(np.nan),
    "all are zero": lambda out: out.fill(0),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("op", OPS)
def test_a_kernel_that_is_wrong_is_refused_each_time_and_never_timed(op, what, laboratory):
    bench = Emulated(laboratory, operands_of(op, A, 12))
    bench.spoil = WRONG[what]
    for _ in range(2):
        with pytest.raises(WrongKernel, match="error .* of the sums of absolute values; allowed"):
            bench.time(LADDERS[op][0][1], "warm")
    assert laboratory.timed == []


def test_a_variant_is_checked_once(laboratory):
    bench = Emulated(laboratory, operands_of("spmm", A, 12))
    bench.time(LADDERS["spmm"][0][1], "warm")
    bench.spoil = WRONG["all are zero"]
    bench.time(LADDERS["spmm"][0][1], "flushed")
    assert laboratory.timed == ["warm", "flushed"]


def test_a_problem_that_is_only_asked_for_its_choice_uploads_nothing(laboratory, monkeypatch):
    monkeypatch.setattr(workbench.cuda, "to_device", lambda x: pytest.fail("uploaded"))
    assert Emulated(laboratory, operands_of("spmm", A, 12)).choose().op == "spmm"


def rivals(operands, **results):
    """Libraries of one algorithm for each of `results`, {name: what it computes}, as if of cuSPARSE."""

    @contextmanager
    def prepare(result, _):
        yield Rival(lambda: None, lambda: result, tolerance(operands.terms), least=2.0**-11)

    found = [
        ("cusparse_us", name, lambda o, result=result: prepare(result, o)) for name, result in results.items()
    ]
    return SimpleNamespace(rivals=lambda op: found, errors=())


def test_a_rival_that_is_wrong_is_named_and_the_fastest_of_the_others_counts(laboratory):
    o = operands_of("spmm", A, 12)
    right, scale = reference_of(o)
    laboratory.libraries = rivals(o, A=right, B=right + scale, C=right + 2.0**-11 * 1e-7, D=np.nan * right)
    found, wrong = Workbench(laboratory, o).rivals("warm")
    assert found == {"cusparse_us": 1.0, "cusparse_alg": "A"}
    assert len(laboratory.timed) == 2
    assert [text.split(": ")[0] for text in wrong] == ["cusparse B", "cusparse D"]
