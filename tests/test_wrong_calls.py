"""The likeliest wrong calls of a newcomer: each is answered with the argument, its value, and the way out."""

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numba import cuda
from operands import A, B, dense, sparse

import sparsekern as sk
from sparsekern import Csr, EmulatorError, SddmmVariant, SpmmVariant, Topology, VariantError, without
from sparsekern.machine import backends
from sparsekern.naming import parse_variant
from sparsekern.selection.candidates import candidates
from sparsekern.study.bench_command import read_variants
from sparsekern.study.counters import count
from sparsekern.study.ladder import climb
from sparsekern.study.scaling import problems
from sparsekern.study.show import show, variant_of

LHS, RHS = dense(9, 5), dense(13, 5)  # for the structure of A
SQUARE = sparse(13, 13)


class DataFrame:
    """Stands in for that of pandas: it has a shape and becomes an array, and that is all."""

    shape = B.shape

    def __array__(self, dtype=None, copy=None):
        return B.astype(dtype)


def spmm(a=A, b=B, *positional, **options):
    return sk.spmm(a, b, *positional, backend="emulator", **options)


def sddmm(topology=A, lhs=LHS, rhs=RHS, *positional, **options):
    return sk.sddmm(topology, lhs, rhs, *positional, backend="emulator", **options)


def with_a_wrong_column():
    a = A.copy()
    a.indices[3] = 13
    return a


def misnames_a_barrier(variant, types):
    def kernel(work, offsets, columns, values, B, ldb, C, ldc, m, n, s, t, u):
        cuda.syncthread()

    return kernel


def forgets_to_return(variant, types):
    def kernel(work, offsets, columns, values, B, ldb, C, ldc, m, n, s, t, u):
        C[0] = 1


def jits(variant, types):
    return cuda.jit(sk.make_spmm(variant, types))


def takes_a_and_b(variant, types):
    def kernel(A, B, C):
        C[0] = A[0] * B[0]

    return kernel


KERNEL = sk.make_spmm(SpmmVariant(), sk.Types())
VECTORS = SpmmVariant(vector=4)

