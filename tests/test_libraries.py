"""Operands in host memory, of NumPy, SciPy, PyTorch or anybody who speaks DLPack: what comes in comes out."""

import numpy as np
import pytest
import scipy.sparse as sp
from operands import BACKENDS, A, B, check, dense, refused, sparse
from protocols import Dlpack, check_products, csr_tensor

import sparsekern as sk
from sparsekern import Csr, Topology, plan_spmm, sddmm, spmm
from sparsekern.foreign import as_csr, as_topology

LHS, RHS = dense(9, 5), dense(13, 5, seed=4)  # for the structure of A


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_tensors_give_tensors(index, backend, torch):
    a, b = csr_tensor(torch, A, index), torch.tensor(B)
    c = spmm(a, b, backend=backend)
    assert (type(c), c.dtype, c.device.type) == (torch.Tensor, torch.float32, "cpu")
    check(A, B, c)
    vector = spmm(a, b[:, 1], backend=backend)
    assert vector.shape == (9,)
    check(A, B[:, 1], vector)
    result = sddmm(a, torch.tensor(LHS), torch.tensor(RHS), backend=backend)
    assert (result.layout, result.dtype, result.shape) == (torch.sparse_csr, torch.float32, a.shape)
    assert result.col_indices().dtype == getattr(torch, index)
    check_products(A, LHS, RHS, result)
    product = spmm(result, b, backend=backend)
    check(as_csr(result), b, product)
    assert as_csr(result).topology is as_csr(a).topology


LAYOUTS = {
    "left columns": lambda b: b[:, :8],
    "unaligned columns": lambda b: b[:, 1:8],
    "transposed": lambda b: b.T.contiguous().T,
    "every other column": lambda b: b[:, ::2],
    "zero row stride": lambda b: b[:1].expand(b.shape),
    "zero column stride": lambda b: b[:, :1].expand(b.shape),
    "a column": lambda b: b[:, 5],
    "no columns": lambda b: b[:, :0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_may_have_any_layout(layout, torch):
    b = LAYOUTS[layout](torch.tensor(dense(13, 12)))
    c = spmm(A, b, backend="emulator")
    assert c.shape == (9, *b.shape[1:])
    check(A, b, c)


def test_a_tensor_that_is_negated_lazily_is_read_as_it_is_meant(torch):
    check(A, -B, spmm(A, torch._neg_view(torch.tensor(B)), backend="emulator"))
    out = torch._neg_view(torch.zeros(9, 6))
    refused(ValueError, "out is read-only", A, B, out=out)


def test_a_tensor_that_starts_between_two_addresses_of_a_float32_is_copied(torch):
    memory = bytearray(b"x" + B.tobytes())
    b = torch.frombuffer(memory, dtype=torch.float32, offset=1).reshape(B.shape)
    assert b.data_ptr() % 4
    check(A, B, spmm(A, b, backend="emulator"))


@pytest.mark.parametrize("columns", [slice(0, 6), slice(1, 7), slice(6, 12)])
def test_a_tensor_is_written_to_and_its_neighbours_stay_untouched(columns, torch):
    wide = torch.full((9, 12), 77.0)
    out = wide[:, columns]
    assert spmm(A, torch.tensor(B), out=out, backend="emulator") is out
    check(A, B, wide[:, columns])
    assert (np.delete(wide.numpy(), np.arange(12)[columns], axis=1) == 77).all()
    values = torch.full((A.nnz,), 77.0)
    result = sddmm(csr_tensor(torch, A), LHS, RHS, out=values, backend="emulator")
    assert result.values().data_ptr() == values.data_ptr()
    check_products(A, LHS, RHS, Csr(as_topology(A), values))


def test_an_unsuitable_tensor_to_write_to_is_refused(torch):
    b = torch.tensor(dense(13, 12))
    refused(ValueError, "out overlaps b", A, b[:, :6], out=b[:9, 3:9])
    refused(ValueError, "out has strides", A, b[:, :6], out=torch.zeros(6, 9).T)
    refused(TypeError, "out has dtype float64.*make it", A, b, out=torch.zeros(9, 12, dtype=torch.float64))
    refused(TypeError, "out requires gradients", A, b, out=torch.zeros(9, 12, requires_grad=True))
    with pytest.raises(TypeError, match="out is a NumPy array; to hold values of topology.*PyTorch tensor"):
        sddmm(csr_tensor(torch, A), LHS, RHS, out=np.zeros(A.nnz, np.float32), backend="emulator")


def test_gradients_are_refused_with_the_way_out_and_the_way_out_works(torch):
    a, b = csr_tensor(torch, A), torch.tensor(B, requires_grad=True)
    message = r"requires gradients.*no backward passes yet: pass {}\.detach\(\).*torch\.no_grad\(\)"
    refused(TypeError, "b " + message.format("b"), A, b)
    check(A, B, spmm(A, b.detach(), backend="emulator"))
    with torch.no_grad():
        check(A, B, spmm(A, b, backend="emulator"))
    needy = csr_tensor(torch, A).requires_grad_()
    refused(TypeError, "a " + message.format("a"), needy, B)
    check(A, B, spmm(needy.detach(), B, backend="emulator"))
    with torch.no_grad():
        check(A, B, spmm(needy, B, backend="emulator"))
    lhs, rhs = (torch.tensor(x, requires_grad=True) for x in (LHS, RHS))
    with pytest.raises(TypeError, match="lhs " + message.format("lhs")):
        sddmm(a, lhs, rhs, backend="emulator")
    with pytest.raises(TypeError, match="rhs " + message.format("rhs")):
        sddmm(a, lhs.detach(), rhs, backend="emulator")
    with torch.no_grad():
        check_products(A, LHS, RHS, sddmm(needy, lhs, rhs, backend="emulator"))


def test_the_result_of_a_computation_without_gradients_has_none(torch):
    b = torch.nn.Parameter(torch.tensor(B))
    with torch.no_grad():
        assert not spmm(A, b, backend="emulator").requires_grad


@pytest.mark.parametrize("layout", ["strided", "sparse_coo", "sparse_csc"])
def test_a_tensor_that_is_not_in_csr_is_refused_with_the_conversion_and_that_works(layout, torch):
    a = torch.tensor(A.toarray())
    if layout != "strided":
        a = a.to_sparse(layout=getattr(torch, layout))
    refused(TypeError, rf"a is a Tensor of layout torch\.{layout}; .*CSR.* a\.to_sparse_csr\(\)", a, B)
    with pytest.raises(TypeError, match=r"topology is a Tensor.*topology\.to_sparse_csr\(\)"):
        sddmm(a, LHS, RHS, backend="emulator")
    check(A, B, spmm(a.to_sparse_csr(), B, backend="emulator"))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "int32"])
