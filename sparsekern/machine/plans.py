"""The plans of the operations: what each kernel is called with."""

from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import as_strided

from sparsekern.machine.launch import Plan
from sparsekern.problem import Layout


class SpmmPlan(Plan):
    """C = A @ B. values: (stored,), contiguous. b: (k, n). Result: (m, n), rows `problem.c.ld` apart.

    A vector is a matrix of one column here: pass `b[:, None]`.
    """

    inputs = "values", "b"
    output = 6

    def _structure(self, topology):
        return (_work(topology, self.variant), ("offsets", topology.offsets), ("columns", topology.columns))

    @cached_property
    def layouts(self):
        p = self.problem
        return {"values": ((self.stored,), p.values), "b": ((p.k, p.n), p.b), "out": ((p.m, p.n), p.c)}

    def arguments(self, structure, values, b, c):
        p = self.problem
        return (*structure, values, b, p.b.ld, c, p.c.ld, p.m, p.n, 0, 0, 0)

    def new_output(self, library, device):
        p = self.problem
        new = library.new((p.m, p.c.ld), device)
        return new if p.c.ld == p.n else new[:, : p.n]

    def _owned(self):
        p = self.problem
        return np.arange(self.result_size) % p.c.ld < p.n

    def _copy_out(self, result, out):
        rows = self.problem.c.ld * result.itemsize
        target = as_strided(out.array, out.shape, out.strides)  # which may be a vector as one column
        target[...] = as_strided(result, out.shape, (rows, result.itemsize))

    def title(self):
        p = self.problem
        return (
            f"spmm: ({p.m} x {p.k}, {p.nnz} nonzeros, {p.sparsity:.1%} sparse) @ ({p.k} x {p.n}), "
            f"ldb {p.b.ld}, ldc {p.c.ld}"
        )


class SddmmPlan(Plan):
    """Products at the nonzeros of a topology. lhs: (m, k). rhs: (n, k). Result: (stored,), contiguous."""

    inputs = "lhs", "rhs"
    output = 7

    def _structure(self, topology):
        return (_work(topology, self.variant), ("offsets", topology.offsets), ("columns", topology.columns))

    @cached_property
    def layouts(self):
        p = self.problem
        out = Layout(align=4, reach=self.stored)
        return {"lhs": ((p.m, p.k), p.lhs), "rhs": ((p.n, p.k), p.rhs), "out": ((self.stored,), out)}

    def arguments(self, structure, lhs, rhs, out):
        p = self.problem
        positions = p.rows.strips_of(self.variant.tile_nnz) if self.variant.work == "strips" else p.m
        return (*structure, lhs, p.lhs.ld, rhs, p.rhs.ld, out, positions, p.k, 0, 0, 0)

    def new_output(self, library, device):
        owns_all = self.stored == self.problem.nnz
        return library.new((self.stored,), device, zero=not owns_all)  # 0 where the topology owns nothing

    def _owned(self):
        owned = np.zeros(self.stored, bool)
        owned[self.owned] = True
        return owned

    def _copy_out(self, result, out):
        out.array[self.owned] = result[self.owned]

    def title(self):
        p = self.problem
        return (
            f"sddmm: ({p.m} x {p.k}) times ({p.n} x {p.k}) transposed, at {p.nnz} nonzeros "
            f"({p.sparsity:.1%} sparse), leading dimensions {p.lhs.ld} and {p.rhs.ld}"
        )


PLANS = {"spmm": SpmmPlan, "sddmm": SddmmPlan}


def _work(topology, variant):
    """(key, array): the list of work that a kernel reads, flat; empty for a variant that reads offsets."""
    v = variant
    order = v.bundle, v.bin, v.rows_per_block
    if getattr(v, "work", None) == "strips":
        order = v.tile_nnz, v.by_column, *order
        return ("strip list", *order), topology.strip_list(*order).reshape(-1)
    if v.bundle or v.bin:
        return ("row list", *order), topology.row_list(*order).reshape(-1)
    return "no list", np.empty(0, np.int64)
