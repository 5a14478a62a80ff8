"""What sparsekern is measured against: cuSPARSE on the sparse matrix, cuBLAS on the dense one.

Both through nvmath.bindings, on the stream on which the kernels of sparsekern are timed. cuSPARSE is asked
for float32 with row-major dense matrices, and preprocesses before it is timed; cuBLAS has a workspace of
32 MiB, which is what PyTorch and NVIDIA's documentation (cublasSetWorkspace) give it on Hopper.
"""

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numba import cuda

from sparsekern.reference import tolerance
from sparsekern.study.bench import address, fill

WORKSPACE = 32 * 2**20  # bytes
EXTRA = "bench"

SPMM_ALGORITHMS = ("CSR_ALG1", "CSR_ALG2", "CSR_ALG3")
PRECISIONS = {  # column of records -> (type of operands, compute type, what rounding the operands adds)
    "dense_fp32_us": (np.float32, "COMPUTE_32F", 0.0),
    "dense_tf32_us": (np.float32, "COMPUTE_32F_FAST_TF32", 3 * 2.0**-10),  # two inputs cut to 10 bits
    "dense_fp16_us": (np.float16, "COMPUTE_32F", 4 * 2.0**-11),  # two inputs and the result rounded to 10
}
FP16_LEAST = 2.0**-11  # scales below: float16s under 2**-14 have fewer digits, so their error is absolute


class MissingLibrary(RuntimeError):
    """A library that the baselines need is not installed, or does not load."""


@dataclass(frozen=True)
class Operands:
    """Operands of one problem in host memory, float32: what `baselines` and `sparsekern` both compute with.

    a: the sparse matrix, a `Csr`. left, right: the dense operands of the dense product of the same shape,
    for SpMM A (m, k) and B (k, n), for SDDMM lhs (m, k) and rhs (n, k).
    """

    op: str
    m: int
    k: int
    n: int
    a: object
    left: np.ndarray
    right: np.ndarray

    @property
    def nnz(self):
        return self.a.topology.nnz

    @cached_property
    def rows(self):
        """(nnz,) the row of each nonzero."""
        return np.repeat(np.arange(self.m), self.a.topology.row_lengths)

    @property
    def terms(self):
        """The most terms that a sum over nonzeros has."""
        return int(self.a.topology.row_lengths.max()) if self.op == "spmm" else self.k


@dataclass(frozen=True)
class Rival:
    """A library's way to do a problem, ready to be timed.

    launch(): queues it once. result(): what it has computed, (m, n) for SpMM and (nnz,) for SDDMM, in host
    memory. tolerance: what `reference.error` may be, with scales below `least` taken as that.
    """

    launch: object
    result: object
    tolerance: float
    least: float = 0.0


