"""The textbook pages: one kernel factory per operation."""

from sparsekern.kernels.sddmm import make_sddmm
from sparsekern.kernels.spmm import make_spmm

__all__ = ["make_sddmm", "make_spmm"]
