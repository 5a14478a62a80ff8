"""A kernel launched by one call of the CUDA driver: its parameters are packed once, a call says addresses."""

import ctypes
from contextlib import nullcontext
from functools import cache
from numbers import Integral
from threading import Lock
from typing import NamedTuple

from cuda.bindings import driver
from numba import cuda

SUCCESS = driver.CUresult.CUDA_SUCCESS
_HERE = nullcontext()


class Operand(NamedTuple):
    """A vector whose address each launch says. size: elements. itemsize: bytes of one."""

    size: int
    itemsize: int


class Launch:
    """A kernel on a grid, with all its parameters but the addresses of its operands.

    name: of the kernel, for messages. compiled: Numba's kernel, which it loads on the current device.
    grid, block: in blocks and threads, at most three sizes. arguments: what the kernel is called with: whole
    numbers, vectors in the memory of the device (Numba arrays, kept alive), and an `Operand` for each
    address that a call gives.

    A call, on addresses and the handle of a stream, queues the kernel and does nothing else, so a CUDA
    graph can capture it. Threads may share a launch. Raises RuntimeError if the driver refuses.
    """

    def __init__(self, name, compiled, grid, block, arguments):
        self.name, self.grid, self.block = name, grid, block
        self._alive = compiled, arguments
        words, operands = pack(arguments)
        self._words = (ctypes.c_int64 * len(words))(*words)
        self._addresses = (ctypes.c_int64 * len(operands))()  # side by side, to be written at one go
        places = [*_places(self._words)]
        for operand, place in zip(operands, _places(self._addresses), strict=True):
            places[operand] = place
        self._pointers = (ctypes.c_void_p * len(words))(*places)
        sizes = (*grid, *(1,) * (3 - len(grid)), *block, *(1,) * (3 - len(block)))
        function = driver.CUfunction(int(compiled.library.get_cufunc().handle))
        self._before = (function, *sizes, 0)  # no dynamic shared memory
        self._after = (ctypes.addressof(self._pointers),)
        self._queue = driver.cuLaunchCooperativeKernel
        if not compiled.cooperative:
            self._queue, self._after = driver.cuLaunchKernel, (*self._after, 0)  # and nothing extra
        self._stream = None  # of the last call
        self._lock = Lock()  # the driver copies the parameters before it returns

    def __call__(self, addresses, stream):
        if len(addresses) != len(self._addresses):
            raise TypeError(f"{self.name} takes {len(self._addresses)} operands; it got {len(addresses)}")
        with self._lock:
            self._addresses[:] = addresses
            if stream != self._stream:
                self._arguments = *self._before, driver.CUstream(stream), *self._after
                self._stream = stream
            (status,) = self._queue(*self._arguments)
        if status != SUCCESS:
            raise RuntimeError(
                f"{self.name} could not be launched on a grid of {self.grid} blocks of {self.block} threads: "
                f"{_meaning(status)}"
            )


def pack(arguments):
    """(words, positions among them of the addresses of operands): parameters as the kernel reads them.

    Numba passes a vector as seven: who owns it and its parent, both 0 for memory of a device; elements, bytes
    of one, address; shape and stride. Each has a word of eight bytes here, and a 32-bit number is the first
    half of its word, since the hosts of GPUs are little-endian.
    """
    words, operands = [], []
    for argument in arguments:
        if isinstance(argument, Integral):
            words.append(int(argument))
            continue
        if isinstance(argument, Operand):
            size, itemsize, address = *argument, 0
            operands.append(len(words) + 4)
        else:
            size, itemsize, address = argument.size, argument.dtype.itemsize, address_of(argument)
        words += 0, 0, size, itemsize, address, size, itemsize
    return words, operands


def _places(array):
    """The address of each element of a ctypes array."""
    first, size = ctypes.addressof(array), ctypes.sizeof(array)
    return range(first, first + size, ctypes.sizeof(array._type_))


def address_of(x):
    """The address of a device array, or the one that it is."""
    return x if isinstance(x, int) else x.__cuda_array_interface__["data"][0]


def on_device(number):
    """A `with` block in which CUDA device `number` is the current one; it costs little if it is already."""
    return _HERE if is_current(number) else cuda.gpus[number]


def is_current(number):
    """Whether CUDA device `number`, in the context that everybody uses, is the current one of this thread."""
    _, context = driver.cuCtxGetCurrent()
    return context == _primary(number)


@cache
def _primary(number):
    """The context that everybody uses on a device."""
    return driver.CUcontext(int(cuda.gpus[number].get_primary_context().handle))


def wait(stream, other):
    """Lets what is queued on `stream` from now on come after what is queued on `other`; both are handles."""
    if stream == other:
        return
    event = cuda.event(timing=False)
    event.record(cuda.external_stream(other))
    event.wait(cuda.external_stream(stream))


def handle_of(stream):
    """The handle of a stream of Numba, CuPy, PyTorch, or of anything with `__cuda_stream__`."""
    if type(stream) is int:
        return stream
    handle = stream
    for name in ("ptr", "cuda_stream", "handle"):
        handle = getattr(handle, name, handle)
    if hasattr(handle, "__cuda_stream__"):
        handle = handle.__cuda_stream__()[1]
    try:
        return int(getattr(handle, "value", handle) or 0)
    except (TypeError, ValueError):
        raise TypeError(
            f"stream is {stream!r}; it must be a stream of Numba, CuPy or PyTorch, or the handle of one"
        ) from None


def uploaded(array):
    """A copy on the current device, complete: streams that do not wait for stream 0 will read it."""
    copy = to_device(array)
    cuda.default_stream().synchronize()
    return copy


def to_device(array):
    if array.size == 0:  # a kernel argument needs an address, though nothing will be read there
        return cuda.device_array(1, array.dtype)
    return cuda.to_device(array)


def _meaning(status):
    name = getattr(status, "name", status)
    answer, text = driver.cuGetErrorString(status)
    return f"{name} ({text.decode()})" if answer == SUCCESS else f"{name}"
