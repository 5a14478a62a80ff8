"""What the hardware's counters would show of a launch, counted without one: see `machine.lockstep`."""

from dataclasses import dataclass
from functools import partial
from heapq import heapreplace
from numbers import Integral
from typing import NamedTuple

import numpy as np
from rich.table import Table

from sparsekern.factories import FACTORIES, check_options
from sparsekern.foreign import as_csr, as_topology
from sparsekern.formats import Csr, Topology
from sparsekern.machine.lockstep import launch
from sparsekern.machine.trace import Trace
from sparsekern.ops import plan_sddmm, plan_spmm
from sparsekern.problem import Layout, Problem
from sparsekern.select import H200_WARPS, select
from sparsekern.study.render import Shown
from sparsekern.toggles import WARP, Variant
from sparsekern.variants import KINDS, check_op


class Range(NamedTuple):
    """A count: as low as `low` when lanes that took different paths go on together as soon as they can.

    As high as `high` when they do so only where a barrier or collective names them; see `machine.trace`.
    """

    low: int
    high: int

    def __str__(self):
        low, high = (f"{x:,.2f}" if isinstance(x, float) else f"{x:,}" for x in self)
        return low if low == high else f"{low} to {high}"

    def __sub__(self, other):
        """The difference with lanes together in both, and with lanes apart in both."""
        return Range(*sorted((self.low - other.low, self.high - other.high)))


ACCESSES = (  # (what is counted, attribute of `trace.Cost`) of the loads or stores of a space
    ("instructions", "instructions"),
    ("requests", "requests"),
    ("sectors", "sectors"),
    ("ideal sectors", "ideal"),
    ("wavefronts", "wavefronts"),
    ("ideal wavefronts", "ideal"),
)
ALIGNMENT = 256  # bytes: where an allocation on a GPU starts
OTHERS = {"multiply-add": "multiply-adds", "shuffle": "shuffles", "vote": "votes", "barrier": "barriers"}


@dataclass(frozen=True)
class Counters(Shown):
    """Counts of one launch, by name: `counters["global load sectors"]` is a `Range`.

    instructions, requests: of warps; a request is an instruction that some lane took part in. sectors: of 32
    bytes. wavefronts: passes through the banks of shared memory. ideal: what would do for the same bytes.
    bytes: that lanes asked for. active lanes: of 32, of an instruction. by_array: {(array, verb): counts}.
    work: (blocks, warps) instructions of each warp, lanes together as soon as they can.
    """

    title: str
    counts: dict
    by_array: dict
    work: np.ndarray
    variant: Variant | None = None
    problem: Problem | None = None

    def __getitem__(self, name):
        if name not in self.counts:
            raise KeyError(f"name is {name!r}; the counts are {', '.join(self.counts)}")
        return self.counts[name]

    def __sub__(self, other):
        """What this launch does more than `other`, count by count."""
        if not isinstance(other, Counters):
            return NotImplemented
        title = f"{self.title}\nless\n{other.title}"
        if self.problem == other.problem:
            title = f"{self.problem.op}: {self.title.splitlines()[1]}\nless  {other.title.splitlines()[1]}"
        return Difference(
            title,
            {name: (self.counts[name], other.counts[name]) for name in self.counts},
        )

    def of(self, array, verb="load"):
        """{"instructions": ..., "sectors": ...} of the loads or stores of an array, as the kernel calls it.

        Raises KeyError if there were none.
        """
        if (array, verb) not in self.by_array:
            known = ", ".join(f"{verb}s of {array}" for array, verb in self.by_array)
            raise KeyError(f"there are no {verb}s of {array!r}; there are {known}")
        return self.by_array[array, verb]

    def makespan(self, gpu):
        """Instructions of the busiest SM of `gpu`, when each block goes to the SM with the least so far."""
        return max(timeline(self.work.sum(axis=1), gpu.sms), default=0)

    def tables(self):
        yield self.title
        table = Table(box=None, pad_edge=False)
        table.add_column("count")
        table.add_column("launch", justify="right")
        table.add_column("a warp", justify="right")
        for name, count in self.counts.items():
            averaged = self.work.size and name != "active lanes"
            each = str(Range(*(x / self.work.size for x in count))) if averaged else ""
            table.add_row(name, str(count), each)
        yield table
        table = Table(box=None, pad_edge=False)
        for name in ("array", "access", "instructions", "sectors", "wavefronts", "ideal"):
            table.add_column(name, justify="right" if name not in ("array", "access") else "left")
        for (array, verb), counts in self.by_array.items():
            measured = (str(counts[name]) for name in ("instructions", "sectors", "wavefronts", "ideal"))
            table.add_row(array, verb, *measured)
        yield table


@dataclass(frozen=True)
class Difference(Shown):
    """Two launches, count by count: counts is {name: (of one, of the other)}."""

    title: str
    counts: dict

    def __getitem__(self, name):
        if name not in self.counts:
            raise KeyError(f"name is {name!r}; the counts are {', '.join(self.counts)}")
        one, other = self.counts[name]
        return one - other

    def tables(self):
        yield self.title
        if all(one == other for one, other in self.counts.values()):
            yield "no count differs"
            return
        table = Table(box=None, pad_edge=False)
        table.add_column("count")
        for name in ("this", "other", "difference"):
            table.add_column(name, justify="right")
        for name, (one, other) in self.counts.items():
            if one != other:
                table.add_row(name, str(one), str(other), str(one - other))
        yield table if table.row_count else "no count differs"


