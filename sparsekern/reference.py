"""Answers in float64, and how far a float32 answer may be from them."""

import numpy as np
import scipy.sparse as sp

from sparsekern.foreign import as_csr, as_topology
from sparsekern.libraries import to_host

UNIT_ROUNDOFF = 2.0**-24  # relative error of rounding to float32
LEAST_NORMAL = 2.0**-126  # float32s below have fewer digits


def spmm_reference(a, b):
    """(C, scale), float64: a @ b by SciPy, and |a| @ |b|, what its rounding errors are relative to."""
    a, b = as_csr(a).to_scipy(), to_host("b", b).astype(np.float64)

    def product(values, dense):  # built anew, since casts and abs of SciPy add up repeated columns first
        return sp.csr_array((values, a.indices, a.indptr), shape=a.shape) @ dense

    values = a.data.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        return product(values, b), product(abs(values), abs(b))


def sddmm_reference(topology, lhs, rhs):
    """(values, scale), float64, (stored,): lhs[i, :] . rhs[j, :] at the nonzeros, and the same of absolutes.

    Both are 0 at positions that belong to no row.
    """
    t = as_topology(topology)
    lhs, rhs = (to_host(name, x).astype(np.float64) for name, x in (("lhs", lhs), ("rhs", rhs)))
    values, scale = np.zeros((2, t.stored))
    with np.errstate(invalid="ignore", over="ignore"):
        for i, (start, stop) in enumerate(zip(t.offsets[:-1], t.offsets[1:], strict=True)):
            columns = t.columns[start:stop]
            values[start:stop] = rhs[columns] @ lhs[i]
            scale[start:stop] = abs(rhs[columns]) @ abs(lhs[i])
    return values, scale


def error(c, reference, scale):
    """Largest |c - reference| / scale, with 0 / 0 = 0; infinite if a NaN or an Inf is not where it should be.

    Where a scale is below the least normal float32, so that underflow costs digits, that takes its place.
    """
    c = to_host("c", c).astype(np.float64)
    if c.shape != reference.shape:
        raise ValueError(f"c has shape {c.shape}; the reference has {reference.shape}")
    finite = np.isfinite(reference)
    if not np.array_equal(c[~finite], reference[~finite], equal_nan=True):
        return np.inf
    difference = np.abs(c[finite] - reference[finite])
    scale = np.where(scale == 0, 0, np.maximum(scale, LEAST_NORMAL))[finite]
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(difference == 0, 0, difference / scale)
    worst = relative.max(initial=0)
    return float(worst) if not np.isnan(worst) else np.inf


def tolerance(longest):
    """What `error` may be for sums of up to `longest` products, each added with one rounding."""
    return max(longest, 1) * UNIT_ROUNDOFF
