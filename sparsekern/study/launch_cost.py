"""What a call costs the host: `python -m sparsekern.study.launch_cost --out PATH`, on a GPU.

Times are of the host alone, of a caller in a steady loop: calls are queued one behind the other, after as
many, not timed, as wake up CPU and GPU, and the GPU is waited for between batches. A batch is shorter than
the queue of launches (about 1000), and the problem so small that a GPU is through with its kernel before the
host has queued the next: where the GPU is slower, a call ends by waiting for it, and that is what one times.

Only the first call of a variant is timed up to the end of its kernel: plan, copies, compilation, loading,
launch.
"""

import argparse
import csv
import math
import platform
import sys
import warnings
from dataclasses import dataclass, fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import numpy as np
import scipy.sparse as sp
from numba import cuda

from sparsekern.foreign import as_topology
from sparsekern.formats import Csr, Topology
from sparsekern.generators import uniform
from sparsekern.ladders import LADDERS
from sparsekern.machine.launch import compile_kernel
from sparsekern.naming import format_variant
from sparsekern.ops import plan_spmm, sddmm, spmm
from sparsekern.study.records import Record, RecordError, heading
from sparsekern.textfiles import parsing, read_text

SIZE, SPARSITY, WIDTH = 64, 0.9, 64  # of the square matrix, and columns of the dense operands
BATCHES, CALLS = 60, 300
SETTLE = 0.3  # seconds of calls before those that are timed
NEW = 4  # steps of each ladder, from its last, that are compiled
FIRST = "first call of a new variant"
METHOD = (
    f"of the host, for one call; median over {BATCHES} batches of {CALLS}, the GPU waited for in between, "
    f"after {SETTLE} s of such calls; "
    "first call: once, with plan, copies of the structure, compilation (nothing cached), loading and kernel"
)
NUMBERS = {"time_us": (float, 0), "spread": (float, 0), "calls": (int, 1)}  # column: (type, least)
CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Cost:
    """One line of the record: median host time of a call, in microseconds.

    spread: interquartile range / median, of batches of calls; 0 for a first call, which happens once.
    """

    what: str
    time_us: float
    spread: float
    calls: int
    problem: str


COLUMNS = tuple(f.name for f in fields(Cost))


def host_time(call, synchronize, batches, calls, settle=0.0):
    """(median, interquartile range / median) over batches of the microseconds that one `call()` takes.

    synchronize: waits for the GPU; not timed. settle: for how many seconds to go on so before time counts.
    """

    def batch():
        synchronize()
        start = perf_counter()
        for _ in range(calls):
            call()
        return (perf_counter() - start) / calls * 1e6

    call()  # compiles, and fills caches
    settled = perf_counter() + settle
    while perf_counter() < settled:
        batch()
    times = [batch() for _ in range(batches)]
    synchronize()
    low, _, high = quantiles(times, n=4)
    return median(times), (high - low) / median(times)


def measure():
    """Yields the `Cost` of each kind of call that the libraries here allow. Needs a GPU."""
    a, rng = uniform(SIZE, SIZE, SPARSITY), np.random.default_rng(1)
    problem = f"{SIZE} x {SIZE}, {a.nnz} nonzeros, {WIDTH} columns"
    dense = [rng.standard_normal((SIZE, WIDTH), np.float32) for _ in range(2)]
    for library, calls in CALLS_OF.items():
        if find_spec(library):
            for what, call in calls(a.to_scipy(), *dense):
                time = host_time(call, cuda.synchronize, BATCHES, CALLS, SETTLE)
                yield Cost(what, *time, BATCHES * CALLS, problem)
    for op, variant, us in first_calls(a, *dense):
        yield Cost(FIRST, us, 0.0, 1, f"{op} {problem}, {format_variant(variant)}")


def _of_cupy(a, b, lhs):
    """Yields (what, a function that does it)."""
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    topology, a = as_topology(a), csr_matrix(sp.csr_matrix(a))
    b, lhs, out = cupy.asarray(b), cupy.asarray(lhs), cupy.empty((SIZE, WIDTH), np.float32)
    plan, values = plan_spmm(a, b, out=out), a.data
    addresses = values.data.ptr, b.data.ptr, out.data.ptr
    yield "planned launch", lambda: plan.launch(*addresses)
    yield "plan(values, b, out=out) on CuPy", lambda: plan(values, b, out=out)
    yield "spmm(a, b) on CuPy", lambda: spmm(a, b)
    yield "spmm(a, b, out=out) on CuPy", lambda: spmm(a, b, out=out)
    yield "sddmm(a, lhs, rhs) on CuPy", lambda: sddmm(a, lhs, b)
    yield "sddmm(topology, lhs, rhs) on CuPy", lambda: sddmm(topology, lhs, b)
    yield "a @ b of CuPy", lambda: a @ b


