"""The textbook pages: a kernel factory each, and one for each operation that takes any of its variants."""

from sparsekern.kernels import spmm, spmm_in_flight
from sparsekern.kernels.sddmm import make_sddmm

__all__ = ["make_sddmm", "make_spmm"]


def make_spmm(variant, types):
    """The SpMM kernel of any `SpmmVariant` for `types` (a `Types`), from the page that has it."""
    page = spmm_in_flight.make_spmm_in_flight if variant.in_flight else spmm.make_spmm
    return page(variant, types)
