"""The operands of `spmm` and `sddmm`: what is asked of them, and how the kernels get to read them."""

from sparsekern.libraries import float32_view, view


def check_spmm(topology, b, out):
    """Raises ValueError unless b, and out if there is one, have shapes and strides for `spmm`: `View`s.

    out must be writeable and aligned, too.
    """
    m, k = topology.shape
    if len(b.shape) not in (1, 2) or b.shape[0] != k:
        hint = ": pass b.T" if len(b.shape) == 2 and b.shape[1] == k else ""
        raise ValueError(
            f"b has shape {b.shape}; for a of shape {topology.shape} it must be ({k},) or ({k}, n){hint}"
        )
    if out is not None:
        _check_output(out, (m, *b.shape[1:]))
        columns = out.as_columns()
        if columns.leading_dimension() is None:
            raise ValueError(
                f"out has strides {columns.strides}; it must be row-major with columns one element apart"
            )


def check_sddmm(topology, lhs, rhs, out, library):
    """The same for `sddmm`. TypeError for an out that a matrix of `library`, if not None, cannot hold."""
    m, n = topology.shape
    inputs = ("lhs", lhs, m), ("rhs", rhs, n)
    swapped = [seen.shape[:1] for _, seen, _ in inputs] == [(n,), (m,)]
    for name, seen, length in inputs:
        if len(seen.shape) != 2 or seen.shape[0] != length:
            turned = len(seen.shape) == 2 and seen.shape[1] == length
            hint = ": lhs and rhs are swapped" if swapped else f": pass {name}.T" if turned else ""
            raise ValueError(
                f"{name} has shape {seen.shape}; for a topology of shape {topology.shape} it must be "
                f"({length}, k){hint}"
            )
    if lhs.shape[1] != rhs.shape[1]:
        raise ValueError(
            f"lhs has {lhs.shape[1]} columns and rhs {rhs.shape[1]}; both must have k: row i of lhs meets "
            "row j of rhs"
        )
    if out is not None:
        _check_output(out, (topology.stored,), "the values of the result have")
        if not out.contiguous:
            raise ValueError(f"out has strides {out.strides}; it must be contiguous")
        if library not in (None, out.library):
            raise TypeError(
                f"out is {out.library.article}; to hold values of topology it must be {library.article}"
            )


def output_view(out):
    """The `View` of an `out=` argument, or None. Raises TypeError unless it is an array of float32."""
    return None if out is None else float32_view("out", out, "make it with dtype float32")


def _check_output(out, shape, result="the result has"):
    if out.shape != shape:
        raise ValueError(f"out has shape {out.shape}; {result} {shape}")
    if not out.writeable:
        raise ValueError("out is read-only; it must be writeable")
    if not out.aligned:
        raise ValueError(
            f"out has address {out.address} and strides {out.strides}; all must be multiples of "
            f"{out.itemsize}"
        )


def check_apart(out, inputs, topology):
    """Raises ValueError if out shares memory with what the kernel reads, inputs being {name: `View`}.

    Addresses tell, which are no part of a fingerprint: ask at every call.
    """
    others = dict(inputs)
    if out.device is None:  # where the arrays of the topology are
        others["the structure's columns"] = view("columns", topology.columns)
        others["the structure's offsets"] = view("offsets", topology.offsets)
    for name, other in others.items():
        if out.overlaps(other):
            raise ValueError(f"out overlaps {name} in memory; it must have memory of its own")


def readable(inputs):
    """(views of {name: `View`} in layouts that kernels read, the names of those that had to be copied)."""
    views, copied = [], []
    for name, seen in inputs.items():
        if not (seen.contiguous if len(seen.shape) == 1 else seen.leading_dimension()):
            copy = view(name, seen.library.contiguous(name, seen.array))
            seen = copy if len(seen.shape) == 1 else copy.as_columns()
            copied.append(name)
        views.append(seen)
    return tuple(views), tuple(copied)
