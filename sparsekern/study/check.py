"""A kernel put to the test: the zoo, the emulator's watch, and float64, in a few seconds.

Dense operands hold NaN and Inf wherever the sparse matrix touches nothing, and outputs start as NaN, so
that a kernel which lets a masked lane contribute, or forgets an element, is found out.
"""

from inspect import signature

import numpy as np

from sparsekern.factories import FACTORIES, check_factory, check_options
from sparsekern.foreign import as_csr
from sparsekern.ladders import LADDERS
from sparsekern.machine.launch import SIGNATURES
from sparsekern.machine.report import EmulatorError
from sparsekern.ops import sddmm, spmm
from sparsekern.problem import Types
from sparsekern.reference import error, sddmm_reference, spmm_reference, tolerance
from sparsekern.toggles import Variant, VariantError
from sparsekern.variants import KINDS, check_op
from sparsekern.zoo import ZOO

WIDTH = {"spmm": 74, "sddmm": 142}  # columns of the dense operands: several steps, and a last one not whole
SHOWN = 3  # failures printed in full


def check(make=None, variant=None, *, op=None, matrices=None, n=None, backend="emulator"):
    """Runs a kernel over hard matrices and prints a short verdict; whether it passed.

    make: a kernel factory; None is the library's. variant: None is the last step of the ladder of `op` that
    the page of the factory has. op: "spmm" or "sddmm"; None is told from `variant`, or from the kernel.
    matrices: {name: CSR matrix}; None is the zoo. n: columns of the dense operands, of SDDMM the
    inner dimension; None is a number that fills no tile. backend: "cuda" compares with float64 alone, for
    compute-sanitizer.

    A matrix passes if nothing is reported (see `EmulatorError`) and every element agrees with float64 within
    `reference.tolerance`. One that the variant cannot run is named with the reason, and fails nothing, unless
    all are such.

    Raises TypeError if `make` fits no operation, or `variant` not `op`; RuntimeError for "cuda"
    without a GPU.
    """
    op = _operation(make, variant, op)
    make = FACTORIES[op] if make is None else make
    check_options(variant, KINDS[op], make)
    if variant is None:
        steps = [v for _, v in reversed(LADDERS[op])]
        variant = next((v for v in steps if _kernel(make, v)), steps[0])
    n = WIDTH[op] if n is None else n
    if matrices is None:
        matrices = {name: specimen.make() for name, specimen in ZOO.items()}
    name_of_make = getattr(make, "__qualname__", make)
    print(f"{op} by {name_of_make}, {variant}, on {len(matrices)} matrices", flush=True)
    passed, failed, worst = 0, [], 0.0
    for name, a in matrices.items():
        try:
            found, allowed = _RUNS[op](as_csr(a), n, variant, make=make, backend=backend)
        except VariantError as refusal:
            print(f"cannot run {name}: {refusal}", flush=True)
            continue
        except EmulatorError as report:
            failure = report
        else:
            failure = f"wrong: error {found:.1e} of the sums of absolute values; allowed {allowed:.1e}"
            if found <= allowed:
                passed, worst = passed + 1, max(worst, found)
                continue
        failed.append(name)
        if len(failed) <= SHOWN:
            why = f" ({ZOO[name].why})" if name in ZOO else ""
            print(f"FAILED on {name}{why}\n  {failure}", flush=True)
    if failed:
        print(f"FAILED on {len(failed)} of {len(matrices)}; {passed} agree with float64")
    elif passed:
        print(f"{passed} agree with float64; largest error {worst:.1e} of the sums of absolute values")
    return passed > 0 and not failed


def _operation(make, variant, op):
    if op is None and isinstance(variant, Variant):
        op = variant.op
    if op is not None:
        check_op(op)
        return op
    if make is None and variant is not None:
        raise TypeError(f"variant is a {type(variant).__name__}; it must be an SpmmVariant or SddmmVariant")
    if make is None:
        raise TypeError("make, variant and op are all None; one must say what to check")
    check_factory(make)
    for op, ladder in LADDERS.items():
        function = next(filter(None, (_kernel(make, variant) for _, variant in reversed(ladder))), None)
        if callable(function) and len(signature(function).parameters) == len(SIGNATURES[op](Types()).args):
            return op
    raise TypeError("make returns a kernel with the parameters of neither spmm nor sddmm: pass op")


def _kernel(make, variant):
    """The kernel, or None of a variant that has toggles the factory does not know, or is of another page."""
    try:
        return make(variant, Types())
    except (AttributeError, ValueError):
        return None


def _dense(rows, touched, columns, rng, more=0):
    """(rows, columns) float32, padded to whole vectors and `more`; NaN and Inf in turn in untouched rows."""
    padded = rng.standard_normal((rows, -(-columns // 4) * 4 + more), np.float32)
    untouched = np.setdiff1d(np.arange(rows), touched)
    padded[untouched] = np.resize([np.nan, np.inf], len(untouched))[:, None]
    return padded[:, :columns]


def _run_spmm(a, n, variant, **options):
    """(error, what it may be) of a run."""
    b = _dense(a.shape[1], a.topology.columns[a.topology.owned], n, np.random.default_rng(1), more=4)
    out = np.full((a.shape[0], -(-n // 4) * 4), np.nan, np.float32)[:, :n]
    spmm(a, b, variant, out=out, **options)
    return error(out, *spmm_reference(a, b)), tolerance(a.topology.row_lengths.max(initial=0))


def _run_sddmm(a, n, variant, **options):
    rng, lengths = np.random.default_rng(1), a.topology.row_lengths
    lhs = _dense(a.shape[0], np.flatnonzero(lengths), n, rng)
    rhs = _dense(a.shape[1], a.topology.columns[a.topology.owned], n, rng, more=4)
    out = np.full(a.topology.stored, np.nan, np.float32)
    sddmm(a.topology, lhs, rhs, variant, out=out, **options)
    reference, scale = sddmm_reference(a, lhs, rhs)
    kept = a.topology.owned
    return error(out[kept], reference[kept], scale[kept]), tolerance(n)


_RUNS = {"spmm": _run_spmm, "sddmm": _run_sddmm}
