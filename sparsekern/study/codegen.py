"""What the compiler makes of a kernel. Needs no GPU."""

from numba import cuda

from sparsekern.machine.launch import make_kernel, spmm_signature
from sparsekern.problem import Types

ARCH = (9, 0)  # compute capability of an H100 or H200


def ptx(make, variant, arch=ARCH, types=Types()):
    """The PTX of the kernel that `make(variant, types)` returns, for compute capability `arch`.

    arch: (major, minor). Raises Numba's own errors: for a kernel that does not compile, which name the
    line, and for an architecture that the compiler does not support.
    """
    function, signature = make_kernel(make, variant, types), spmm_signature(types)
    return cuda.compile_ptx(function, signature, cc=tuple(arch), launch_bounds=variant.threads)[0]
