"""The operations: check the operands, choose a variant, plan, launch."""

from functools import partial

from sparsekern.factories import FACTORIES, check_options
from sparsekern.foreign import as_topology, check_sparse_first, library_of, like, parts_of, place_of
from sparsekern.kernels import make_sddmm, make_spmm
from sparsekern.libraries import NUMPY, float32_view, view
from sparsekern.machine.backends import place_for_host, resident_warps, resolve_place
from sparsekern.machine.plans import PLANS
from sparsekern.operands import check_apart, check_sddmm, check_spmm, output_view, readable
from sparsekern.problem import Layout, RowStats, SddmmProblem, SpmmProblem, Types
from sparsekern.select import H200_WARPS, select
from sparsekern.toggles import VariantError
from sparsekern.variants import SddmmVariant, SpmmVariant


def spmm(a, b, variant=None, *, out=None, make=make_spmm, backend=None):
    """C = a @ b, float32, for a sparse `a` (m, k) and a dense `b` (k, n) or (k,).

    a: a `Csr`, or a CSR matrix of SciPy, CuPy or PyTorch, of float32. b: a float32 array of NumPy, CuPy or
    PyTorch, or one that speaks DLPack or `__cuda_array_interface__`; read in place if row-major with any
    leading dimension, otherwise copied. variant: an `SpmmVariant`; None lets `select` choose. out: a
    float32 array (m, n) or (m,) to write to, with unit column stride. make: a kernel factory with the
    signature of `make_spmm`. backend: "cuda", "emulator" or None.

    All operands are in host memory or all on one device, where the kernel is queued on the stream on
    which the library of `b` works at the time. Returns `out`, or a new array of that library, whose rows
    are padded to whole vectors where those of `b` are. Raises TypeError, ValueError or `VariantError`
    before any launch.
    """
    check_sparse_first("a", a, "b", b)
    parts, b = parts_of(a), float32_view("b", b)  # here, for its shape: what speaks DLPack need not have one
    plan, inputs, seen = _prepare_spmm(parts, b, variant, out, make, backend)
    result = plan.run(inputs, seen)
    if out is not None:
        return out
    return result[:, 0] if len(b.shape) == 1 else result


def plan_spmm(a, b, variant=None, *, out=None, make=make_spmm, backend=None):
    """The `Plan` that `spmm` with the same arguments would run; `plan.explain()` says what and why."""
    return _prepare_spmm(parts_of(a), float32_view("b", b), variant, out, make, backend)[0]


def sddmm(topology, lhs, rhs, variant=None, *, out=None, make=make_sddmm, backend=None):
    """out[i, j] = lhs[i, :] . rhs[j, :], float32, at the nonzeros of an (m, n) `topology`, and only there.

    topology: a `Topology`, a `Csr`, or a CSR matrix of SciPy, CuPy or PyTorch; its values are not used. lhs:
    (m, k), rhs: (n, k), float32 arrays as for `spmm`. variant: an `SddmmVariant`; None lets `select` choose.
    out: a float32 array (stored,) for the values, which the result then holds. make: a kernel factory with
    the signature of `make_sddmm`. backend: "cuda", "emulator" or None.

    Returns a matrix of the type of `topology` with the same structure; for a `Topology` a `Csr`. Place,
    stream and errors are those of `spmm`.
    """
    plan, t, inputs, seen = _prepare_sddmm(topology, lhs, rhs, variant, out, make, backend)
    library = library_of(topology)
    values = plan.run(inputs, seen, library=library)
    if out is not None:
        values = seen.array if library is NUMPY else out
    return like(topology, t, values)


def plan_sddmm(topology, lhs, rhs, variant=None, *, out=None, make=make_sddmm, backend=None):
    """The `Plan` that `sddmm` with the same arguments would run."""
    return _prepare_sddmm(topology, lhs, rhs, variant, out, make, backend)[0]


def _prepare_spmm(parts, b, variant, out, make, backend):
    """(plan, views of values and b in layouts that the kernel reads, view of out or None): all checked.

    The plan is found by a key of fingerprints and options; of operands in host memory the current device is
    one. Operands that agree in it are alike in all that is checked but where out lies.
    """
    check_options(variant, SpmmVariant, make)
    (t, values), out = parts, output_view(out)
    place = backend if values.device is not None else place_for_host(backend)
    key = (values.fingerprint, b.fingerprint), out and out.fingerprint, "spmm", variant, make, place
    plan = t.plans.get(key)
    if plan is None:
        check_spmm(t, b, out)
    inputs = {"a's values": values, "b": b.as_columns()}
    if out is not None:
        check_apart(out, inputs, t)
        out = out.as_columns()
    views = values, inputs["b"]
    if plan is None:
        places, describe = {**inputs, "out": out}, partial(_spmm_problem, t, out)
        plan, views = _plan(t, key, inputs, places, describe, variant, make, backend)
    return plan, views, out


