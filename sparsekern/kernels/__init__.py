"""The textbook pages: one kernel factory per operation."""

from sparsekern.kernels.spmm import make_spmm

__all__ = ["make_spmm"]
