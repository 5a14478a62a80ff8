"""Where kernels run: on a CUDA GPU, or on the emulator."""

import sys
import warnings
from functools import cache

from numba import cuda

BACKENDS = ("cuda", "emulator")


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


def check_one_place(views):
    """Raises ValueError unless all of {name: `View`} lie in host memory, or all on one device."""
    (first, seen), *others = views.items()
    for name, other in others:
        if other.device != seen.device:
            raise ValueError(
                f"operands lie in two places, {first} in {seen.place} and {name} in {other.place}; move one"
            )


def place_for_host(wanted):
    """(backend, CUDA device or None) for a `backend=` argument and operands in host memory.

    They are computed with on the current device, if on any. Raises as `resolve_backend`.
    """
    backend = resolve_backend(wanted)
    return backend, cuda.get_current_device().id if backend == "cuda" else None


def resolve_place(wanted, views):
    """The same for {name: `View`} of any operands: those on a device are computed with there.

    Raises as `resolve_backend`, and ValueError for operands in two places.
    """
    check_one_place(views)
    first, seen = next(iter(views.items()))
    if seen.device is None:
        return place_for_host(wanted)
    if wanted == "emulator":
        raise ValueError(
            f"backend is 'emulator', which reads host memory, but {first} is in {seen.place}: copy it to the "
            "host (.get() of CuPy, .cpu() of PyTorch)"
        )
    return resolve_backend("cuda" if wanted is None else wanted), seen.device


@cache
def resident_warps(device):
    """How many warps a CUDA device holds at once; 0 for None, the emulator: it runs block after block."""
    if device is None:
        return 0
    with cuda.gpus[device]:
        here = cuda.get_current_device()
        return here.MULTIPROCESSOR_COUNT * here.MAX_THREADS_PER_MULTIPROCESSOR // 32
