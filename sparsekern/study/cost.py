"""What a problem must cost: flops, bytes, bounds."""

from sparsekern.study.gpus import Gpu

__all__ = ["Gpu", "l1_bound_us", "l1_bytes"]


def l1_bytes(problem):
    """Bytes of B, or rhs, that a row-split CSR kernel reads from L1: 4 for each multiply-add."""
    return 4 * problem.flops // 2


def l1_bound_us(problem, gpu):
    """Microseconds below which no row-split CSR kernel can be on `gpu`, whatever else it does well."""
    return l1_bytes(problem) / gpu.l1_bytes_per_second * 1e6
