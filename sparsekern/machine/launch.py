"""From a kernel factory to a launch: backends, the compile cache, plans."""

import sys
import warnings
from functools import cache, cached_property, lru_cache

import numpy as np
from numba import cuda, from_dtype, int32, int64, types, void

from sparsekern.formats import check_float32, check_values
from sparsekern.machine.emulator import emulate
from sparsekern.problem import alignment, leading_dimension, reach

BACKENDS = ("cuda", "emulator")
OUTPUT = 6  # position of C among the arguments of a kernel


@cache
def device_backend():
    """ "cuda" where a CUDA GPU answers, otherwise "emulator"; looked up once."""
    return "cuda" if cuda.is_available() else "emulator"


@cache
def _say_emulator():
    depth = 1
    while sys._getframe(depth).f_globals.get("__name__", "").startswith("sparsekern"):
        depth += 1
    warnings.warn(
        "no CUDA GPU answers: kernels run on the emulator, exact but thousands of times slower "
        "(python -m sparsekern doctor says more)",
        RuntimeWarning,
        stacklevel=depth + 1,
    )


def backend():
    """Where kernels run unless told otherwise: "cuda" or "emulator"."""
    return resolve_backend(None)


def resolve_backend(wanted):
    """The backend for a `backend=` argument. Says once if it is the emulator only for want of a GPU.

    Raises ValueError for an unknown one, RuntimeError for "cuda" without a GPU.
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
def make_kernel(make, variant, dtypes):
    """The kernel function of factory `make`, made once. Raises TypeError if it returns no function."""
    function = make(variant, dtypes)
    if not callable(function):
        raise TypeError(f"make returned {function!r}; it must return the kernel, a function")
    return function


def spmm_signature(dtypes):
    """The Numba signature of an SpMM kernel for `dtypes` (a `Types`): what a factory's kernel must accept."""
    names = (dtypes.index, dtypes.offset, dtypes.index, dtypes.values, dtypes.dense, dtypes.out)
    order, offsets, columns, values, b, c = (types.Array(from_dtype(np.dtype(n)), 1, "C") for n in names)
    strides = (int64, int64, int64)
    return void(order, offsets, columns, values, b, int64, c, int64, int32, int32, *strides)


@lru_cache(maxsize=256)
def _compile(make, variant, dtypes, device):
    signature = spmm_signature(dtypes)
    return cuda.jit(signature, launch_bounds=variant.threads)(make_kernel(make, variant, dtypes))


def flat(array, ld, reach):
    """The memory of row-major `array` from its first element on, `reach` elements, as one dimension."""
    writeable = array.flags.writeable
    return np.lib.stride_tricks.as_strided(array, (reach,), (array.itemsize,), writeable=writeable)