def test_a_tensor_of_another_dtype_is_refused_with_the_cast_and_that_works(dtype, torch):
    a, b = csr_tensor(torch, A), torch.tensor(B)
    other = getattr(torch, dtype)
    refused(TypeError, rf"b has dtype {dtype}; .* float32: pass b\.float\(\)", a, b.to(other))
    refused(TypeError, rf"a\.values\(\) has dtype {dtype}; .* float32: pass a\.float\(\)", a.to(other), b)
    check(A, B, spmm(a.double().float(), b.double().float(), backend="emulator"))


def test_the_values_of_a_structure_to_sample_at_may_have_any_dtype(torch):
    mask = csr_tensor(torch, A).bool()
    result = sddmm(mask, torch.tensor(LHS), torch.tensor(RHS), backend="emulator")
    assert result.dtype == torch.float32
    check_products(A, LHS, RHS, result)


def test_a_batch_of_matrices_is_refused(torch):
    batch = torch.tensor(A.toarray()).expand(2, 9, 13).clone()
    batch[:] = 1  # a batch in CSR has the same number of nonzeros in each matrix
    refused(ValueError, r"a has shape \(2, 9, 13\); it must be two-dim", batch.to_sparse_csr(), B)


def test_a_sparse_matrix_in_place_of_a_dense_one_is_refused(torch):
    b = sparse(13, 6)
    tensor = csr_tensor(torch, b)
    refused(TypeError, r"b is a tensor of layout torch\.sparse_csr; .* b\.to_dense\(\)", A, tensor)
    refused(TypeError, r"b is a csr_array; .*pass b\.toarray\(\)", A, b)
    refused(TypeError, r"b is a Csr; .*pass b\.to_scipy\(\)\.toarray\(\)", A, as_csr(b))


