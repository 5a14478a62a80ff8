"""Operands for the tests of spmm, and how an answer is checked."""

import numpy as np
import pytest
import scipy.sparse as sp

from sparsekern import spmm
from sparsekern.foreign import as_csr
from sparsekern.reference import error, spmm_reference, tolerance

BACKENDS = ["emulator", pytest.param("cuda", marks=pytest.mark.gpu)]


def dense(k, *n, seed=3):
    return np.random.default_rng(seed).standard_normal((k, *n), np.float32)


def sparse(m=9, k=13, density=0.4, seed=0, **options):
    rng = np.random.default_rng(seed)
    return sp.random_array((m, k), density=density, format="csr", dtype=np.float32, rng=rng, **options)


A, B = sparse(), dense(13, 6)


def check(a, b, c):
    longest = int(max(as_csr(a).topology.row_lengths, default=0))
    assert error(c, *spmm_reference(a, b)) <= tolerance(longest)


def refused(error_type, match, *operands, **options):
    with pytest.raises(error_type, match=match):
        spmm(*operands, backend="emulator", **options)