# what they did: (call, error, the argument and its value in the message, the way out)
SPARSE_CALLS = {
    "a as SciPy makes it": (
        lambda: spmm(A.astype(np.float64)), TypeError, "a.data has dtype float64", "a.astype(np.float32)",
    ),
    "a dense": (
        lambda: spmm(A.toarray()), TypeError, "a is a ndarray", "scipy.sparse.csr_array(a, dtype=np.float32)",
    ),
    "a as a list": (lambda: spmm(A.toarray().tolist()), TypeError, "a is a list", "scipy.sparse.csr_array(a"),
    "a in COO": (lambda: spmm(A.tocoo()), TypeError, "a is a coo_array", "a.tocsr()"),
    "a in CSC": (lambda: spmm(A.tocsc()), TypeError, "a is a csc_array", "a.tocsr()"),
    "a as an old matrix in COO": (
        lambda: spmm(sp.coo_matrix(A)), TypeError, "a is a coo_matrix", "a.tocsr()",
    ),
    "a without values": (
        lambda: spmm(sk.as_topology(A)), TypeError, "a is a Topology", "Csr(a, values)",
    ),
    "operands swapped": (
        lambda: spmm(B, A), TypeError, "a is a ndarray and b is in CSR", "comes first: swap them",
    ),
    "b sparse": (lambda: spmm(b=sparse(13, 6)), TypeError, "b is a csr_array", "b.toarray()"),
    "b a Csr": (
        lambda: spmm(b=sk.as_csr(sparse(13, 6))), TypeError, "b is a Csr", "b.to_scipy().toarray()",
    ),
    "topology in COO": (lambda: sddmm(A.tocoo()), TypeError, "topology is a coo_array", "topology.tocsr()"),
    "topology dense": (
        lambda: sddmm(A.toarray()), TypeError, "topology is a ndarray", "scipy.sparse.csr_array(topology",
    ),
    "lhs sparse": (
        lambda: sddmm(lhs=sparse(9, 5)), TypeError, "lhs is a csr_array", "lhs.toarray()",
    ),
    "a column out of range": (
        lambda: spmm(with_a_wrong_column()), ValueError, "columns[3] is 13", "in [0, 13)",
    ),
    "values of the wrong length": (
        lambda: Csr(sk.as_topology(A), A.data[1:]), ValueError, f"values has shape ({A.nnz - 1},)",
        f"({A.nnz},)",
    ),
    "values for a matrix": (
        lambda: Csr(A, A.data), TypeError, "topology is a csr_array", "as_topology(topology)",
    ),
    "indices of 64 bits": (
        lambda: Topology(A.indptr, A.indices.astype(np.int64), A.shape), TypeError,
        "columns has dtype int64", "columns.astype(np.int32)",
    ),
    "columns before offsets": (
        lambda: Topology(A.indices, A.indptr, A.shape), ValueError, f"offsets has {A.nnz} entries",
        "9 rows need 10",
    ),
}  # fmt: skip
DENSE_CALLS = {
    "b as NumPy makes it": (
        lambda: spmm(b=B.astype(np.float64)), TypeError, "b has dtype float64", "b.astype(np.float32)",
    ),
    "b of whole numbers": (
        lambda: spmm(b=B.astype(np.int64)), TypeError, "b has dtype int64", "b.astype(np.float32)",
    ),
    "b complex": (
        lambda: spmm(b=B.astype(np.complex64)), TypeError, "b has dtype complex64", "b.real and b.imag",
    ),
    "b a list": (
        lambda: spmm(b=B.tolist()), TypeError, "b is a list", "np.asarray(b, dtype=np.float32)",
    ),
    "b of pandas": (
        lambda: spmm(b=DataFrame()), TypeError, "b is a DataFrame", "np.asarray(b, dtype=np.float32)",
    ),
    "b forgotten": (lambda: spmm(b=None), TypeError, "b is a NoneType", "must be a dense array"),
    "b with a row too few": (lambda: spmm(b=B[:12]), ValueError, "b has shape (12, 6)", "(13,) or (13, n)"),
    "b transposed": (lambda: spmm(b=B.T), ValueError, "b has shape (6, 13)", "b.T"),
    "a batch of b": (lambda: spmm(b=np.stack([B, B])), ValueError, "b has shape (2, 13, 6)", "(13, n)"),
    "rhs as for a product": (
        lambda: sddmm(rhs=RHS.T), ValueError, "rhs has shape (5, 13)", "(13, k): pass rhs.T",
    ),
    "lhs transposed": (
        lambda: sddmm(lhs=LHS.T), ValueError, "lhs has shape (5, 9)", "(9, k): pass lhs.T",
    ),
    "lhs and rhs swapped": (
        lambda: sddmm(A, RHS, LHS), ValueError, "lhs has shape (13, 5)", "lhs and rhs are swapped",
    ),
    "lhs and rhs of unlike depth": (
        lambda: sddmm(rhs=dense(13, 4)), ValueError, "lhs has 5 columns and rhs 4", "both must have k",
    ),
    "lhs a vector": (lambda: sddmm(lhs=LHS[:, 0]), ValueError, "lhs has shape (9,)", "(9, k)"),
    "rhs forgotten": (
        lambda: sk.sddmm(A, LHS), TypeError, "missing 1 required positional argument: 'rhs'", "rhs",
    ),
    "rhs as NumPy makes it": (
        lambda: sddmm(rhs=RHS.astype(np.float64)), TypeError, "rhs has dtype float64",
        "rhs.astype(np.float32)",
    ),
    "out as NumPy makes it": (
        lambda: spmm(out=np.zeros((9, 6))), TypeError, "out has dtype float64", "make it with dtype float32",
    ),
    "out of the shape of b": (
        lambda: spmm(out=np.zeros_like(B)), ValueError, "out has shape (13, 6)", "the result has (9, 6)",
    ),
    "out in Fortran's order": (
        lambda: spmm(out=np.zeros((9, 6), np.float32, order="F")), ValueError, "out has strides (4, 36)",
        "must be row-major",
    ),
    "out the operand": (
        lambda: spmm(SQUARE, B, out=B), ValueError, "out overlaps b", "memory of its own",
    ),
    "out a matrix": (
        lambda: sddmm(out=np.zeros((9, 13), np.float32)), ValueError, "out has shape (9, 13)",
        f"the values of the result have ({A.nnz},)",
    ),
    "out sparse": (lambda: sddmm(out=A.copy()), TypeError, "out is a csr_array", "pass out.data"),
}  # fmt: skip
VARIANT_CALLS = {
    "a variant of the other operation": (
        lambda: sddmm(variant=SpmmVariant()), TypeError, "variant is a SpmmVariant",
        "must be an SddmmVariant or None",
    ),
    "a variant of the other operation, the other way round": (
        lambda: spmm(variant=SddmmVariant()), TypeError, "variant is a SddmmVariant",
        "must be an SpmmVariant or None",
    ),
    "a variant as a dict": (
        lambda: spmm(variant={"vector": 4}), TypeError, "variant is a dict", "SpmmVariant(**variant)",
    ),
    "a variant as a word": (
        lambda: spmm(variant="fast"), TypeError, "variant is a str", "must be an SpmmVariant or None",
    ),
    "the class itself": (
        lambda: spmm(variant=SpmmVariant), TypeError, "variant is the class SpmmVariant", "SpmmVariant()",
    ),
    "out where the variant belongs": (
        lambda: spmm(A, B, np.zeros((9, 6), np.float32)), TypeError, "variant is a ndarray",
        "must be an SpmmVariant or None",
    ),
    "a toggle misspelt": (
        lambda: SpmmVariant(vectors=4), VariantError, "'vectors' is no toggle of SpmmVariant",
        "but vector is; they are vector, subwarp,",
    ),
    "a toggle misspelt in a neighbour": (
        lambda: replace(SpmmVariant(), unroll_residues=True), VariantError,
        "'unroll_residues' is no toggle of SpmmVariant", "but unroll_residue is",
    ),
    "a toggle of the other operation": (
        lambda: SddmmVariant(roma=True), VariantError, "'roma' is no toggle of SddmmVariant",
        "they are vector, subwarp, tile_nnz",
    ),
    "a toggle without its name": (
        lambda: SpmmVariant(4), TypeError, "SpmmVariant takes toggles by name", "such as vector=4",
    ),
    "a value that is none": (
        lambda: SpmmVariant(vector=3), VariantError, "vector is 3", "must be one of 1, 2, 4",
    ),
    "a switch as a number": (
        lambda: SpmmVariant(stage=1), VariantError, "stage is 1", "must be one of False, True",
    ),
    "a toggle without what it builds on": (
        lambda: SpmmVariant(stage=True, roma=True), VariantError, "roma=True",
        "needs sparse_vector to be 2 or 4; it is 1",
    ),
    "half a warp": (
        lambda: SpmmVariant(subwarp=16), VariantError, "16 * 1 * 1 = 16 threads", "must be whole warps of 32",
    ),
    "vectors of 4 for 49 columns": (
        lambda: spmm(b=dense(13, 49), variant=VECTORS), VariantError, "ldb is 49",
        "pad its rows, or take a narrower vector",
    ),
    "vectors of 4 for a view": (
        lambda: spmm(b=dense(13, 12)[:, 1:9], variant=VECTORS), VariantError,
        "vector=4 needs B to start on 16 bytes; it starts on 4", "copy it, or take a narrower vector",
    ),
    "a toggle to go without that is none": (
        lambda: without(SpmmVariant(), "staging"), VariantError, "'staging' is no toggle of SpmmVariant",
        "but stage is; they are vector,",
    ),
}  # fmt: skip
KERNEL_CALLS = {
    "the kernel in place of its factory": (
        lambda: spmm(make=KERNEL), TypeError, "make is spmm(work, offsets, columns, values,",
        "make(variant, types), which returns the kernel",
    ),
    "what a factory returned, jitted": (
        lambda: spmm(make=jits), TypeError, "make returned a jitted function", "drop @cuda.jit",
    ),
    "a name for a factory": (
        lambda: spmm(make="make_spmm"), TypeError, "make is a str", "must be a kernel factory",
    ),
    "a factory that forgets to return": (
        lambda: spmm(make=forgets_to_return), TypeError, "make returned None", "must return the kernel",
    ),
    "a kernel with parameters of its own": (
        lambda: spmm(make=takes_a_and_b), TypeError, "kernel has 3 parameters, A, B, C", "13 arguments",
    ),
    "a function of cuda misnamed": (
        lambda: spmm(make=misnames_a_barrier), EmulatorError, "no cuda.syncthread;", "syncthreads",
    ),
    "the factory of the other operation": (
        lambda: spmm(make=sk.make_sddmm), TypeError, "make is make_sddmm", "make_spmm",
    ),
    "another backend": (
        lambda: sk.spmm(A, B, backend="gpu"), ValueError, "backend is 'gpu'", "must be one of cuda, emulator",
    ),
    "a backend in place of a word": (
        lambda: sk.sddmm(A, LHS, RHS, backend=True), ValueError, "backend is True", "cuda, emulator, or None",
    ),
    "a backend in capitals": (
        lambda: sk.plan_spmm(A, B, backend="CUDA"), ValueError, "backend is 'CUDA'", "one of cuda, emulator",
    ),
    "a plan without an operand": (
        lambda: sk.plan_spmm(A, B, backend="emulator")(B), TypeError, "it got 1",
        "a plan of spmm takes values, b",
    ),
    "a plan with the matrix": (
        lambda: sk.plan_spmm(A, B, backend="emulator")(A, B), TypeError, "values is a csr_array",
        "pass values.data",
    ),
    "a plan with other columns": (
        lambda: sk.plan_spmm(A, B, backend="emulator")(A.data, B[:, :4]), ValueError, "b has shape (13, 4)",
        "this plan is for (13, 6)",
    ),
    "the arguments of a plan as those of a call": (
        lambda: sk.plan_sddmm(A, LHS, RHS, backend="emulator")(A, LHS, RHS), TypeError, "it got 3",
        "a plan of sddmm takes lhs, rhs",
    ),
}  # fmt: skip
CALLS = SPARSE_CALLS | DENSE_CALLS | VARIANT_CALLS | KERNEL_CALLS


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_answered_with_the_argument_its_value_and_the_way_out(name):
    call, error, value, way_out = CALLS[name]
    with pytest.raises(error, match=re.escape(value)) as info:
        call()
    assert way_out in str(info.value)
    assert type(info.value) is error