def timeline(work, sms):
    """Work of each of `sms` SMs, when blocks are handed out in order to the SM that has the least so far."""
    loads = [0] * sms
    for block in np.asarray(work).tolist():
        heapreplace(loads, loads[0] + block)
    return loads


def count(op, a, n, variant=None, *, make=None):
    """The `Counters` of a launch of `op` on CSR matrix `a`, with random dense operands.

    op: "spmm" or "sddmm". a: any CSR matrix that `spmm` takes; of SDDMM the topology. n: columns of the dense
    operands, of SDDMM the inner dimension. variant: None is what a GPU like an H200 would get. make: a kernel
    factory; None is the library's. Every array starts on 256 bytes, as an array of its own does on a GPU.

    Raises TypeError or ValueError for other arguments, VariantError for a variant that cannot run this, and
    EmulatorError for a kernel that goes wrong, but for races, or that cannot be counted ("unsupported").
    """
    case, inputs = plan(op, a, n, variant, make=make)
    if 0 in case.grid:
        return _counters(case, Trace())
    result = aligned(np.zeros(case.result_size, np.float32))
    arguments = case.arguments(tuple(map(aligned, case.structure)), *case.flat(*inputs), result)
    return _counters(case, launch(case.function, case.grid, case.block, arguments, (case.output,)))


def plan(op, a, n, variant=None, *, make=None):
    """(the plan that `count` with the same arguments runs, its inputs)."""
    check_op(op)
    if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
        which = "columns of B" if op == "spmm" else "the inner dimension k"
        raise ValueError(f"n is {n!r}; it must be a whole number, at least 1: {which}")
    make = FACTORIES[op] if make is None else make
    topology = _aligned(as_csr(a).topology if op == "spmm" else as_topology(a))
    (m, k), rng = topology.shape, np.random.default_rng(0)
    shapes = ((k, n),) if op == "spmm" else ((m, n), (k, n))
    dense = [aligned(rng.standard_normal(shape, np.float32)) for shape in shapes]
    inputs = [aligned(as_csr(a).values), *dense] if op == "spmm" else dense
    operands = (Csr(topology, inputs[0]), *dense) if op == "spmm" else (topology, *dense)
    plan_op = partial(plan_spmm if op == "spmm" else plan_sddmm, *operands, make=make, backend="emulator")
    check_options(variant, KINDS[op], make)
    if variant is None:
        variant, _ = select(plan_op().problem, H200_WARPS, make is not FACTORIES[op])
    return plan_op(variant=variant), inputs


def aligned(array):
    """A copy that starts on 256 bytes."""
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    copy = memory[-memory.ctypes.data % ALIGNMENT :][: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _aligned(topology):
    """`topology`, or a copy of it if its columns start where no vector may."""
    if topology.columns.ctypes.data % Layout().align == 0:
        return topology
    offsets, columns, shape = topology.offsets, topology.columns, topology.shape
    return topology.derive("aligned", lambda: Topology(offsets, aligned(columns), shape))


def _counters(plan, trace):
    kinds = list(trace.high)

    def total(attribute, chosen):
        totals = (sum(getattr(c[kind], attribute) for kind in chosen) for c in (trace.low, trace.high))
        return Range(*sorted(totals))  # lanes that are together may need more wavefronts than apart

    counts = {}
    for space in ("global", "shared"):
        for verb in ("load", "store"):
            chosen = [kind for kind in kinds if (kind.space, kind.verb) == (space, verb)]
            other = "wavefronts" if space == "global" else "sectors"
            for name, attribute in ACCESSES:
                if other not in name:
                    counts[f"{space} {verb} {name}"] = total(attribute, chosen)
            asked = [sum(c[kind].lanes * kind.bytes for kind in chosen) for c in (trace.low, trace.high)]
            counts[f"{space} {verb} bytes"] = Range(*asked)
            if space == "shared":
                both = ([c[kind] for kind in chosen] for c in (trace.low, trace.high))
                conflicts = [sum(x.wavefronts - x.ideal for x in costs) for costs in both]
                counts[f"shared {verb} bank conflicts"] = Range(*sorted(conflicts))
    for verb, name in OTHERS.items():
        counts[name] = total("instructions", [kind for kind in kinds if kind.verb == verb])
    counts["multiply-adds by lanes"] = total("lanes", [kind for kind in kinds if kind.verb == "multiply-add"])
    lanes, instructions = total("lanes", kinds), total("instructions", kinds)
    counts["active lanes"] = Range(*sorted(x / max(y, 1) for x, y in zip(lanes, instructions, strict=True)))
    arrays = dict.fromkeys((kind.array, kind.verb) for kind in kinds if kind.space)
    by_array = {
        (array, verb): {
            name: total(attribute, [kind for kind in kinds if (kind.array, kind.verb) == (array, verb)])
            for name, attribute in (*ACCESSES, ("ideal", "ideal"), ("lanes", "lanes"))
        }
        for array, verb in arrays
    }
    work = np.array(trace.work, np.int64).reshape(-1, -(-plan.variant.threads // WARP))
    return Counters(f"{plan.title()}\n{_kernel(plan)}", counts, by_array, work, plan.variant, plan.problem)


def _kernel(plan):
    """Which kernel a plan runs, as its variant, with the factory if it is not the library's."""
    if plan.make is FACTORIES[plan.problem.op]:
        return str(plan.variant)
    return f"{plan.variant}, by {getattr(plan.make, '__qualname__', plan.make)}"
