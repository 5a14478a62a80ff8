"""What a launch must cost: flops, bytes, the time that each resource needs at least, and a prediction.

A bound is what the launch could not beat if it did nothing but use one resource, spread evenly over the GPU.
The prediction adds what bounds leave out: instructions that wait for each other, and the longest warp.
"""

from dataclasses import dataclass

import numpy as np
from rich.table import Table

from sparsekern.foreign import as_csr, as_topology
from sparsekern.formats import Topology
from sparsekern.problem import Problem
from sparsekern.study.counters import plan
from sparsekern.study.gpus import GPUS, Gpu
from sparsekern.study.render import Shown
from sparsekern.study.work import LINE, WORD, work_of
from sparsekern.toggles import Variant, VariantError
from sparsekern.variants import KINDS


@dataclass(frozen=True)
class Pace:
    """What a prediction is made of; fitted by `study.fit`.

    start_us: beyond an empty launch. issue: clocks that a scheduler spends on an instruction. l1: a factor of
    the bound. l2: a factor of what blocks read first, at the pace of L2. latency: clocks of a load that
    others wait for. block: share of the longest block's instructions, issued by one SM, that nothing hides.
    power: of the norm that adds the terms up: 1 adds them, many take the largest.
    """

    start_us: float
    issue: float
    l1: float
    l2: float
    latency: float
    block: float
    power: float


FITTED = "H200"  # the GPU whose times the prediction knows, from data/results/nvidia-h200/ladder.csv
PACES = {
    "spmm": Pace(start_us=0.167, issue=3.86, l1=1.0, l2=1.05, latency=520.0, block=0.607, power=2.67),
    "sddmm": Pace(start_us=0.528, issue=3.44, l1=1.0, l2=0.381, latency=487.0, block=0.611, power=2.58),
}


@dataclass(frozen=True)
class Bounds(Shown):
    """Of one launch. us: {resource: microseconds that it needs at least}. bytes: {level: bytes at least}.

    predicted_us: None but on an H200.

    resources: "launch", of an empty kernel; "arithmetic", multiply-adds; "issue", warp instructions; "L1",
    its data path with shared memory; "L2", compulsory bytes; "HBM", those of them that do not fit L2.
    """

    problem: Problem
    variant: Variant
    gpu: Gpu
    flops: int
    bytes: dict
    us: dict
    predicted_us: float | None

    @property
    def binding(self):
        """The resource that needs most time."""
        return max(self.us, key=self.us.get)

    @property
    def bound_us(self):
        """Microseconds below which this launch cannot be."""
        return self.us[self.binding]

    def share(self, measured_us):
        """The bound as a share of a measured time: 1 leaves nothing to gain without another algorithm."""
        return self.bound_us / measured_us

    def tables(self):
        yield f"{self.problem.op} on {self.gpu.name}: {self.flops:,} flops"
        table = Table(box=None, pad_edge=False)
        for name in ("resource", "at least, µs", "of the bound", "bytes"):
            table.add_column(name, justify="left" if name == "resource" else "right")
        for name, us in self.us.items():
            moved = f"{self.bytes[name]:,.0f}" if name in self.bytes else ""
            if name == "launch" and self.gpu.launch_us is None:
                table.add_row(name, "not known", "", "")
                continue
            table.add_row(name, f"{us:.2f}", f"{us / self.bound_us:.0%}", moved)
        yield table
        said = "" if self.predicted_us is None else f"; predicted {self.predicted_us:.2f} µs"
        said = said or f"; no prediction, which is fitted to times of an {FITTED}"
        yield f"bound {self.bound_us:.2f} µs, by {self.binding}{said}"


def bounds(op, a, n, variant=None, gpu=GPUS["h200"]):
    """The `Bounds` of the launch that `count` counts with the same arguments, on `gpu` (a `Gpu`).

    Raises what `count` does, but no EmulatorError: nothing runs.
    """
    planned, _ = plan(op, a, n, variant)
    topology = as_csr(a).topology if op == "spmm" else as_topology(a)
    return bounds_of(topology, planned.problem, planned.variant, gpu)