def test_cuda_without_a_gpu_sends_one_to_the_doctor(monkeypatch):
    monkeypatch.setattr(backends, "device_backend", lambda: "emulator")
    with pytest.raises(RuntimeError, match="backend is 'cuda', but no CUDA GPU answers: .*doctor"):
        sk.spmm(A, B, backend="cuda")
    with pytest.raises(RuntimeError, match="backend is 'cuda', but no CUDA GPU answers: .*doctor"):
        sk.sddmm(A, LHS, RHS, backend="cuda")


def test_every_way_out_that_is_code_works():
    """For the operands that a newcomer brings most often, what the message says to pass is accepted."""
    wide = A.astype(np.float64)
    spmm(wide.astype(np.float32))
    spmm(sp.csr_array(wide.toarray(), dtype=np.float32))
    spmm(wide.tocoo().tocsr().astype(np.float32))
    spmm(b=np.asarray(DataFrame(), dtype=np.float32))
    spmm(b=np.asarray(B.tolist(), dtype=np.float32))
    spmm(b=np.ascontiguousarray(B.T).T)
    sddmm(rhs=np.ascontiguousarray(RHS.T).T)
    spmm(variant=SpmmVariant(**{"vector": 2}))
    spmm(Csr(sk.as_topology(A), A.data))


