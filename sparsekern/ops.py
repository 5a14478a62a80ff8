"""The operations: check the operands, choose a variant, plan, launch."""

import numpy as np

from sparsekern.formats import as_csr, check_float32
from sparsekern.kernels.spmm import make_spmm
from sparsekern.machine.launch import Plan, resident_warps, resolve_backend
from sparsekern.problem import Problem, RowStats, Types, alignment, leading_dimension, reach
from sparsekern.select import H200_WARPS, select
from sparsekern.variants import SpmmVariant, VariantError


def spmm(a, b, variant=None, *, out=None, make=make_spmm, backend=None):
    """C = a @ b, float32, for a sparse `a` (m, k) and a dense `b` (k, n) or (k,).

    a: a `Csr`, or a SciPy `csr_array` or `csr_matrix` of float32. b: a NumPy array of float32; read in
    place if row-major with any leading dimension, otherwise copied once. variant: an `SpmmVariant`;
    None lets `select` choose. out: a float32 array (m, n) or (m,) to write to, with unit column stride.
    make: a kernel factory with the signature of `make_spmm`. backend: "cuda", "emulator" or None.

    Returns `out`, or a new array, whose rows are padded to whole vectors where those of `b` are.
    Raises TypeError, ValueError or `VariantError` before any launch.
    """
    plan, operands = _prepare(a, b, variant, out, make, backend)
    result = plan(*operands)
    if out is not None:
        return out
    return result[:, 0] if b.ndim == 1 else result


def plan_spmm(a, b, variant=None, *, out=None, make=make_spmm, backend=None):
    """The `Plan` that `spmm` with the same arguments would run; `plan.explain()` says what and why."""
    return _prepare(a, b, variant, out, make, backend)[0]


def _prepare(a, b, variant, out, make, backend):
    """(plan, (values, b, out)): checked operands in layouts that kernels read, and the plan for them."""
    a = as_csr(a)
    check_float32("b", b)
    m, k = a.shape
    if b.ndim not in (1, 2) or b.shape[0] != k:
        raise ValueError(f"b has shape {b.shape}; for a of shape {a.shape} it must be ({k},) or ({k}, n)")
    if out is not None:
        _check_out(out, (m, *b.shape[1:]), a, b)
    if variant is not None and not isinstance(variant, SpmmVariant):
        raise TypeError(f"variant is a {type(variant).__name__}; it must be an SpmmVariant or None")
    if not callable(make):
        raise TypeError(f"make is a {type(make).__name__}; it must be a kernel factory: make(variant, types)")
    backend = resolve_backend(backend)

    values, b, out = np.require(a.values, requirements="CA"), _as_columns(b), _as_columns(out)
    copied = () if values is a.values else ("a's values",)
    if leading_dimension(b) is None:
        b, copied = np.require(b, requirements="CA"), (*copied, "b")
    problem = _problem(a.topology, values, b, out, backend)
    chosen, reason = (variant, "asked for") if variant else select(problem, _warps_to_fill(make, backend))
    refusal = chosen.check(problem)
    if refusal:
        raise VariantError(refusal)
    make_plan = lambda: Plan(a.topology, problem, chosen, make, backend, reason, copied)  # noqa: E731
    plan = a.topology.plan((problem, chosen, make, backend, reason, copied), make_plan)
    return plan, (values, b, out)


def _warps_to_fill(make, backend):
    """What `select` aims at. A kernel of the user's own gets on the emulator what a GPU would run."""
    return resident_warps(backend) or (0 if make is make_spmm else H200_WARPS)


def _problem(topology, values, b, out, backend):
    """The `Problem` of operands in their layouts. A device gets fresh copies, aligned as well as can be."""
    aligned = (lambda array: 16) if backend == "cuda" else alignment
    (m, k), (_, n), ldb = topology.shape, b.shape, leading_dimension(b)
    return Problem(
        op="spmm", m=m, k=k, n=n, nnz=topology.nnz,
        types=Types(offset=topology.offsets.dtype.name),
        ldb=ldb, ldc=_padded(n, ldb) if out is None else leading_dimension(out),
        align_values=aligned(values), align_columns=aligned(topology.columns),
        align_b=aligned(b), align_c=16 if out is None else aligned(out),
        reach_b=reach(b, ldb),
        rows=topology.derive("row_stats", lambda: RowStats.of(topology.row_lengths)),
    )  # fmt: skip


def _padded(n, ldb):
    """Leading dimension of a new C: whole vectors to a row where B has them, if they have a whole one."""
    width = next(width for width in (4, 2, 1) if ldb % width == 0 and (n >= width or width == 1))
    return -(-n // width) * width


def _as_columns(array):
    """A 2-D view: a vector is a matrix of one column. None stays None."""
    return array[:, None] if array is not None and array.ndim == 1 else array


def _check_out(out, shape, a, b):
    check_float32("out", out, "make it with dtype=np.float32")
    if out.shape != shape:
        raise ValueError(f"out has shape {out.shape}; the result has {shape}")
    if not out.flags.writeable:
        raise ValueError("out is read-only; it must be writeable")
    if not out.flags.aligned:
        raise ValueError(f"out starts at address {out.ctypes.data}; it must be a multiple of {out.itemsize}")
    if out.size and leading_dimension(_as_columns(out)) is None:
        raise ValueError(
            f"out has strides {out.strides}; it must be row-major with columns one element apart"
        )
    inputs = {
        "b": b,
        "a's values": a.values,
        "a's columns": a.topology.columns,
        "a's offsets": a.topology.offsets,
    }
    for name, array in inputs.items():
        if _overlaps(out, array):
            raise ValueError(f"out overlaps {name} in memory; it must have memory of its own")


def _overlaps(x, y):
    try:
        return np.shares_memory(x, y, max_work=100_000)
    except np.exceptions.TooHardError:
        return True