def bounds_of(topology, problem, variant, gpu):
    """The `Bounds` of running `variant` for `problem` on `gpu`.

    topology: the `Topology` of the sparse matrix. problem: as in `plan.problem`. gpu: a `Gpu`, such as
    `GPUS["h200"]`. Raises TypeError for another kind of any of these, ValueError if problem and topology are
    of different size, VariantError for a variant that cannot run the problem.
    """
    _check(topology, problem, variant, gpu)
    refusal = variant.check(problem)
    if refusal:
        raise VariantError(refusal)
    work = work_of(topology, problem, variant)
    clocks = gpu.sms * gpu.clock_hz / 1e6  # of all SMs, a microsecond
    compulsory = compulsory_bytes(topology, problem)
    l2 = compulsory / gpu.l2_bytes_per_second * 1e6 if gpu.l2_bytes_per_second else 0.0
    beyond = max(compulsory - gpu.l2_bytes, 0)
    us = {
        "launch": gpu.launch_us or 0.0,
        "arithmetic": problem.flops / 2 / gpu.fp32_per_second * 1e6,
        "issue": work.least_issue / gpu.schedulers / clocks,
        "L1": float(work.l1.sum()) * LINE / gpu.l1_bytes_per_clock / clocks,
        "L2": l2,
        "HBM": beyond / gpu.hbm_bytes_per_second * 1e6,
    }
    moved = {
        "L1": work.l1_bytes,
        "L2": compulsory,
        "HBM": beyond,
    }
    pace = PACES[problem.op]
    predicted = predicted_us(pace, us, work, gpu) if gpu.name == FITTED else None
    return Bounds(problem, variant, gpu, problem.flops, moved, us, predicted)


def _check(topology, problem, variant, gpu):
    wanted = {
        "topology": Topology,
        "problem": Problem,
        "variant": KINDS.get(getattr(problem, "op", None), Variant),
        "gpu": Gpu,
    }
    for (name, kind), value in zip(wanted.items(), (topology, problem, variant, gpu), strict=True):
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r}; it must be a {kind.__name__}")
    if (problem.sparse_shape, problem.nnz) != (topology.shape, topology.nnz):
        raise ValueError(
            f"problem has a sparse matrix of shape {problem.sparse_shape} with {problem.nnz} nonzeros; "
            f"it must be that of topology, of shape {topology.shape} with {topology.nnz}"
        )


def predicted_us(pace, us, work, gpu):
    """Microseconds that a launch with bounds `us` and that `Work` should take at a `Pace`."""
    return float(predict(pace, us["launch"], terms(us, work, gpu)))


def terms(us, work, gpu):
    """(7,) microseconds that a `Pace` scales by its issue, l1, l2, 1, 1, latency and block."""
    clock = gpu.clock_hz / 1e6
    return np.array(
        [
            work.issue.sum() / gpu.schedulers / gpu.sms / clock,
            us["L1"],
            work.l2_bytes / gpu.l2_bytes_per_second * 1e6 if gpu.l2_bytes_per_second else 0.0,
            us["L2"],
            us["HBM"],
            work.chain.max(initial=0) / clock,
            work.issue.max(initial=0) / clock,
        ]
    )


def predict(pace, launch_us, terms):
    """Microseconds, of `terms` (..., 7)."""
    scaled = terms * [pace.issue, pace.l1, pace.l2, 1, 1, pace.latency, pace.block]
    return launch_us + pace.start_us + (scaled**pace.power).sum(axis=-1) ** (1 / pace.power)


def compulsory_bytes(topology, problem):
    """Bytes that must be moved at least: what is needed of each operand read once, each result written once.

    Rows of B, and of lhs and rhs, that meet no nonzero are not needed; C is written with all its zeros.
    """
    p = problem
    rows, columns = topology.derive("needed rows and columns", lambda: _needed(topology))
    structure = p.nnz * WORD + (p.sparse_shape[0] + 1) * topology.offsets.itemsize
    sparse = p.nnz * WORD  # the values of A, or of the result
    dense = (columns + p.m) * p.n if p.op == "spmm" else (rows + columns) * p.k
    return structure + sparse + dense * WORD


def _needed(topology):
    """(rows, columns) of a sparse matrix that hold a nonzero: how many."""
    return np.count_nonzero(topology.row_lengths), len(np.unique(topology.columns[topology.owned]))


def l1_bytes(problem):
    """Bytes of B, or rhs, that a row-split CSR kernel reads from L1: 4 for each multiply-add."""
    return 4 * problem.flops // 2


def l1_bound_us(problem, gpu):
    """Microseconds below which no row-split CSR kernel can be on `gpu`, whatever else it does well."""
    return l1_bytes(problem) / gpu.l1_bytes_per_second * 1e6
