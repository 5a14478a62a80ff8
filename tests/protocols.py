"""Arrays that speak a protocol and nothing else, matrices of PyTorch, and how an SDDMM is checked."""

from sparsekern.foreign import as_csr
from sparsekern.reference import error, sddmm_reference, tolerance


class Dlpack:
    """An array of which only its DLPack can be had."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class CudaArrayInterface:
    """An array of which only its `__cuda_array_interface__` can be had."""

    def __init__(self, array):
        self._array = array

    @property
    def __cuda_array_interface__(self):
        return self._array.__cuda_array_interface__


def csr_tensor(torch, a, index="int32", device="cpu"):
    """The SciPy matrix `a` as a sparse CSR tensor with indices of that dtype."""
    where = dict(device=device, copy=True)
    offsets, columns = (
        torch.asarray(part, dtype=getattr(torch, index), **where) for part in (a.indptr, a.indices)
    )
    values = torch.asarray(a.data, **where)
    return torch.sparse_csr_tensor(offsets, columns, values, a.shape, check_invariants=True)


def check_products(topology, lhs, rhs, result):
    """That `result` holds lhs[i, :] . rhs[j, :] at the nonzeros of `topology`."""
    result = as_csr(result)
    assert result.shape == (lhs.shape[0], rhs.shape[0])
    assert error(result.values, *sddmm_reference(topology, lhs, rhs)) <= tolerance(lhs.shape[1])
