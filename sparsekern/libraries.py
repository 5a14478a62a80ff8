"""Libraries of dense arrays: what comes in decides what comes out.

Each library says how to look at its arrays, make new ones, copy one, and which stream its user works on.
None but NumPy is imported here: whoever passes an array has done that.
"""

import sys
from abc import ABC, abstractmethod
from contextlib import nullcontext
from functools import lru_cache

import numpy as np

from sparsekern.arrays import View

FLOAT32 = "float32"
_HERE = nullcontext()
_name_of = lru_cache(maxsize=64)(str)  # of a dtype; str itself takes as long as all else about a view


@lru_cache(maxsize=64)
def _tensor_dtype(dtype):
    return str(dtype).removeprefix("torch.")


@lru_cache(maxsize=256)
def _in_bytes(strides, size):
    return tuple(size * stride for stride in strides)


class Library(ABC):
    """What to ask of a library of arrays. `cast`: how its users make an array float32."""

    article: str  # what one is called in a message
    cast = "{name}.astype(np.float32)"

    @abstractmethod
    def owns(self, x):
        """Whether `x` is an array of this library."""

    @abstractmethod
    def view(self, name, x):
        """The `View` of its array `x`, an argument called `name`."""

    @abstractmethod
    def new(self, shape, device, zero=False):
        """A new float32 array there, of zeros if asked for."""

    def address(self, x):
        """The address of its array `x`."""
        return self.view("x", x).address

    @abstractmethod
    def contiguous(self, name, x):
        """A row-major copy of its array `x`."""

    def stream(self, device):
        """The handle of its current stream on a device."""
        return 0


class _NumPy(Library):
    article = "a NumPy array"

    def owns(self, x):
        return isinstance(x, np.ndarray) and not isinstance(x, np.ma.MaskedArray)

    def view(self, name, x):
        owner = x
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        end = np.lib.array_utils.byte_bounds(owner)[1]
        return View(
            self, x, x.ctypes.data, x.shape, x.strides, _name_of(x.dtype), x.itemsize, end,
            writeable=x.flags.writeable,
        )  # fmt: skip

    def new(self, shape, device, zero=False):
        return (np.zeros if zero else np.empty)(shape, np.float32)

    def contiguous(self, name, x):
        return np.require(x, requirements="CA")


class _CuPy(Library):
    article = "a CuPy array"

    def owns(self, x):
        cupy = sys.modules.get("cupy")
        return cupy is not None and isinstance(x, cupy.ndarray)

    def view(self, name, x):
        data, dtype = x.data, x.dtype
        memory = data.mem
        return View(
            self, x, data.ptr, x.shape, x.strides, _name_of(dtype), dtype.itemsize, memory.ptr + memory.size,
            device=data.device_id,
        )  # fmt: skip

    def new(self, shape, device, zero=False):
        cupy = sys.modules["cupy"]
        with self.on_device(device):
            return (cupy.zeros if zero else cupy.ndarray)(shape, np.float32)

    def on_device(self, device):
        """A `with` block in which a device is CuPy's current one."""
        cuda = sys.modules["cupy"].cuda  # to enter the current one would take as long as all else in `new`
        return _HERE if cuda.runtime.getDevice() == device else cuda.Device(device)

    def address(self, x):
        return x.data.ptr

    def contiguous(self, name, x):
        with x.device:
            return x.copy()  # not ascontiguousarray, which may return `x`, unaligned as it is

    def stream(self, device):
        return sys.modules["cupy"].cuda.get_current_stream(device).ptr


class _Torch(Library):
    article = "a PyTorch tensor"
    cast = "{name}.float()"

    def owns(self, x):
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(x, torch.Tensor)

    def view(self, name, x):
        if x.layout is not sys.modules["torch"].strided:
            raise TypeError(f"{name} is a tensor of layout {x.layout}; it must be dense: {name}.to_dense()")
        if not (x.is_cuda or x.is_cpu):
            raise TypeError(f"{name} is on {x.device}; it must be on the CPU or a CUDA device")
        if x.requires_grad:
            check_no_gradient(name, x)
            x = x.detach()
        is_copy = x.is_neg()  # a lazy negation: a result written to what it resolves to would be lost
        if is_copy:
            x = x.resolve_neg()
        address, shape, size, dtype = x.data_ptr(), tuple(x.shape), x.element_size(), _tensor_dtype(x.dtype)
        if x.is_contiguous() and shape and shape[0] != 1:  # nobody reads on: see `View.fingerprint`
            end = address + size * x.numel()
        else:
            memory = x.untyped_storage()  # an object made for it
            end = memory.data_ptr() + memory.nbytes()
        return View(
            self, x.numpy() if x.is_cpu and dtype == FLOAT32 else x, address, shape,
            _in_bytes(x.stride(), size), dtype, size, end, device=x.get_device() if x.is_cuda else None,
            writeable=not is_copy,
        )  # fmt: skip

    def address(self, x):
        return x.data_ptr()

    def new(self, shape, device, zero=False):
        torch = sys.modules["torch"]
        where = "cpu" if device is None else f"cuda:{device}"
        return (torch.zeros if zero else torch.empty)(shape, dtype=torch.float32, device=where)

    def contiguous(self, name, x):
        torch = sys.modules["torch"]
        return torch.as_tensor(x).clone(memory_format=torch.contiguous_format)

    def stream(self, device):
        return sys.modules["torch"]._C._cuda_getCurrentRawStream(device)  # as Triton does: no object is made


