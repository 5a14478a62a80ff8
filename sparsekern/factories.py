"""The kernel factory of each operation, and what is asked of a variant and of a factory of one's own."""

from functools import lru_cache
from inspect import signature

from sparsekern.kernels import make_sddmm, make_spmm

FACTORIES = {"spmm": make_spmm, "sddmm": make_sddmm}


def check_options(variant, kind, make):
    """Raises TypeError unless `variant` is None or a `kind`, and `make` a kernel factory."""
    if variant is not None and not isinstance(variant, kind):
        what, hint = f"a {type(variant).__name__}", ""
        if isinstance(variant, dict):
            hint = f": pass {kind.__name__}(**variant)"
        elif isinstance(variant, type):
            what, hint = f"the class {variant.__name__}", f": pass {kind.__name__}()"
        raise TypeError(f"variant is {what}; it must be an {kind.__name__} or None to choose{hint}")
    if make is FACTORIES[kind.op]:
        return
    check_factory(make)
    if make in FACTORIES.values():
        own = FACTORIES[kind.op].__name__
        raise TypeError(f"make is {make.__name__}; it must be a factory of this operation: {own}")


def check_factory(make):
    """Raises TypeError unless `make` can be called as a kernel factory is."""
    if not callable(make):
        raise TypeError(f"make is a {type(make).__name__}; it must be a kernel factory: make(variant, types)")
    _check_signature(make)


@lru_cache(maxsize=256)
def _check_signature(make):
    parameters = signature(make)
    try:
        parameters.bind("variant", "types")
    except TypeError:
        raise TypeError(
            f"make is {getattr(make, '__name__', make)}{parameters}; it must be a kernel factory, "
            "make(variant, types), which returns the kernel"
        ) from None
