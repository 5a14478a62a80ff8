"""From a kernel factory to a launch: backends, the compile cache, plans."""

import warnings
from functools import cache, lru_cache

import numpy as np
from numba import cuda
from numba.core.errors import NumbaPerformanceWarning

from sparsekern.machine.emulator import emulate
from sparsekern.problem import leading_dimension

BACKENDS = ("cuda", "emulator")

warnings.filterwarnings("ignore", "Grid size", NumbaPerformanceWarning)  # small problems have small grids


@cache
def device_backend():
    """ "cuda" where a CUDA GPU answers, otherwise "emulator"; looked up once."""
    return "cuda" if cuda.is_available() else "emulator"


@cache
def _say_emulator():
    warnings.warn(
        "no CUDA GPU answers: kernels run on the emulator, exact but thousands of times slower "
        "(python -m sparsekern doctor says more)",
        RuntimeWarning,
        stacklevel=5,
    )


def backend(wanted=None):
    """The backend that runs kernels: "cuda" or "emulator". Says once if it is the emulator for want of a GPU.

    Raises ValueError for an unknown `wanted`, RuntimeError for "cuda" without a GPU.
    """
    if wanted is None:
        if device_backend() == "emulator":
            _say_emulator()
        return device_backend()
    if wanted not in BACKENDS:
        raise ValueError(f"backend is {wanted!r}; it must be one of {', '.join(BACKENDS)}, or None to choose")
    if wanted == "cuda" and device_backend() != "cuda":
        raise RuntimeError("backend is 'cuda', but no CUDA GPU answers: see python -m sparsekern doctor")
    return wanted


@cache
def resident_warps(backend):
    """How many warps the GPU holds at once; 0 on the emulator, which runs one block after another."""
    if backend == "emulator":
        return 0
    device = cuda.get_current_device()
    return device.MULTIPROCESSOR_COUNT * device.MAX_THREADS_PER_MULTIPROCESSOR // 32


@lru_cache(maxsize=256)
def kernel(make, variant, types):
    """The kernel function of factory `make`, made once."""
    return make(variant, types)


@lru_cache(maxsize=256)
def compiled(make, variant, types):
    """The same as a Numba dispatcher, which compiles for the current device at its first launch."""
    return cuda.jit(kernel(make, variant, types))


def flat(array, ld, reach):
    """The memory of row-major `array` from its first element on, `reach` elements, as one dimension."""
    writeable = array.flags.writeable
    return np.lib.stride_tricks.as_strided(array, (reach,), (array.itemsize,), writeable=writeable)


class Plan:
    """A kernel chosen and made ready for one topology and one layout of operands.

    `plan(values, b)` runs it on any operands of that layout. values: (stored,) float32. b: (k, n)
    float32, row-major with leading dimension `problem.ldb`. out: (m, n) likewise with `problem.ldc`.
    """

    def __init__(self, topology, problem, variant, make, backend, reason="asked for", copied=()):
        self.topology, self.problem, self.variant = topology, problem, variant
        self.make, self.backend, self.reason, self.copied = make, backend, reason, copied
        self.grid, self.block = variant.grid(problem), variant.block
        order = topology.columns[:0]
        if variant.bundle or variant.bin:
            order = topology.row_order(variant.bundle, variant.bin, variant.rows_per_block)
        self.structure = (order, topology.offsets, topology.columns)
        self.counts = None  # of the last run, on the emulator
        if backend == "cuda":
            self.structure = tuple(map(_to_device, self.structure))

    def __call__(self, values, b, out=None, stream=0):
        p = self.problem
        if out is None:
            out = np.empty((p.m, p.ldc), p.types.out)[:, : p.n]
        self._check_layout("b", b, (p.k, p.n), p.ldb)
        self._check_layout("out", out, (p.m, p.n), p.ldc)
        flat_b = flat(b, p.ldb, p.reach_b)
        flat_c = flat(out, p.ldc, (p.m - 1) * p.ldc + p.n if p.m and p.n else 0)
        if self.blocks:
            run = self._run_on_device if self.backend == "cuda" else self._run_on_emulator
            run(values, flat_b, flat_c, out, stream)
        return out

    @property
    def blocks(self):
        x, y, z = self.grid
        return x * y * z

    def arguments(self, values, b, c):
        """What the kernel is called with, for flat arrays on the backend."""
        p = self.problem
        return (*self.structure, values, b, p.ldb, c, p.ldc, p.m, p.n, 0, 0, 0)

    def launch(self, values, b, c, stream=0):
        """Queues the kernel on flat device arrays, and nothing else: no copy, no wait."""
        run = compiled(self.make, self.variant, self.problem.types)
        run[self.grid, self.block, stream](*self.arguments(values, b, c))

    def _run_on_emulator(self, values, b, c, out, stream):
        function = kernel(self.make, self.variant, self.problem.types)
        self.counts = emulate(function, self.grid, self.block, self.arguments(values, b, c), outputs=("C",))

    def _run_on_device(self, values, b, c, out, stream):
        device_c = cuda.device_array(c.shape, c.dtype, stream=stream)
        self.launch(_to_device(values, stream), _to_device(b, stream), device_c, stream)
        result = device_c.copy_to_host(stream=stream)
        if stream:
            stream.synchronize()
        p = self.problem
        out[...] = np.lib.stride_tricks.as_strided(result, (p.m, p.n), (p.ldc * c.itemsize, c.itemsize))

    def _check_layout(self, name, array, shape, ld):
        single = array.size == 0 or shape[0] == 1  # then no row follows at a distance of ld
        if array.shape != shape or (leading_dimension(array) != ld and not single):
            raise ValueError(
                f"{name} has shape {array.shape} and strides {array.strides}; this plan is for "
                f"{shape} with leading dimension {ld}"
            )

    def explain(self):
        """Which kernel runs, with which toggles and why, and on what grid."""
        p, v = self.problem, self.variant
        lines = [
            f"{p.op}: ({p.m} x {p.k}, {p.nnz} nonzeros, {p.sparsity:.1%} sparse) @ ({p.k} x {p.n}), "
            f"ldb {p.ldb}, ldc {p.ldc}, on {self.backend}",
            f"kernel: {self.make.__module__}.{self.make.__qualname__}",
            f"variant: {v}",
            f"why: {self.reason}",
            f"grid {self.grid}, block {self.block} = {v.threads} threads, "
            f"{v.shared_bytes} bytes of shared memory, tile {v.tile_n} columns",
        ]
        if self.copied:
            lines.append(f"copied to contiguous memory on each call: {' and '.join(self.copied)}")
        if self.backend == "cuda":
            registers = compiled(self.make, v, p.types).get_regs_per_thread()
            lines.append(
                "registers per thread: " + (", ".join(map(str, registers.values())) or "not compiled yet")
            )
        return "\n".join(lines)


def _to_device(array, stream=0):
    if array.size == 0:  # a kernel argument needs an address, though nothing will be read there
        return cuda.device_array(1, array.dtype, stream=stream)
    return cuda.to_device(array, stream=stream)
