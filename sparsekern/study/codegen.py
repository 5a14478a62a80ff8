"""What the compiler makes of a kernel. Needs no GPU."""

from numba import cuda

from sparsekern.machine.launch import SIGNATURES, make_kernel
from sparsekern.problem import Types

ARCH = (9, 0)  # compute capability of an H100 or H200


def ptx(make, variant, arch=ARCH, types=Types()):
    """The PTX of the kernel that `make(variant, types)` returns, for compute capability `arch`.

    arch: (major, minor). Raises TypeError for another kind of arch, and Numba's own errors: for a kernel
    that does not compile, which name the line, and for an architecture that it does not support.
    """
    if not (isinstance(arch, tuple) and len(arch) == 2):
        raise TypeError(f"arch is {arch!r}; it must be a compute capability such as (9, 0)")
    function, signature = make_kernel(make, variant, types), SIGNATURES[variant.op](types)
    return cuda.compile_ptx(function, signature, cc=arch, launch_bounds=variant.threads)[0]