class Libraries:
    """Handles of cuSPARSE and cuBLAS that work on `stream`, a Numba stream. Close when done.

    Raises MissingLibrary, with the extra of sparsekern to install, if one is not there.
    """

    def __init__(self, stream):
        self.stream, self._stack = stream, ExitStack()
        try:
            from nvmath import CudaDataType
            from nvmath.bindings import cublas, cusparse

            cuda.current_context()  # in which the libraries work
            self.sparse, self.blas = cusparse.create(), cublas.create()
        except (ImportError, RuntimeError, OSError) as error:
            raise MissingLibrary(
                f"cuSPARSE and cuBLAS are not at hand: {str(error).strip().splitlines()[0]}\n"
                f"Install them with pip install 'sparsekern[{EXTRA}]', or measure without: --no-baselines"
            ) from error
        self.cublas, self.cusparse = cublas, cusparse
        self.types = {np.float32: int(CudaDataType.CUDA_R_32F), np.float16: int(CudaDataType.CUDA_R_16F)}
        self.errors = cusparse.cuSPARSEError, cublas.cuBLASError
        self._stack.callback(cusparse.destroy, self.sparse)
        self._stack.callback(cublas.destroy, self.blas)
        cusparse.set_stream(self.sparse, int(stream))
        cublas.set_stream(self.blas, int(stream))
        self._workspace = cuda.device_array(WORKSPACE, np.uint8)
        cublas.set_workspace(self.blas, address(self._workspace), WORKSPACE)  # set_stream would unset it
        self._scalars = np.array([1, 0], np.float32)  # read by the libraries when called
        self.one, self.zero = (self._scalars[i:].ctypes.data for i in range(2))

    def close(self):
        self._stack.close()

    def versions(self):
        """{"cusparse": version, "cublas": version}"""
        return {
            "cusparse": ".".join(str(self.cusparse.get_property(part)) for part in range(3)),
            "cublas": ".".join(str(self.cublas.get_property(part)) for part in range(3)),
        }

    def rivals(self, op):
        """[(column, algorithm, prepare)]; `prepare(operands)` is a context with a `Rival`."""
        dense = [(column, "GEMM", partial(self.gemm, column)) for column in PRECISIONS]
        if op == "sddmm":
            return [("cusparse_us", "SDDMM", self.sddmm), *dense]
        return [("cusparse_us", name, partial(self.spmm, name)) for name in SPMM_ALGORITHMS] + dense

    @contextmanager
    def spmm(self, algorithm, operands):
        """cuSPARSE SpMM by "CSR_ALG1", "CSR_ALG2" or "CSR_ALG3", preprocessed."""
        lib, o = self.cusparse, operands
        with ExitStack() as stack:
            values, b = cuda.to_device(o.a.values), cuda.to_device(o.right)
            c = self._zeros(o.m * o.n, np.float32)
            a_of = self._csr(stack, o, o.k, values)
            b_of = self._matrix(stack, b, o.k, o.n)
            c_of = self._matrix(stack, c, o.m, o.n)
            plain, number = lib.Operation.NON_TRANSPOSE, lib.SpMMAlg[algorithm]
            task = (self.sparse, plain, plain, self.one, a_of, b_of, self.zero, c_of)
            task = (*task, self.types[np.float32], number)
            buffer = cuda.device_array(max(lib.sp_mm_buffer_size(*task), 1), np.uint8)
            lib.sp_mm_preprocess(*task, address(buffer))
            yield Rival(
                lambda: lib.sp_mm(*task, address(buffer)),
                lambda: c.copy_to_host().reshape(o.m, o.n),
                tolerance(o.terms),
            )

    @contextmanager
    def sddmm(self, operands):
        """cuSPARSE SDDMM, preprocessed: rhs lies as (n, k) and is transposed by the library."""
        lib, o = self.cusparse, operands
        with ExitStack() as stack:
            lhs, rhs = cuda.to_device(o.left), cuda.to_device(o.right)
            out = self._zeros(o.nnz, np.float32)
            lhs_of = self._matrix(stack, lhs, o.m, o.k)
            rhs_of = self._matrix(stack, rhs, o.n, o.k)
            out_of = self._csr(stack, o, o.n, out)
            plain, turned = lib.Operation.NON_TRANSPOSE, lib.Operation.TRANSPOSE
            task = (self.sparse, plain, turned, self.one, lhs_of, rhs_of, self.zero, out_of)
            task = (*task, self.types[np.float32], lib.SDDMMAlg.DEFAULT)
            size = np.zeros(1, np.uint64)
            lib.sddmm_buffer_size(*task, size.ctypes.data)
            buffer = cuda.device_array(max(int(size[0]), 1), np.uint8)
            lib.sddmm_preprocess(*task, address(buffer))
            yield Rival(lambda: lib.sddmm(*task, address(buffer)), out.copy_to_host, tolerance(o.k))

    @contextmanager
    def gemm(self, column, operands):
        """cuBLAS on dense matrices, in the precision of a column of PRECISIONS.

        cuBLAS is column-major, which sees a row-major matrix as its transpose: it is asked for the
        transpose of the product, right operand first.
        """
        lib, o = self.cublas, operands
        dtype, compute, rounding = PRECISIONS[column]
        left, right = (cuda.to_device(_bits(x, dtype)) for x in (o.left, o.right))
        c, kind = self._zeros(o.m * o.n, dtype), self.types[dtype]
        turn, ld = (lib.Operation.N, o.n) if o.op == "spmm" else (lib.Operation.T, o.k)
        task = (self.blas, turn, lib.Operation.N, o.n, o.m, o.k, self.one, address(right), kind, ld)
        task = (*task, address(left), kind, o.k, self.zero, address(c), kind, o.n)
        task = (*task, lib.ComputeType[compute], lib.GemmAlgo.DEFAULT)

        def result():
            dense = c.copy_to_host().view(dtype).reshape(o.m, o.n)
            return dense if o.op == "spmm" else dense[o.rows, o.a.topology.columns]

        least = FP16_LEAST if dtype is np.float16 else 0.0
        yield Rival(lambda: lib.gemm_ex(*task), result, rounding + tolerance(o.k), least)

    def _csr(self, stack, o, columns, values):
        """A descriptor of the sparse matrix, (m, columns), with device `values`; `stack` destroys it."""
        lib, t = self.cusparse, o.a.topology
        structure = [cuda.to_device(x.astype(np.int32)) for x in (t.offsets, t.columns)]
        stack.callback(structure.clear)  # which keeps them until then
        index, start = lib.IndexType.INDEX_32I, lib.IndexBase.ZERO
        at = (*map(address, structure), address(values))
        made = lib.create_csr(o.m, columns, o.nnz, *at, index, index, start, self.types[np.float32])
        stack.callback(lib.destroy_sp_mat, made)
        return made

    def _matrix(self, stack, array, rows, columns):
        lib = self.cusparse
        kind, order = self.types[np.float32], lib.Order.ROW
        made = lib.create_dn_mat(rows, columns, columns, address(array), kind, order)
        stack.callback(lib.destroy_dn_mat, made)
        return made

    def _zeros(self, elements, dtype):
        array = cuda.device_array(elements, np.uint16 if dtype is np.float16 else dtype)
        fill(array, 0, self.stream)
        return array


def _bits(x, dtype):
    """`x` rounded to dtype; float16 as uint16, since here only its address counts."""
    return x.astype(np.float16).view(np.uint16) if dtype is np.float16 else x