def _of_torch(a, b, lhs):
    import torch

    topology, full = as_topology(a), torch.tensor(a.toarray(), device="cuda")
    parts = [torch.tensor(part, device="cuda") for part in (a.indptr, a.indices, a.data)]
    b, lhs = torch.tensor(b, device="cuda"), torch.tensor(lhs, device="cuda")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        a = torch.sparse_csr_tensor(*parts, a.shape, check_invariants=True)
    yield "spmm(a, b) on PyTorch", lambda: spmm(a, b)
    yield "sddmm(a, lhs, rhs) on PyTorch", lambda: sddmm(a, lhs, b)
    yield "sddmm(topology, lhs, rhs) on PyTorch", lambda: sddmm(topology, lhs, b)
    yield "torch.sparse.mm", lambda: torch.sparse.mm(a, b)
    yield "torch.mm", lambda: torch.mm(full, b)


CALLS_OF = {"cupy": _of_cupy, "torch": _of_torch}


def first_calls(a, b, lhs):
    """Yields (op, variant, microseconds up to the end of its kernel) of variants not compiled before.

    Each has a structure of its own, so that plan and copies are new too. Numba keeps no compiled kernels on
    disk unless asked to, and is not. Raises RuntimeError if a call has compiled nothing.
    """
    values, b, lhs = (cuda.to_device(x) for x in (a.values, b, lhs))
    for op, ladder in LADDERS.items():
        for _, variant in ladder[-NEW:]:
            topology = Topology(a.topology.offsets, a.topology.columns, a.shape)
            compiled = compile_kernel.cache_info().misses
            cuda.synchronize()
            start = perf_counter()
            if op == "spmm":
                spmm(Csr(topology, values), b, variant)
            else:
                sddmm(topology, lhs, b, variant)
            cuda.synchronize()
            us = (perf_counter() - start) * 1e6
            if compile_kernel.cache_info().misses == compiled:
                raise RuntimeError(
                    f"{op} {format_variant(variant)} was compiled before: this is no first call"
                )
            yield op, variant, us


def record(path):
    """Measures, prints and writes the record. Raises RuntimeError without a GPU."""
    if not cuda.is_available():
        raise RuntimeError("timing needs a CUDA GPU, and none answers: see python -m sparsekern doctor")
    from sparsekern.study.provenance import origin

    costs = []
    for cost in measure():
        print(f"{cost.time_us:12.2f} us  {cost.spread:6.1%}  {cost.what}: {cost.problem}", flush=True)
        costs.append(cost)
    versions = {library: import_module(library).__version__ for library in CALLS_OF if find_spec(library)}
    write_launch_costs(path, {**origin(**versions), "cpu": cpu(), "time_us": METHOD}, costs)


def cpu():
    """What the CPU of this host calls itself."""
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def write_launch_costs(path, provenance, costs):
    """Writes a record: `# key: value` lines, the line of COLUMNS, a line for each `Cost`."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        file.writelines(f"# {key}: {value}\n" for key, value in provenance.items())
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for cost in costs:
            table.writerow([cost.what, f"{cost.time_us:.3f}", f"{cost.spread:.4f}", cost.calls, cost.problem])


def read_launch_costs(path):
    """The `Record` of `Cost`s in a file. Raises RecordError, naming file and line, for a malformed one."""
    text = read_text(path, "record of launch costs", RecordError)
    if text and not text.endswith("\n"):
        raise RecordError(f"{path} ends in the middle of a line: the command that made it was cut off")
    lines = text.splitlines()
    provenance, above = heading(lines)
    table = csv.reader(lines[above:])
    columns = next(table, None)
    if columns != list(COLUMNS):
        raise RecordError(
            f"{path} is no record of launch costs: line {above + 1}, of columns, is {columns}; "
            f"it must be {','.join(COLUMNS)}"
        )
    with parsing(path, RecordError):
        return Record(provenance, [_cost(f"{path}, line {above + table.line_num}", row) for row in table])


def _cost(where, texts):
    if len(texts) != len(COLUMNS):
        raise RecordError(f"{where} has {len(texts)} fields; it must have {len(COLUMNS)}")
    values = dict(zip(COLUMNS, texts, strict=True))
    for name, (kind, least) in NUMBERS.items():
        text = values[name]
        try:
            values[name] = kind(text)
        except ValueError:
            values[name] = math.nan
        if not least <= values[name] < math.inf:
            raise RecordError(f"{where} has {name} {text!r}; it must be a number, at least {least}")
    if not values["what"] or not values["problem"]:
        raise RecordError(f"{where} does not say what was called, or on what: {','.join(texts)}")
    return Cost(**values)


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern.study.launch_cost", description=__doc__)
    parser.add_argument("--out", metavar="CSV", required=True, help="the record to write")
    arguments = parser.parse_args(words)
    try:
        record(arguments.out)
    except (OSError, RuntimeError) as error:  # of the file; no GPU
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
