"""What the compiler makes of a kernel. Needs no GPU."""

from functools import lru_cache

import numba
from numba import cuda

from sparsekern.problem import Types
from sparsekern.variants import SpmmVariant

ARCH = (9, 0)


def signature(op, types):
    """The Numba signature of the kernels of `op` for `types`."""
    vector = lambda name: numba.types.Array(getattr(numba, name), 1, "C")  # noqa: E731
    size, stride = numba.int32, numba.int64
    return numba.void(
        vector("int32"),
        vector(types.offset),
        vector(types.index),
        vector(types.values),
        vector(types.dense),
        stride,
        vector(types.out),
        stride,
        size,
        size,
        stride,
        stride,
        stride,
    )


def ptx(make, variant, arch=ARCH, types=Types()):
    return cuda.compile_ptx(make(variant, types), signature(variant.op, types), cc=arch)[0]