def _prepare_sddmm(topology, lhs, rhs, variant, out, make, backend):
    """(plan, topology, views of lhs and rhs, view of out or None), as for SpMM."""
    check_sparse_first("topology", topology, "rhs", rhs)
    check_options(variant, SddmmVariant, make)
    t, library, home = as_topology(topology), library_of(topology), place_of(topology)
    views, out = (float32_view("lhs", lhs), float32_view("rhs", rhs)), output_view(out)
    lhs, rhs = views
    first = lhs if home is None else home
    place = backend if first.device is not None else place_for_host(backend)
    output = first.device, out and (library, out.fingerprint)  # an out has to suit the library of topology
    key = (lhs.fingerprint, rhs.fingerprint), output, "sddmm", variant, make, place
    plan = t.plans.get(key)
    if plan is None:
        check_sddmm(t, lhs, rhs, out, library)
    inputs = {"lhs": lhs, "rhs": rhs}
    if out is not None:
        check_apart(out, inputs, t)
    if plan is None:
        places, describe = {"topology": home, **inputs, "out": out}, partial(_sddmm_problem, t)
        plan, views = _plan(t, key, inputs, places, describe, variant, make, backend)
    return plan, t, views, out


def _plan(topology, key, inputs, places, describe, variant, make, backend):
    """(a plan, made if there is none; views of the inputs in layouts that the kernel reads).

    key: (fingerprints of the inputs, what else tells plans apart); of inputs that have to be copied the
    fingerprints of the copies take the place of theirs. inputs: {name: `View`}, checked. places: {name:
    `View` or None} of all that must lie in one place. describe(device, *views): the problem.
    """
    backend, device = resolve_place(backend, {name: x for name, x in places.items() if x is not None})
    views, copied = readable(inputs)
    if copied:  # the next copy of these operands may lie otherwise: what is copied to is what counts
        key = tuple(x.fingerprint for x in views), copied, *key[1:]

    def new():
        problem = describe(device, *views)
        chosen, reason = variant, "asked for"
        if variant is None:  # a kernel of one's own gets on the emulator what a GPU would run
            own = make not in FACTORIES.values()
            chosen, reason = select(problem, resident_warps(device) or (own and H200_WARPS), own)
        refusal = chosen.check(problem)
        if refusal:
            raise VariantError(refusal)
        return PLANS[problem.op](topology, problem, chosen, make, backend, device, reason, copied)

    return topology.plans.get_or_make(key, new), views


def _spmm_problem(t, out, device, values, b):
    (m, k), n, ldb = t.shape, b.shape[1], b.leading_dimension()
    layout = partial(Layout.of, fresh=device != b.device)
    ldc = _padded(n, ldb) if out is None else out.leading_dimension()
    return SpmmProblem(
        m=m, k=k, n=n, nnz=t.nnz, types=_types(t), rows=_row_stats(t),
        values=layout(values), columns=Layout.of(view("columns", t.columns), fresh=device is not None),
        b=layout(b), c=Layout(ldc, 16 if out is None else layout(out).align, _extent(m, n, ldc)),
    )  # fmt: skip


def _sddmm_problem(t, device, lhs, rhs):
    (m, n), k, fresh = t.shape, lhs.shape[1], device != rhs.device
    return SddmmProblem(
        m=m, k=k, n=n, nnz=t.nnz, types=_types(t), rows=_row_stats(t),
        lhs=Layout.of(lhs, fresh), rhs=Layout.of(rhs, fresh),
    )  # fmt: skip


def _types(topology):
    return Types(offset=topology.offsets.dtype.name)


def _row_stats(topology):
    return topology.derive("row stats", lambda: RowStats.of(topology.row_lengths))


def _padded(n, ldb):
    """Leading dimension of a new C: whole vectors to a row where B has them, if they have a whole one."""
    width = next(width for width in (4, 2, 1) if ldb % width == 0 and (n >= width or width == 1))
    return -(-n // width) * width


def _extent(rows, columns, ld):
    """Elements from the first of a row-major matrix to its last."""
    return (rows - 1) * ld + columns if rows and columns else 0
