"""From a kernel factory to a launch: the compile cache, and plans."""

from abc import ABC, abstractmethod
from functools import cache, cached_property, lru_cache, partial
from typing import ClassVar

import numpy as np
from numba import cuda, from_dtype, int32, int64, types, void

from sparsekern.libraries import FLOAT32, float32_view, view
from sparsekern.machine.backends import check_one_place
from sparsekern.machine.emulator import emulate


@lru_cache(maxsize=256)
def make_kernel(make, variant, dtypes):
    """The kernel function of factory `make`, made once. Raises TypeError if it returns no function."""
    function = make(variant, dtypes)
    if not callable(function):
        raise TypeError(f"make returned {function!r}; it must return the kernel, a function")
    if hasattr(function, "py_func"):
        raise TypeError("make returned a jitted function; it must return a plain one: drop @cuda.jit")
    return function


def _vectors(*names):
    return (types.Array(from_dtype(np.dtype(name)), 1, "C") for name in names)


def spmm_signature(dtypes):
    """The Numba signature of an SpMM kernel for `dtypes` (a `Types`): what a factory's kernel must accept."""
    t = dtypes
    work, offsets, columns, values, b, c = _vectors("int64", t.offset, t.index, t.values, t.dense, t.out)
    return void(work, offsets, columns, values, b, int64, c, int64, int32, int32, int64, int64, int64)


def sddmm_signature(dtypes):
    """The same of an SDDMM kernel."""
    t = dtypes
    work, offsets, columns = _vectors("int64", t.offset, t.index)
    lhs, rhs, out = _vectors(t.dense, t.dense, t.out)
    sizes = (int64, int32, int64, int64, int64)
    return void(work, offsets, columns, lhs, int64, rhs, int64, out, *sizes)


SIGNATURES = {"spmm": spmm_signature, "sddmm": sddmm_signature}


@lru_cache(maxsize=256)
def compile_kernel(make, variant, dtypes, device):
    """The kernel compiled for a CUDA device, the current one, and loaded there: a Numba dispatcher, once."""
    signature = SIGNATURES[variant.op](dtypes)
    return cuda.jit(signature, launch_bounds=variant.threads)(make_kernel(make, variant, dtypes))


