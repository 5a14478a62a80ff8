"""Operands on a second device, and how long the copies of a structure live on one."""

import gc
import weakref

import numpy as np
import pytest
from numba import cuda
from on_device import LHS, LIBRARIES, PUT, RHS, csr_on_device, cupy_or_skip, host, torch_or_skip
from operands import A, B, check, dense, sparse
from protocols import CudaArrayInterface, Dlpack, check_products

from sparsekern import Csr, Topology
from sparsekern.foreign import as_topology
from sparsekern.ops import plan_sddmm, plan_spmm, sddmm, spmm

pytestmark = pytest.mark.gpu


@pytest.fixture
def two_devices():
    if len(cuda.gpus) < 2:
        pytest.skip("needs two GPUs")


def on_device(library, number):
    """A context in which new arrays of that library lie on that device, if they do not say where."""
    if library == "cupy":
        return cupy_or_skip().cuda.Device(number)
    return torch_or_skip().cuda.device(number)


def device_of(x):
    return x.device.index if hasattr(x.device, "index") else x.device.id


@pytest.mark.parametrize("library", LIBRARIES)
def test_operands_on_another_device_are_computed_with_there(library, two_devices):
    with on_device(library, 1):
        a, (b, lhs, rhs) = csr_on_device(library), map(PUT[library], (B, LHS, RHS))
        transposed = PUT[library](np.ascontiguousarray(B.T)).T
    assert device_of(b) == 1
    for operand in (b, transposed):
        c = spmm(a, operand)
        assert device_of(c) == 1
        check(A, B, host(c))
    result = sddmm(a, lhs, rhs)
    if library == "torch":
        parts = result.values(), result.col_indices(), result.crow_indices()
    else:
        parts = result.data, result.indices, result.indptr
    assert [device_of(part) for part in parts] == [1, 1, 1]
    check_products(A, LHS, RHS, result)
    part = Topology(A.indptr[3:], A.indices, (6, 13))
    values = sddmm(part, lhs[3:], rhs).values
    assert device_of(values) == 1
    check_products(part, LHS[3:], RHS, Csr(part, values))
    assert "on cuda:1" in plan_spmm(a, b).explain()
    assert device_of(PUT[library](B)) == 0 and cuda.get_current_device().id == 0
    check(A, B, host(spmm(Csr(as_topology(a), PUT[library](A.data)), PUT[library](B))))  # the same structure


@pytest.mark.parametrize("wrap", [CudaArrayInterface, Dlpack])
def test_what_speaks_a_protocol_on_another_device_is_computed_with_there(wrap, two_devices, cupy):
    with cupy.cuda.Device(1):
        values, b = cupy.asarray(A.data), cupy.asarray(B)
    c = spmm(Csr(as_topology(A), wrap(values)), wrap(b))
    with cupy.cuda.Device(1):  # or CuPy would copy
        result = cupy.asarray(c)
        assert result.device.id == 1
        check(A, B, host(result))


@pytest.mark.parametrize("library", LIBRARIES)
def test_operands_on_two_devices_are_refused(library, two_devices):
    with on_device(library, 1):
        b, rhs = PUT[library](B), PUT[library](RHS)
    with pytest.raises(ValueError, match="a's values in cuda:0 and b in cuda:1; move one"):
        spmm(csr_on_device(library), b)
    with pytest.raises(ValueError, match="topology in cuda:0 and rhs in cuda:1; move one"):
        sddmm(csr_on_device(library), PUT[library](LHS), rhs)
    with pytest.raises(ValueError, match="lhs in cuda:0 and rhs in cuda:1; move one"):
        sddmm(as_topology(A), PUT[library](LHS), rhs)


@pytest.mark.parametrize("foreign", [False, True], ids=["topology", "matrix of CuPy"])
def test_copies_of_a_structure_on_a_device_go_with_it(foreign, cupy):
    b, lhs, rhs = cupy.asarray(B), cupy.asarray(LHS), cupy.asarray(RHS)
    if foreign:
        a = topology = csr_on_device("cupy")
    else:
        topology = Topology(A.indptr.copy(), A.indices.copy(), A.shape)
        a = Csr(topology, cupy.asarray(A.data))
    spmm(a, b)
    sddmm(topology, lhs, rhs)
    plans = plan_spmm(a, b), plan_sddmm(topology, lhs, rhs)
    copies = [weakref.ref(array) for plan in plans for array in plan.on_device]
    assert len(copies) == 3 + 3
    assert all(copy() is not None for copy in copies)
    del a, topology, plans
    gc.collect()
    assert [copy() for copy in copies] == [None] * len(copies)


def test_a_device_copy_of_a_structure_is_shared_by_plans(cupy):
    t = as_topology(sparse())
    one, other = (plan_spmm(Csr(t, cupy.asarray(A.data)), cupy.asarray(dense(13, n))) for n in (6, 7))
    assert one is not other
    assert one.on_device[-1] is other.on_device[-1] and one.on_device[-2] is other.on_device[-2]
