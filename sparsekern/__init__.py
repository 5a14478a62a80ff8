"""Sparse GPU kernels for neural networks, written and studied from Python."""

from importlib import import_module

__version__ = "0.1.0"

# Where each public name lives. They are imported when first asked for, so that
# `python -m sparsekern doctor` runs in an installation that lacks what they need.
_HOMES = {
    "Csr": "formats",
    "EmulatorError": "machine.report",
    "LADDERS": "variants",
    "Problem": "problem",
    "SpmmVariant": "variants",
    "Topology": "formats",
    "Types": "problem",
    "VariantError": "variants",
    "as_csr": "formats",
    "backend": "machine.launch",
    "invalidate": "formats",
    "make_spmm": "kernels.spmm",
    "plan_spmm": "ops",
    "spmm": "ops",
    "without": "variants",
}

__all__ = list(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'sparsekern' has no attribute {name!r}; it has {', '.join(_HOMES)}")
    return getattr(import_module(f"sparsekern.{_HOMES[name]}"), name)


def __dir__():
    return [*globals(), *_HOMES]