@pytest.mark.parametrize("values", [np.ones(A.nnz - 1, np.float32), np.ones(A.nnz + 3, np.float32)])
def test_values_that_were_resized_since_they_were_checked_are_refused(values):
    a, b = Csr(sk.as_topology(A), A.data.copy()), np.ones((A.shape[1], 4), np.float32)
    sk.spmm(a, b, backend="emulator")
    object.__setattr__(a, "values", values)  # as an array that is resized in place
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"a's values has shape \({len(values)},\); .* \({A.nnz},\)"):
            sk.spmm(a, b, backend="emulator")


OF_AN_OPERATION = {
    "check": lambda op: sk.check(op=op),
    "parse_variant": lambda op: parse_variant(op, "plain"),
    "candidates": candidates,
    "read_variants": lambda op: read_variants(op, "ladder"),
    "variant_of": lambda op: variant_of(op, "2"),
    "show": lambda op: show(op, "a", A, 8, SpmmVariant()),
    "climb": lambda op: next(climb(op, A, B, backend="emulator")),
    "count": lambda op: count(op, A, 8),
    "problems": problems,
}


@pytest.mark.parametrize("op", ["spmv", "SpMM"])
@pytest.mark.parametrize("call", OF_AN_OPERATION)
def test_an_operation_that_there_is_not_is_refused_everywhere_with_those_that_there_are(call, op):
    with pytest.raises(TypeError, match=f"op is '{op}'; it must be one of spmm, sddmm"):
        OF_AN_OPERATION[call](op)


def test_a_gpu_or_a_count_that_there_is_not_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="gpu is 'b200'; it must be one of v100, a100, h200"):
        show("spmm", "a", A, 8, SpmmVariant(), "b200")
    counted = count("spmm", A, 8)
    for counts in (counted, counted - counted):
        with pytest.raises(KeyError, match="name is 'loads'; the counts are global load instructions, "):
            counts["loads"]
