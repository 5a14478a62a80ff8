"""Climbing a ladder: every optimisation in turn, checked, then timed or counted."""

from dataclasses import dataclass

from rich.table import Table

from sparsekern.foreign import as_csr
from sparsekern.ladders import LADDERS
from sparsekern.machine.backends import resolve_backend
from sparsekern.machine.report import Counts
from sparsekern.ops import plan_sddmm, plan_spmm
from sparsekern.reference import error, sddmm_reference, spmm_reference
from sparsekern.study.cost import l1_bound_us
from sparsekern.study.gpus import Gpu
from sparsekern.toggles import Variant
from sparsekern.variants import check_op


@dataclass(frozen=True)
class Rung:
    """One step: the toggle that it adds, its error, and on a GPU a time, on the emulator counts."""

    step: str
    variant: Variant
    error: float
    counts: Counts | None = None
    us: float | None = None
    bound_us: float | None = None  # the L1 bound of the problem on this GPU


def climb(op, *operands, ladder=None, backend=None):
    """Yields a `Rung` for each step of `ladder`, by default that of `op`.

    op: "spmm", with operands a and b, or "sddmm", with topology, lhs and rhs, all in host memory. Raises
    TypeError for another one.
    """
    check_op(op)
    backend = resolve_backend(backend)
    plan_op, reference_op, inputs = _OPERATIONS[op](*operands)
    reference, scale = reference_op(*operands)
    for step, variant in ladder or LADDERS[op]:
        plan = plan_op(*operands, variant, backend=backend)
        if backend == "emulator":
            out, counts = plan.count(*inputs)
            yield Rung(step, variant, error(out, reference, scale), counts=counts)
        else:
            found = error(plan(*inputs), reference, scale)
            from sparsekern.study.bench import time_plan  # needs cuda.bindings, which needs a GPU extra

            timing = time_plan(plan, *inputs)
            yield Rung(step, variant, found, us=timing.us, bound_us=l1_bound_us(plan.problem, Gpu.current()))


_OPERATIONS = {  # (how to plan, how to check, inputs of the plan)
    "spmm": lambda a, b: (plan_spmm, spmm_reference, (as_csr(a).values, b)),
    "sddmm": lambda topology, lhs, rhs: (plan_sddmm, sddmm_reference, (lhs, rhs)),
}


def table(rungs):
    """The rungs as a rich table."""
    timed = any(rung.us is not None for rung in rungs)
    measured = (
        ("time, µs", "of L1 bound") if timed else ("global loads", "shared loads", "shuffles", "barriers")
    )
    columns = Table(box=None, pad_edge=False)
    columns.add_column("step", no_wrap=True)
    for name in ("error", *measured):
        columns.add_column(name, justify="right", no_wrap=True)
    for number, rung in enumerate(rungs):
        columns.add_row(f"{number:2} {rung.step}", f"{rung.error:.1e}", *_measures(rung))
    return columns


def _measures(rung):
    if rung.us is not None:
        return f"{rung.us:.2f}", f"{rung.bound_us / rung.us:.0%}"
    counts = rung.counts
    loads = (counts.accesses("global")[0], counts.accesses("shared")[0], counts.shuffles, counts.barriers)
    return tuple(f"{count:,}" for count in loads)