class _Protocol(Library):
    """Arrays that speak `__cuda_array_interface__` or DLPack. Results are Numba device arrays.

    In host memory they are NumPy arrays at once: see `view`.
    """

    article = "a device array"

    def owns(self, x):
        speaks = hasattr(x, "__cuda_array_interface__") or hasattr(x, "__dlpack__")
        return speaks and not isinstance(x, np.ndarray)  # a masked array would lose its mask

    def view(self, name, x):
        if hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] == 1:  # kDLCPU
            try:
                return NUMPY.view(name, np.from_dlpack(x))
            except (BufferError, RuntimeError) as error:
                what = f"{name} is a {type(x).__name__} that NumPy cannot read"
                raise TypeError(f"{what}: make it float32 ({error})") from error
        from cuda.core.utils import StridedMemoryView

        seen = StridedMemoryView.from_any_interface(x, stream_ptr=LEGACY_STREAM)
        size = seen.dtype.itemsize
        strides = seen.strides
        if strides is None:
            strides = [int(np.prod(seen.shape[axis + 1 :])) for axis in range(len(seen.shape))]
        strides = tuple(size * s for s in strides)
        last = sum((n - 1) * s for n, s in zip(seen.shape, strides, strict=True) if s > 0)
        return View(
            self, (x, seen), seen.ptr, tuple(seen.shape), strides, str(seen.dtype), size,
            seen.ptr + last + size, device=_device_of(seen), writeable=not seen.readonly,
        )  # fmt: skip

    def new(self, shape, device, zero=False):
        from numba import cuda

        with cuda.gpus[device]:
            array = cuda.device_array(shape, np.float32)
            if zero:
                array.copy_to_device(np.zeros(shape, np.float32))
            return array

    def contiguous(self, name, x):
        raise ValueError(
            f"{name} is not row-major with columns one element apart, and sparsekern can copy only arrays "
            f"of NumPy, CuPy and PyTorch: make it contiguous, or pass cupy.asarray({name})"
        )


def _device_of(seen):
    """The device of a `StridedMemoryView`, which for `__cuda_array_interface__` names the current one."""
    if not seen.ptr:
        return seen.device_id
    from cuda.bindings import runtime  # cuPointerGetAttribute of cuda.bindings 13.3 always says device 0

    status, attributes = runtime.cudaPointerGetAttributes(seen.ptr)
    return attributes.device if status == runtime.cudaError_t.cudaSuccess else seen.device_id


LEGACY_STREAM = 1  # a name for stream 0 that both protocols know
NUMPY, CUPY, TORCH, PROTOCOL = _NumPy(), _CuPy(), _Torch(), _Protocol()
LIBRARIES = (NUMPY, CUPY, TORCH, PROTOCOL)
_known = {}  # type of an array -> its library


def view(name, x):
    """The `View` of argument `name`. Raises TypeError if `x` is no dense array, with a way out."""
    if isinstance(x, View):
        return x
    library = _known.get(type(x))
    if library is not None:
        return library.view(name, x)
    for library in LIBRARIES:
        if library.owns(x):
            if library is not PROTOCOL:  # who speaks one may cease to
                _known[type(x)] = library
            return library.view(name, x)
    way_out = f"np.asarray({name}, dtype=np.float32)" if x is not None else "one"
    if hasattr(x, "toarray"):
        way_out = f"{name}.data" if name in ("values", "out") else f"{name}.toarray()"
    elif hasattr(x, "to_scipy"):  # a `Csr`
        way_out = f"{name}.to_scipy().toarray()"
    raise TypeError(
        f"{name} is a {type(x).__name__}; it must be a dense array of NumPy, CuPy or PyTorch, or one that "
        f"speaks DLPack: pass {way_out}"
    )


def float32_view(name, x, way_out=None):
    """The `View` of argument `name`. Raises TypeError unless it is a dense array of float32."""
    seen = view(name, x)
    if seen.dtype != FLOAT32:
        cast = f"pass {seen.library.cast.format(name=name)}"
        if seen.dtype.startswith("complex"):
            cast = f"compute with {name}.real and {name}.imag apart"
        way_out = way_out or cast
        raise TypeError(f"{name} has dtype {seen.dtype}; sparsekern computes in float32: {way_out}")
    return seen


def check_no_gradient(name, tensor):
    """Raises TypeError if autograd would expect to differentiate through a PyTorch tensor."""
    if tensor.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise TypeError(
            f"{name} requires gradients, and sparsekern has no backward passes yet: pass {name}.detach(), or "
            "call under torch.no_grad()"
        )


def to_host(name, x):
    """Array `x` as a NumPy array: itself, a view of it, or from a device a copy."""
    seen = view(name, x)
    if isinstance(seen.array, np.ndarray):
        return seen.array
    if hasattr(seen.array, "get"):
        return seen.array.get()
    if hasattr(seen.array, "cpu"):
        return seen.array.cpu().numpy()
    from numba import cuda

    with cuda.gpus[seen.device]:
        return seen.as_numba(seen.shape, seen.strides).copy_to_host()
