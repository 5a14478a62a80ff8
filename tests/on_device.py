"""Arrays and matrices of each library on a CUDA device, for the tests of what is done with them there."""

import numpy as np
import pytest
import scipy.sparse as sp
from numba import cuda
from operands import A, dense
from protocols import CudaArrayInterface, Dlpack, csr_tensor

LHS, RHS = dense(9, 5), dense(13, 5, seed=4)  # for the structure of A


def cupy_or_skip():
    return pytest.importorskip("cupy", reason="needs CuPy, which is not installed here")


def torch_or_skip(on_device=True):
    torch = pytest.importorskip("torch", reason="needs PyTorch, which is not installed here")
    if on_device and not torch.cuda.is_available():
        pytest.skip("this PyTorch knows no CUDA")
    return torch


PUT = {  # NumPy arrays on the device, of each kind
    "cupy": lambda x: cupy_or_skip().asarray(x),
    "torch": lambda x: torch_or_skip().tensor(x, device="cuda"),
    "numba": lambda x: cuda.to_device(np.ascontiguousarray(x)),
    "cuda array interface": lambda x: CudaArrayInterface(cupy_or_skip().asarray(x)),
    "dlpack": lambda x: Dlpack(cupy_or_skip().asarray(x)),
}
LIBRARIES = ["cupy", "torch"]
SLICEABLE = ["cupy", "torch", "numba"]


def host(x):
    """A copy of a device array in host memory, not made by sparsekern."""
    for way in ("get", "cpu", "copy_to_host"):
        if hasattr(x, way):
            return np.asarray(getattr(x, way)())
    return x


def is_result(kind, x):
    """Whether `x` is what operands of that kind give: a float32 array on the device."""
    if kind == "torch":
        torch = torch_or_skip()
        return isinstance(x, torch.Tensor) and x.dtype == torch.float32 and x.is_cuda
    array = cupy_or_skip().ndarray if kind == "cupy" else type(cuda.device_array(1, np.float32))
    return isinstance(x, array) and x.dtype == np.float32


def csr_on_device(library, a=A, index="int32"):
    """A SciPy matrix as a sparse one of CuPy or PyTorch."""
    if library == "torch":
        return csr_tensor(torch_or_skip(), a, index, "cuda")
    cupy_or_skip()
    from cupyx.scipy.sparse import csr_matrix

    result = csr_matrix(sp.csr_matrix(a))
    result.indptr, result.indices = result.indptr.astype(index), result.indices.astype(index)
    return result