class Plan(ABC):
    """A kernel chosen and made ready for one topology and one layout of operands.

    `plan(*inputs)` runs it on any inputs of that layout, in host memory or on `plan.device`, and returns a
    new array of the kind of the last one, or `out`, which may share no memory with them. stream: a stream of
    Numba, CuPy or PyTorch, or a handle; None is the current one of the library of the last input, which
    waits for what libraries of other operands have queued, as they wait for the kernel. Raises TypeError or
    ValueError for other operands, before any launch.
    """

    inputs: ClassVar[tuple]  # their names
    output: ClassVar[int]  # position of the result among the arguments of the kernel

    def __init__(self, topology, problem, variant, make, backend, device, reason="asked for", copied=()):
        self.problem, self.variant, self.make = problem, variant, make
        self.backend, self.device, self.reason, self.copied = backend, device, reason, copied
        self.stored, self.owned = topology.stored, topology.owned
        self.grid, self.block = variant.grid(problem), variant.block
        # Arrays and not the topology, which holds its plans: a cycle would keep device memory.
        keyed = self._structure(topology)
        self.structure = tuple(_read_only(array) for _, array in keyed)
        self.on_device, self._fit = None, None  # fingerprints of the last operands that passed the checks
        if backend == "cuda":
            with cuda.gpus[device]:
                copy = _driver().uploaded
                self.on_device = tuple(topology.derive((key, device), partial(copy, x)) for key, x in keyed)

    @abstractmethod
    def _structure(self, topology):
        """((key, array), ...): what the kernel reads of the topology, as it reads it."""

    @property
    @abstractmethod
    def layouts(self):
        """{name of an input or "out": (shape, Layout)}"""

    @abstractmethod
    def arguments(self, structure, *arrays):
        """What the kernel is called with, for flat inputs and output."""

    @abstractmethod
    def title(self):
        """The operation and its sizes."""

    def __call__(self, *inputs, out=None, stream=None):
        inputs, seen = self._checked(inputs, out)
        result = self.run(inputs, seen, stream)
        return result if out is None else out

    def run(self, inputs, out=None, stream=None, library=None):
        """The same for `View`s that fit: nothing is checked. Returns `out`, or a new array of `library`."""
        last, library = inputs[-1], library or inputs[-1].library
        result = self.new_output(library, last.device) if out is None else out
        if 0 in self.grid:
            return result
        if self.backend == "emulator":
            self._emulate(*inputs, view("out", result))
        elif last.device is None:
            self._through_device(*inputs, view("out", result))
        elif out is None:
            self._launch_on(stream, inputs, library, library.address(result), new=True)
        else:
            self._launch_on(stream, inputs, out.library, out.address, new=False)
        return result

    def count(self, *inputs, out=None):
        """(result, `Counts`) of a run on the emulator, of inputs in host memory."""
        inputs, seen = self._checked(inputs, out)
        result = self.new_output(inputs[-1].library, inputs[-1].device) if out is None else out
        return result, self._emulate(*inputs, view("out", result) if out is None else seen)

    def launch(self, *operands, stream=0):
        """Queues the kernel on inputs and output in device memory, and nothing else: no copy, wait or check.

        operands: the address of the first element of each, or an array with `__cuda_array_interface__`, in
        the `layouts` of this plan. Raises TypeError for another number of them, RuntimeError if the driver
        refuses. An empty problem queues nothing.
        """
        driver = _driver()
        if 0 in self.grid:
            return
        if driver.is_current(self.device):
            addresses = [x if type(x) is int else driver.address_of(x) for x in operands]
            self._launch(addresses, driver.handle_of(stream))
        else:
            with cuda.gpus[self.device]:
                self.launch(*operands, stream=stream)

    @cached_property
    def function(self):
        """The kernel function, as its factory made it."""
        return make_kernel(self.make, self.variant, self.problem.types)

    @cached_property
    def kernel(self):
        """The compiled kernel, a Numba dispatcher for the device of this plan."""
        with cuda.gpus[self.device]:
            return compile_kernel(self.make, self.variant, self.problem.types, self.device)

    @cached_property
    def _launch(self):
        """The `driver.Launch` of the compiled kernel; made with the device current."""
        (compiled,), size = self.kernel.overloads.values(), np.dtype(FLOAT32).itemsize
        operands = [_driver().Operand(layout.reach, size) for _, layout in self.layouts.values()]
        arguments = self.arguments(self.on_device, *operands)
        return _driver().Launch(self.name, compiled, self.grid, self.block, arguments)

    @property
    def name(self):
        """Of the kernel: where its factory is."""
        return f"{self.make.__module__}.{getattr(self.make, '__qualname__', self.make)}"

    def _checked(self, inputs, out):
        """(views of the inputs, view of `out` or None), which fit."""
        if len(inputs) != len(self.inputs):
            names = ", ".join(self.inputs)
            raise TypeError(f"a plan of {self.problem.op} takes {names}; it got {len(inputs)}")
        views = [float32_view(name, x) for name, x in zip(self.inputs, inputs, strict=True)]
        seen = None if out is None else float32_view("out", out)
        given = views if out is None else [*views, seen]
        fingerprints = [x.fingerprint for x in given]
        if fingerprints != self._fit:
            if out is not None and not seen.writeable:
                raise ValueError("out is read-only; it must be writeable")
            named = dict(zip((*self.inputs, "out"), given, strict=False))
            for name, x in named.items():
                self._check(name, x)
            check_one_place(named)
            self._fit = fingerprints
        return views, seen

    @abstractmethod
    def new_output(self, library, device):
        """A new array of `library` for the result."""

    def _check(self, name, seen):
        shape, layout = self.layouts[name]
        fits, rows = seen.shape == shape, len(shape) == 2
        if fits and rows:
            ld = seen.leading_dimension()
            fits = ld is not None and (ld == layout.ld or seen.size == 0 or shape[0] == 1)  # no row follows
        if not fits or not (rows or seen.contiguous):
            how = f" with leading dimension {layout.ld}" if len(shape) == 2 else ", contiguous"
            raise ValueError(
                f"{name} has shape {seen.shape} and strides {seen.strides}; this plan is for {shape}{how}"
            )
        if self.device != seen.device and not (self.backend == "cuda" and seen.device is None):
            where = "host memory" if self.device is None else f"cuda:{self.device}"
            raise ValueError(f"{name} is in {seen.place}; this plan runs in {where}")
        reach = seen.reach(layout.ld) if len(shape) == 2 else seen.size
        if reach < layout.reach:
            raise ValueError(
                f"{name} has memory for {reach} elements from its first on; this plan reads {layout.reach}"
            )
        if seen.alignment() < layout.align and not (self.backend == "cuda" and seen.device is None):
            raise ValueError(
                f"{name} starts on {seen.alignment()} bytes; this plan is for {layout.align}: plan again"
            )

    def flat(self, *operands):
        """Inputs, and the output if there is one, as the one-dimensional arrays that the kernel gets."""
        names = (*self.inputs, "out")[: len(operands)]
        views = map(float32_view, names, operands)
        return [x.flat(self.layouts[name][1].reach) for name, x in zip(names, views, strict=True)]

    @property
    def result_size(self):
        """Elements of the flat output."""
        return self.layouts["out"][1].reach

    def _emulate(self, *views):
        *inputs, out = self.flat(*views)
        inputs = map(_read_only, inputs)
        result = np.full(out.size, np.nan, out.dtype)  # what the kernel fails to write shows
        arguments = self.arguments(self.structure, *inputs, result)
        owned = {self.output: self._owned()}
        counts = emulate(self.function, self.grid, self.block, arguments, (self.output,), owned)
        self._copy_out(result, views[-1])
        return counts

    def _through_device(self, *views):
        with cuda.gpus[self.device]:
            *inputs, out = self.flat(*views)
            result = cuda.device_array(out.size, out.dtype)
            self.launch(*map(_driver().to_device, inputs), result)
            self._copy_out(result.copy_to_host(), views[-1])

    def _launch_on(self, stream, inputs, library, address, new):
        driver, host = _driver(), inputs[-1].library
        with driver.on_device(self.device):
            before = after = ()
            if stream is None:  # after all that the libraries have queued, and before what they queue next
                stream = host.stream(self.device)
                others = {library, *[x.library for x in inputs]} - {host}
                before = after = [other.stream(self.device) for other in others]
            else:  # in the hands of the caller; but the memory of a new output may still be in use
                stream = driver.handle_of(stream)
                before = [library.stream(self.device)] if new else ()
            for other in before:
                driver.wait(stream, other)
            self._launch([*[x.address for x in inputs], address], stream)
            for other in after:
                driver.wait(other, stream)

    @abstractmethod
    def _owned(self):
        """(result_size,) bool: which elements of the flat output are the result's, and none's beside it."""

    @abstractmethod
    def _copy_out(self, result, out):
        """Writes the flat `result`, in host memory, to the view `out`."""

    def explain(self):
        """Which kernel runs, with which toggles and why, and on what grid."""
        v = self.variant
        where = "the emulator" if self.device is None else f"cuda:{self.device}"
        lines = [
            f"{self.title()}, on {where}",
            f"kernel: {self.name}",
            f"variant: {v}",
            f"why: {self.reason}",
            f"grid {self.grid}, block {self.block} = {v.threads} threads, "
            f"{v.shared_bytes} bytes of shared memory, "
            + ", ".join(f"{name}={getattr(v, name)}" for name in v.grid_sizes),
        ]
        if self.copied:
            lines.append(f"copied to contiguous memory on each call: {' and '.join(self.copied)}")
        if self.backend == "cuda":
            (compiled,) = self.kernel.overloads.values()
            lines.append(f"registers per thread: {compiled.regs_per_thread}")
        return "\n".join(lines)


@cache
def _driver():
    from sparsekern.machine import driver  # at the first launch: cuda.bindings is not everywhere

    return driver


def _read_only(array):
    view = array.view()
    view.flags.writeable = False
    return view
