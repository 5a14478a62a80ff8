"""The operations: check the operands, choose a variant, plan, launch."""

from functools import lru_cache, partial
from inspect import signature

from sparsekern.foreign import as_topology, check_sparse_first, library_of, like, parts_of, place_of
from sparsekern.formats import MOST_PLANS
from sparsekern.kernels import make_sddmm, make_spmm
from sparsekern.libraries import NUMPY, float32_view, view
from sparsekern.machine.backends import resident_warps, resolve_place
from sparsekern.machine.plans import PLANS
from sparsekern.problem import Layout, RowStats, SddmmProblem, SpmmProblem, Types
from sparsekern.select import H200_WARPS, select
from sparsekern.toggles import VariantError
from sparsekern.variants import SddmmVariant, SpmmVariant

FACTORIES = {"spmm": make_spmm, "sddmm": make_sddmm}


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
    """(plan, views of values and b in layouts that the kernel reads, view of out or None): all checked."""
    check_options(variant, SpmmVariant, make)
    t, values = parts
    out = None if out is None else _float32_output(out)
    key = "spmm", values.facts, b.facts, out and out.facts, variant, make, _place(backend, values)
    plan = _remembered(t, key)
    inputs = {"a's values": values, "b": b}
    if plan is None:
        return _plan_spmm(t, inputs, variant, out, make, backend, key)
    if out is not None:
        _check_apart(out, inputs, t)
        out = out.as_columns()
    return plan, (values, b.as_columns()), out


def _plan_spmm(t, inputs, variant, out, make, backend, key):
    """The same, for operands that have yet to be checked; `key` is what to remember the plan by."""
    m, k = t.shape
    b = inputs["b"]
    if len(b.shape) not in (1, 2) or b.shape[0] != k:
        hint = ": pass b.T" if len(b.shape) == 2 and b.shape[1] == k else ""
        raise ValueError(
            f"b has shape {b.shape}; for a of shape {t.shape} it must be ({k},) or ({k}, n){hint}"
        )
    inputs["b"] = b.as_columns()
    if out is not None:
        _check_output(out, (m, *b.shape[1:]), inputs, t)
        out = out.as_columns()
        if out.leading_dimension() is None:
            raise ValueError(
                f"out has strides {out.strides}; it must be row-major with columns one element apart"
            )
    backend, device = resolve_place(backend, inputs if out is None else {**inputs, "out": out})
    (values, b), copied = _readable(inputs)
    layout = partial(Layout.of, fresh=device != b.device)
    n, ldb = b.shape[1], b.leading_dimension()
    ldc = _padded(n, ldb) if out is None else out.leading_dimension()
    problem = SpmmProblem(
        m=m, k=k, n=n, nnz=t.nnz, types=Types(offset=t.offsets.dtype.name), rows=_row_stats(t),
        values=layout(values), columns=Layout.of(view("columns", t.columns), fresh=device is not None),
        b=layout(b), c=Layout(ldc, 16 if out is None else layout(out).align, _extent(m, n, ldc)),
    )  # fmt: skip
    plan = _plan(t, problem, variant, make, backend, device, copied, key)
    return plan, (values, b), out


def _prepare_sddmm(topology, lhs, rhs, variant, out, make, backend):
    """(plan, topology, views of lhs and rhs, view of out or None), as for SpMM."""
    check_sparse_first("topology", topology, "rhs", rhs)
    check_options(variant, SddmmVariant, make)
    t, library, place = as_topology(topology), library_of(topology), place_of(topology)
    inputs = {"lhs": float32_view("lhs", lhs), "rhs": float32_view("rhs", rhs)}
    lhs, rhs = inputs.values()
    out = None if out is None else _float32_output(out)
    first = lhs if place is None else place
    options = library, first.device, variant, make, _place(backend, first)
    key = "sddmm", lhs.facts, rhs.facts, out and out.facts, *options
    plan = _remembered(t, key)
    if plan is None:
        return _plan_sddmm(t, inputs, variant, out, make, backend, library, place, key)
    if out is not None:
        _check_apart(out, inputs, t)
    return plan, t, (lhs, rhs), out


def _plan_sddmm(t, inputs, variant, out, make, backend, library, place, key):
    """The same, for operands that have yet to be checked; library and place are those of the topology."""
    m, n = t.shape
    swapped = [seen.shape[:1] for seen in inputs.values()] == [(n,), (m,)]
    for (name, seen), length in zip(inputs.items(), (m, n), strict=True):
        if len(seen.shape) != 2 or seen.shape[0] != length:
            turned = len(seen.shape) == 2 and seen.shape[1] == length
            hint = ": lhs and rhs are swapped" if swapped else f": pass {name}.T" if turned else ""
            raise ValueError(
                f"{name} has shape {seen.shape}; for a topology of shape {t.shape} it must be "
                f"({length}, k){hint}"
            )
    k, other = (seen.shape[1] for seen in inputs.values())
    if k != other:
        raise ValueError(
            f"lhs has {k} columns and rhs {other}; both must have k: row i of lhs meets row j of rhs"
        )
    if out is not None:
        _check_output(out, (t.stored,), inputs, t, "the values of the result have")
        if not out.contiguous:
            raise ValueError(f"out has strides {out.strides}; it must be contiguous")
        if library not in (None, out.library):
            raise TypeError(
                f"out is {out.library.article}; to hold values of topology it must be {library.article}"
            )
    places = {"topology": place, **inputs, "out": out}
    backend, device = resolve_place(backend, {name: x for name, x in places.items() if x is not None})
    (lhs, rhs), copied = _readable(inputs)
    fresh = device != rhs.device
    problem = SddmmProblem(
        m=m, k=k, n=n, nnz=t.nnz, types=Types(offset=t.offsets.dtype.name), rows=_row_stats(t),
        lhs=Layout.of(lhs, fresh), rhs=Layout.of(rhs, fresh),
    )  # fmt: skip
    plan = _plan(t, problem, variant, make, backend, device, copied, key)
    return plan, t, (lhs, rhs), out


