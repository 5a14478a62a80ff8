"""What the compiler makes of a kernel. Needs no GPU."""

import numpy as np
from numba import cuda, from_dtype, int32, int64, types, void

from sparsekern.machine.launch import kernel
from sparsekern.problem import Types

ARCH = (9, 0)  # compute capability of an H100 or H200


def signature(dtypes):
    """The Numba signature of an SpMM kernel for `dtypes` (a `Types`): what a factory's kernel must accept."""
    names = (dtypes.index, dtypes.offset, dtypes.index, dtypes.values, dtypes.dense, dtypes.out)
    order, offsets, columns, values, b, c = (types.Array(from_dtype(np.dtype(n)), 1, "C") for n in names)
    strides = (int64, int64, int64)
    return void(order, offsets, columns, values, b, int64, c, int64, int32, int32, *strides)


def ptx(make, variant, arch=ARCH, types=Types()):
    """The PTX of the kernel that `make(variant, types)` returns, for compute capability `arch`.

    arch: (major, minor). Raises Numba's own errors: for a kernel that does not compile, which name the
    line, and for an architecture that the compiler does not support.
    """
    return cuda.compile_ptx(kernel(make, variant, types), signature(types), cc=tuple(arch))[0]
