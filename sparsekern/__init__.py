"""Sparse GPU kernels for neural networks, written and studied from Python."""

from sparsekern.formats import Csr, Topology, invalidate
from sparsekern.kernels import make_spmm
from sparsekern.machine.launch import backend
from sparsekern.machine.report import EmulatorError
from sparsekern.ops import plan_spmm, spmm
from sparsekern.problem import Problem, Types
from sparsekern.variants import LADDERS, SpmmVariant, VariantError, without

__version__ = "0.1.0"

__all__ = [
    "LADDERS", "Csr", "EmulatorError", "Problem", "SpmmVariant", "Topology", "Types", "VariantError",
    "backend", "invalidate", "make_spmm", "plan_spmm", "spmm", "without",
]  # fmt: skip