def check_options(variant, kind, make):
    """Raises TypeError unless `variant` is None or a `kind`, and `make` a kernel factory."""
    if variant is not None and not isinstance(variant, kind):
        what, hint = f"a {type(variant).__name__}", ""
        if isinstance(variant, dict):
            hint = f": pass {kind.__name__}(**variant)"
        elif isinstance(variant, type):
            what, hint = f"the class {variant.__name__}", f": pass {kind.__name__}()"
        raise TypeError(f"variant is {what}; it must be an {kind.__name__} or None to choose{hint}")
    if make is FACTORIES[kind.op]:
        return
    check_factory(make)
    if make in FACTORIES.values():
        own = FACTORIES[kind.op].__name__
        raise TypeError(f"make is {make.__name__}; it must be a factory of this operation: {own}")


def check_factory(make):
    """Raises TypeError unless `make` can be called as a kernel factory is."""
    if not callable(make):
        raise TypeError(f"make is a {type(make).__name__}; it must be a kernel factory: make(variant, types)")
    _check_signature(make)


@lru_cache(maxsize=256)
def _check_signature(make):
    parameters = signature(make)
    try:
        parameters.bind("variant", "types")
    except TypeError:
        raise TypeError(
            f"make is {getattr(make, '__name__', make)}{parameters}; it must be a kernel factory, "
            "make(variant, types), which returns the kernel"
        ) from None


def _readable(inputs):
    """(views of the inputs, the names of those that had to be copied for it)."""
    views, copied = [], []
    for name, seen in inputs.items():
        if not (seen.contiguous if len(seen.shape) == 1 else seen.leading_dimension()):
            copy = view(name, seen.library.contiguous(name, seen.array))
            seen = copy if len(seen.shape) == 1 else copy.as_columns()
            copied.append(name)
        views.append(seen)
    return views, tuple(copied)


def _place(backend, first):
    """What decides where to compute, besides the first operand's device."""
    return backend if first.device is not None else resolve_place(backend, {"a": first})


def _remembered(topology, key):
    """The plan that operands of `key` got before, or None; what they are copied to is made anew each time."""
    return topology.derive("plans at hand", dict).get(key)


def _plan(topology, problem, variant, make, backend, device, copied, key):
    """The plan of `topology` for all this, made if there is none yet; `key` will find it without all this."""

    def new():
        chosen, reason = variant, "asked for"
        if variant is None:  # a kernel of one's own gets on the emulator what a GPU would run
            own = make not in FACTORIES.values()
            chosen, reason = select(problem, resident_warps(device) or (own and H200_WARPS), own)
        refusal = chosen.check(problem)
        if refusal:
            raise VariantError(refusal)
        return PLANS[problem.op](topology, problem, chosen, make, backend, device, reason, copied)

    plan = topology.plan((problem, variant, make, backend, device, copied), new)
    if not copied:  # to know the layout of a copy it must be made
        at_hand = topology.derive("plans at hand", dict)
        if len(at_hand) >= MOST_PLANS:
            at_hand.clear()
        at_hand[key] = plan
    return plan


def _row_stats(topology):
    return topology.derive("row stats", lambda: RowStats.of(topology.row_lengths))


def _padded(n, ldb):
    """Leading dimension of a new C: whole vectors to a row where B has them, if they have a whole one."""
    width = next(width for width in (4, 2, 1) if ldb % width == 0 and (n >= width or width == 1))
    return -(-n // width) * width


def _extent(rows, columns, ld):
    """Elements from the first of a row-major matrix to its last."""
    return (rows - 1) * ld + columns if rows and columns else 0


def _float32_output(out):
    return float32_view("out", out, "make it with dtype float32")


def _check_output(out, shape, inputs, topology, result="the result has"):
    """Raises ValueError unless the `View` out can be written to."""
    if out.shape != shape:
        raise ValueError(f"out has shape {out.shape}; {result} {shape}")
    if not out.writeable:
        raise ValueError("out is read-only; it must be writeable")
    if not out.aligned:
        raise ValueError(
            f"out has address {out.address} and strides {out.strides}; all must be multiples of "
            f"{out.itemsize}"
        )
    _check_apart(out, inputs, topology)


def _check_apart(out, inputs, topology):
    """Raises ValueError if out shares memory with what the kernel reads."""
    others = dict(inputs)
    if out.device is None:  # where the arrays of the topology are
        others["the structure's columns"] = view("columns", topology.columns)
        others["the structure's offsets"] = view("offsets", topology.offsets)
    for name, other in others.items():
        if out.overlaps(other):
            raise ValueError(f"out overlaps {name} in memory; it must have memory of its own")
