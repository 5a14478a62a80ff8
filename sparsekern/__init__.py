"""Sparse GPU kernels for neural networks, written and studied from Python."""

__version__ = "0.1.0"

__all__ = [
    "LADDERS", "Csr", "EmulatorError", "SddmmProblem", "SddmmVariant", "SpmmProblem", "SpmmVariant",
    "Topology", "Types", "VariantError", "as_csr", "as_topology", "autotune_sddmm", "autotune_spmm",
    "backend", "check", "invalidate", "make_sddmm", "make_spmm", "plan_sddmm", "plan_spmm", "sddmm", "spmm",
    "without",
]  # fmt: skip

try:
    from sparsekern.foreign import as_csr, as_topology, invalidate
    from sparsekern.formats import Csr, Topology
    from sparsekern.kernels import make_sddmm, make_spmm
    from sparsekern.ladders import LADDERS, without
    from sparsekern.machine.backends import backend
    from sparsekern.machine.report import EmulatorError
    from sparsekern.ops import plan_sddmm, plan_spmm, sddmm, spmm
    from sparsekern.problem import SddmmProblem, SpmmProblem, Types
    from sparsekern.study.autotune import autotune_sddmm, autotune_spmm
    from sparsekern.study.check import check
    from sparsekern.toggles import VariantError
    from sparsekern.variants import SddmmVariant, SpmmVariant
except ImportError as error:  # `python -m sparsekern doctor` must run where a package is missing
    _missing = error

    def __getattr__(name):
        if name in __all__:
            raise ImportError(f"{_missing}: python -m sparsekern doctor says what mends it") from _missing
        raise AttributeError(f"module 'sparsekern' has no attribute {name!r}")
