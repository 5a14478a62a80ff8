"""Sparse GPU kernels for neural networks, written and studied from Python."""

__version__ = "0.1.0"

__all__ = [
    "LADDERS", "Csr", "EmulatorError", "Problem", "SpmmVariant", "Topology", "Types", "VariantError",
    "as_csr", "backend", "invalidate", "make_spmm", "plan_spmm", "spmm", "without",
]  # fmt: skip

try:
    from sparsekern.formats import Csr, Topology, as_csr, invalidate
    from sparsekern.kernels import make_spmm
    from sparsekern.machine.launch import backend
    from sparsekern.machine.report import EmulatorError
    from sparsekern.ops import plan_spmm, spmm
    from sparsekern.problem import Problem, Types
    from sparsekern.variants import LADDERS, SpmmVariant, VariantError, without
except ImportError as error:  # `python -m sparsekern doctor` must run where a package is missing
    _missing = error

    def __getattr__(name):
        if name in __all__:
            raise ImportError(f"{_missing}: python -m sparsekern doctor says what mends it") from _missing
        raise AttributeError(f"module 'sparsekern' has no attribute {name!r}")