class Plan:
    """A kernel chosen and made ready for one topology and one layout of operands.

    `plan(values, b)` runs it on any operands of that layout. values: (stored,) float32, contiguous.
    b: (k, n) float32, row-major with leading dimension `problem.ldb`. out: (m, n) likewise with
    `problem.ldc`. Raises TypeError or ValueError for others, before any launch.
    """

    def __init__(self, topology, problem, variant, make, backend, reason="asked for", copied=()):
        self.topology, self.problem, self.variant = topology, problem, variant
        self.make, self.backend, self.reason, self.copied = make, backend, reason, copied
        self.grid, self.block = variant.grid(problem), variant.block

    def __call__(self, values, b, out=None):
        arrays, out = self._arrays(values, b, out)
        if 0 not in self.grid:
            run = self._emulate if self.backend == "emulator" else self._run_on_device
            run(*arrays, out)
        return out

    def count(self, values, b, out=None):
        """(out, `Counts`) of a run on the emulator."""
        arrays, out = self._arrays(values, b, out)
        return out, self._emulate(*arrays, out)

    def launch(self, values, b, c, stream=0):
        """Queues the kernel on flat device arrays, and nothing else: no copy, no wait."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*Grid size")  # a small problem has a small grid
            configured = self.kernel[self.grid, self.block, stream]
        configured(*self.arguments(values, b, c, self.structure_on_device))

    @cached_property
    def function(self):
        """The kernel function, as its factory made it."""
        return make_kernel(self.make, self.variant, self.problem.types)

    @cached_property
    def kernel(self):
        """The compiled kernel, a Numba dispatcher for the current device."""
        return _compile(self.make, self.variant, self.problem.types, cuda.get_current_device().id)

    @cached_property
    def structure(self):
        """(row order, row offsets, columns); the order is empty for a variant that does not swizzle."""
        t, v = self.topology, self.variant
        swizzles = v.bundle or v.bin
        order = t.row_order(v.bundle, v.bin, v.rows_per_block) if swizzles else t.columns[:0]
        return order, t.offsets, t.columns

    @cached_property
    def structure_on_device(self):
        """The same on the current device, shared by all plans of this topology."""
        v, device = self.variant, cuda.get_current_device().id
        names = ("order", v.bundle, v.bin, v.rows_per_block), "offsets", "columns"
        return tuple(
            self.topology.derive((device, name), lambda array=array: _to_device(array))
            for name, array in zip(names, self.structure, strict=True)
        )

    def _arrays(self, values, b, out):
        """(values, b), checked and flat; and `out`, checked, made if there is none."""
        p = self.problem
        if out is None:
            out = np.empty((p.m, p.ldc), p.types.out)[:, : p.n]
        check_values("values", values, self.topology)
        if not values.flags.c_contiguous:
            raise ValueError(f"values has strides {values.strides}; a plan needs it contiguous")
        check_float32("b", b)
        check_float32("out", out)
        self._check_layout("b", b, (p.k, p.n), p.ldb)
        self._check_layout("out", out, (p.m, p.n), p.ldc)
        if not out.flags.writeable:
            raise ValueError("out is read-only; it must be writeable")
        if reach(b, p.ldb) < p.reach_b:
            raise ValueError(
                f"b has memory for {reach(b, p.ldb)} elements from its first on; this plan reads {p.reach_b}"
            )
        self._check_alignments(values=values, columns=self.topology.columns, b=b, c=out)
        return (values, flat(b, p.ldb, p.reach_b)), out

    def _check_layout(self, name, array, shape, ld):
        single = array.size == 0 or shape[0] == 1  # then no row follows at a distance of ld
        if array.shape != shape or (leading_dimension(array) != ld and not single):
            raise ValueError(
                f"{name} has shape {array.shape} and strides {array.strides}; this plan is for "
                f"{shape} with leading dimension {ld}"
            )

    def _check_alignments(self, **arrays):
        if self.backend == "cuda":  # whose copies are aligned
            return
        for name, array in arrays.items():
            needed = getattr(self.problem, f"align_{name}")
            if alignment(array) < needed:
                raise ValueError(
                    f"{name} starts on {alignment(array)} bytes; this plan is for {needed}: plan again"
                )

    def arguments(self, values, b, c, structure=None):
        """What the kernel is called with, for flat `values`, `b` and `c`."""
        p = self.problem
        return (*(structure or self.structure), values, b, p.ldb, c, p.ldc, p.m, p.n, 0, 0, 0)

    @property
    def c_size(self):
        """Elements from the first of C to its last."""
        p = self.problem
        return (p.m - 1) * p.ldc + p.n if p.m and p.n else 0

    def _emulate(self, values, b, out):
        c = np.full(self.c_size, np.nan, out.dtype)  # what the kernel fails to write shows
        inputs = [_read_only(x) if isinstance(x, np.ndarray) else x for x in self.arguments(values, b, c)]
        inputs[OUTPUT] = c
        counts = emulate(self.function, self.grid, self.block, inputs, outputs=(OUTPUT,))
        self._copy_out(c, out)
        return counts

    def _run_on_device(self, values, b, out):
        c = cuda.device_array(self.c_size, out.dtype)
        self.launch(_to_device(values), _to_device(b), c)
        self._copy_out(c.copy_to_host(), out)

    def _copy_out(self, c, out):
        strides = (self.problem.ldc * c.itemsize, c.itemsize)
        out[...] = np.lib.stride_tricks.as_strided(c, out.shape, strides)

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
            registers = self.kernel.get_regs_per_thread()
            lines.append("registers per thread: " + ", ".join(map(str, registers.values())))
        return "\n".join(lines)


def _read_only(array):
    view = array.view()
    view.flags.writeable = False
    return view


def _to_device(array):
    if array.size == 0:  # a kernel argument needs an address, though nothing will be read there
        return cuda.device_array(1, array.dtype)
    return cuda.to_device(array)