def test_a_tensor_on_no_device_that_computes_is_refused(torch):
    refused(TypeError, "b is on meta; it must be on the CPU or a CUDA", A, torch.empty(13, 6, device="meta"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_speaks_dlpack_and_nothing_else_is_an_operand_and_gives_numpy(backend):
    for b in (B, B[:, 1:4], B[:, ::-1], B[:, 0], B.T.copy().T):
        c = spmm(A, Dlpack(b), backend=backend)
        assert type(c) is np.ndarray
        check(A, b, c)
    result = sddmm(as_topology(A), Dlpack(LHS), Dlpack(RHS), backend=backend)
    assert type(result.values) is np.ndarray
    check_products(A, LHS, RHS, result)
    a = Csr(Topology(Dlpack(A.indptr), Dlpack(A.indices), A.shape), Dlpack(A.data))
    check(A, B, spmm(a, B, backend=backend))
    c = np.zeros((9, 6), np.float32)
    out = Dlpack(c)
    assert spmm(A, B, out=out, backend=backend) is out
    check(A, B, c)


def test_what_speaks_dlpack_is_refused_like_an_array():
    refused(TypeError, "b has dtype float64", A, Dlpack(B.astype(np.float64)))
    refused(ValueError, r"b has shape \(12, 6\)", A, Dlpack(B[:12]))
    memory = dense(13, 12)
    refused(ValueError, "out overlaps b", A, Dlpack(memory[:, :6]), out=Dlpack(memory[:9, 3:9]))


def test_a_dtype_that_numpy_does_not_have_is_refused_in_words(torch):
    b = Dlpack(torch.tensor(B).bfloat16())
    refused(TypeError, "b is a Dlpack that NumPy cannot read: make it float32", A, b)


def test_the_library_of_b_decides_on_a_product_and_that_of_the_topology_on_a_matrix(torch):
    tensors = [torch.tensor(x) for x in (B, LHS, RHS)]
    assert type(spmm(A, tensors[0], backend="emulator")) is torch.Tensor
    assert type(spmm(csr_tensor(torch, A), B, backend="emulator")) is np.ndarray
    result = sddmm(A, *tensors[1:], backend="emulator")
    assert type(result) is sp.csr_array and type(result.data) is np.ndarray
    check_products(A, LHS, RHS, result)
    result = sddmm(csr_tensor(torch, A), LHS, RHS, backend="emulator")
    assert result.layout == torch.sparse_csr
    check_products(A, LHS, RHS, result)
    result = sddmm(as_topology(A), LHS, tensors[2], backend="emulator")
    assert type(result) is Csr and type(result.values) is torch.Tensor
    check_products(A, LHS, RHS, result)
    result = sddmm(sp.csr_matrix(A), LHS, tensors[2], backend="emulator")
    assert type(result) is sp.csr_matrix


def test_a_csr_of_ours_may_hold_a_tensor(torch):
    values = torch.tensor(A.data)
    a = Csr(as_topology(A), values)
    check(A, B, a @ torch.tensor(B))
    back = a.to_scipy()
    assert np.shares_memory(back.data, values.numpy())
    assert abs(back - A).max() == 0
    values *= 2
    check(2 * A, B, spmm(a, B, backend="emulator"))
    with pytest.raises(TypeError, match="values requires gradients.*values.detach"):
        Csr(as_topology(A), torch.tensor(A.data, requires_grad=True))


def test_a_plan_takes_any_library_and_gives_back_that_of_the_last_input(torch):
    plan = plan_spmm(A, B, backend="emulator")
    c = plan(A.data, torch.tensor(B))
    assert type(c) is torch.Tensor
    check(A, B, c)
    check(A, B, plan(torch.tensor(A.data), Dlpack(B)))


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_the_structure_of_a_tensor_is_wrapped_once(index, torch):
    a = csr_tensor(torch, A, index)
    topology = as_topology(a)
    assert as_topology(a) is topology and as_csr(a).topology is topology
    assert topology.columns.dtype == np.int32 and topology.offsets.dtype == np.dtype(index)
    spmm(a, B, backend="emulator")
    assert as_topology(a) is topology
    assert as_topology(csr_tensor(torch, A, index)) is not topology


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_a_structure_of_scipy_with_wide_indices_is_converted_once(index):
    a = A.copy()
    a.indptr, a.indices = a.indptr.astype(index), a.indices.astype(index)
    topology = as_topology(a)
    assert as_topology(a) is topology
    assert topology.columns.dtype == np.int32
    assert not np.shares_memory(topology.columns, a.indices)  # so that an edit in place reaches nobody


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_whoever_edits_a_structure_in_place_says_so(index, torch):
    tensor, a = csr_tensor(torch, A, index), A.copy()
    a.indptr, a.indices = a.indptr.astype(index), a.indices.astype(index)
    for matrix, columns in ((tensor, tensor.col_indices()), (a, a.indices)):
        before = as_topology(matrix)
        columns[0] = (columns[0] + 5) % 13
        assert as_topology(matrix) is before
        sk.invalidate(matrix)
        assert as_topology(matrix) is not before
        assert as_topology(matrix).columns[0] == columns[0]
        check(matrix, B, spmm(matrix, B, backend="emulator"))


def test_parts_that_are_replaced_are_noticed():
    a, other = sparse(), sparse(seed=1)
    before = as_topology(a)
    a.indices, a.indptr, a.data = other.indices, other.indptr, other.data
    assert as_topology(a) is not before
    check(other, B, spmm(a, B, backend="emulator"))
    before = as_topology(a)
    a.resize(9, 20)
    assert as_topology(a).shape == (9, 20) and as_topology(a) is not before


def test_a_matrix_that_is_gone_is_forgotten(torch):
    from sparsekern.foreign import _known

    before = set(_known)
    a = csr_tensor(torch, A)
    result = sddmm(a, LHS, RHS, backend="emulator")
    assert {id(a), id(result)} <= set(_known)
    del a, result
    assert set(_known) <= before


def test_a_masked_array_would_lose_its_mask_and_is_refused():
    refused(TypeError, "b is a MaskedArray", A, np.ma.array(B))
    with pytest.raises(TypeError, match="lhs is a MaskedArray"):
        sddmm(A, np.ma.array(LHS), RHS, backend="emulator")
    with pytest.raises(TypeError, match="values is a MaskedArray"):
        Csr(as_topology(A), np.ma.array(A.data))
