"""A launch is one call of the driver, which finds the parameters that Numba would have pushed."""

import ctypes
import re
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from sparsekern import SddmmVariant, SpmmVariant, Types, make_sddmm, make_spmm
from sparsekern.machine.launch import SIGNATURES

pytest.importorskip(
    "cuda.bindings", reason="needs cuda.bindings, which comes with the extra cuda12 or cuda13"
)

from sparsekern.machine import driver  # noqa: E402

BYTES = {"u32": 4, "u64": 8}
REFUSED = driver.driver.CUresult.CUDA_ERROR_INVALID_VALUE


class OnDevice:
    """A NumPy vector that says, as a device array does, where it is."""

    def __init__(self, array):
        self.array, self.size, self.dtype = array, array.size, array.dtype
        self.__cuda_array_interface__ = {"data": (array.ctypes.data, False)}


class FakeDriver:
    """What `Launch` needs of the driver. launches: what each got, its parameters read as a GPU would."""

    CUfunction, CUresult, CUstream = (
        getattr(driver.driver, f"CU{x}") for x in ("function", "result", "stream")
    )

    def __init__(self, monkeypatch, widths, status=driver.SUCCESS):
        self.widths, self.status, self.launches, self.cooperative = widths, status, [], 0
        monkeypatch.setattr(driver, "driver", self)

    def cuLaunchKernel(self, function, *arguments):
        *sizes, shared, stream, parameters, extra = arguments
        assert (shared, extra) == (0, 0)
        time.sleep(0)  # another thread's turn, which the driver gives too
        pointers = (ctypes.c_void_p * len(self.widths)).from_address(parameters)
        read = [ctypes.string_at(p, width) for p, width in zip(pointers, self.widths, strict=True)]
        self.launches.append((int(function), tuple(sizes), int(stream), read))
        return (self.status,)

    def cuLaunchCooperativeKernel(self, function, *arguments):
        self.cooperative += 1
        return self.cuLaunchKernel(function, *arguments, 0)

    def cuGetErrorString(self, status):
        return driver.SUCCESS, b"invalid argument"


def compiled(cooperative=False):
    loaded = SimpleNamespace(handle=77)
    return SimpleNamespace(library=SimpleNamespace(get_cufunc=lambda: loaded), cooperative=cooperative)


def arguments_of(op):
    """(arguments with an `Operand` for each operand, the operands in their order) of a kernel of `op`."""
    offsets, columns, work = (np.arange(n, dtype=dtype) for n, dtype in ((10, "i4"), (33, "i4"), (18, "i8")))
    left, right, out = (np.arange(n, dtype=np.float32) for n in (33, 78, 72))
    rest = (6, right, 8, out, 9, 6, 0, 0, 0) if op == "sddmm" else (right, 6, out, 8, 9, 6, 0, 0, 0)
    mixed = [work, offsets, columns, left, *rest]
    arrays = left, right, out
    held = [OnDevice(x) if isinstance(x, np.ndarray) else x for x in mixed]
    known = {id(x): driver.Operand(x.size, x.itemsize) for x in arrays}
    return mixed, [known.get(id(getattr(x, "array", None)), x) for x in held], arrays


def pushed_by_numba(signature, arguments):
    """[bytes of each parameter], as numba-cuda and cuda.core lay them out."""
    from cuda.core._kernel_arg_handler import ParamHolder
    from cuda.core.utils import StridedMemoryView
    from numba.cuda.args import ArgHint
    from numba.cuda.dispatcher import _Kernel

    class Here(ArgHint):
        def to_device(self, retr, stream=0):
            return StridedMemoryView.from_any_interface(self.value, stream_ptr=-1)

    parameters = []
    for kind, value in zip(signature.args, arguments, strict=True):
        value = Here(value) if isinstance(value, np.ndarray) else value
        _Kernel._prepare_args(SimpleNamespace(extensions=[]), kind, value, 0, [], parameters)
    widths = [ctypes.sizeof(x) if isinstance(x, ctypes._SimpleCData) else 8 for x in parameters]
    holder = ParamHolder(parameters)
    pointers = (ctypes.c_void_p * len(parameters)).from_address(holder.ptr)
    return [ctypes.string_at(p, width) for p, width in zip(pointers, widths, strict=True)]


@pytest.mark.parametrize("op", ["spmm", "sddmm"])
def test_the_driver_reads_byte_for_byte_what_numba_would_have_pushed(op, monkeypatch):
    plain, packed, operands = arguments_of(op)
    expected = pushed_by_numba(SIGNATURES[op](Types()), plain)
    fake = FakeDriver(monkeypatch, [len(each) for each in expected])
    launch = driver.Launch("a kernel", compiled(), (3, 2, 1), (32, 4), packed)
    launch([x.ctypes.data for x in operands], 5)
    assert fake.launches == [(77, (3, 2, 1, 32, 4, 1), 5, expected)]


@pytest.mark.parametrize("make, variant", [(make_spmm, SpmmVariant()), (make_sddmm, SddmmVariant())])
def test_the_kernel_declares_the_parameters_that_are_packed(make, variant):
    from sparsekern.study.codegen import ptx

    plain, packed, _ = arguments_of(variant.op)
    text = ptx(make, variant)
    entry = text[text.index(".entry") :]
    declared = [BYTES[kind] for kind in re.findall(r"\.param \.(\w+)", entry[: entry.index("{")])]
    words, positions = driver.pack(packed)
    assert len(words) == len(declared)
    assert declared == [len(each) for each in pushed_by_numba(SIGNATURES[variant.op](Types()), plain)]
    assert len(positions) == 3


def test_a_launch_rewrites_addresses_and_nothing_else(monkeypatch):
    _, packed, operands = arguments_of("spmm")
    words, positions = driver.pack(packed)
    fake = FakeDriver(monkeypatch, [8] * len(words))
    launch = driver.Launch("a kernel", compiled(), (3, 2, 1), (32, 4), packed)
    launch([0, 0, 0], 0)  # an empty operand has no address
    launch([2**40, 2**41, 2**42], 0)
    (*_, before), (*_, after) = fake.launches
    changed = [i for i, (x, y) in enumerate(zip(before, after, strict=True)) if x != y]
    assert changed == positions
    assert [int.from_bytes(after[i], "little") for i in positions] == [2**40, 2**41, 2**42]


def test_each_launch_goes_to_the_stream_of_its_call(monkeypatch):
    fake = FakeDriver(monkeypatch, [8])
    launch = driver.Launch("a kernel", compiled(), (1, 1, 1), (32, 1), [1])
    streams = [0, 0, 7, 7, 0, 2**40]
    for stream in streams:
        launch([], stream)
    assert [stream for *_, stream, _ in fake.launches] == streams


def test_a_call_with_another_number_of_operands_is_refused(monkeypatch):
    _, packed, _ = arguments_of("spmm")
    fake = FakeDriver(monkeypatch, [])
    launch = driver.Launch("a kernel", compiled(), (1, 1, 1), (32, 1), packed)
    for count in (2, 4):
        with pytest.raises(TypeError, match=f"a kernel takes 3 operands; it got {count}"):
            launch([1] * count, 0)
    assert not fake.launches


def test_an_error_of_the_driver_names_kernel_grid_and_block(monkeypatch):
    FakeDriver(monkeypatch, [8], status=REFUSED)
    launch = driver.Launch("mine.make", compiled(), (3, 70_000, 1), (32, 4), [1])
    message = (
        r"mine\.make could not be launched on a grid of \(3, 70000, 1\) blocks of \(32, 4\) threads: "
        r"CUDA_ERROR_INVALID_VALUE \(invalid argument\)"
    )
    with pytest.raises(RuntimeError, match=message):
        launch([], 0)


def test_a_kernel_that_needs_all_its_blocks_at_once_gets_a_cooperative_launch(monkeypatch):
    fake = FakeDriver(monkeypatch, [8])
    driver.Launch("a kernel", compiled(cooperative=True), (3, 1, 1), (32, 4), [1])([], 0)
    assert fake.cooperative == len(fake.launches) == 1


def test_two_threads_may_share_a_launch(monkeypatch):
    _, packed, _ = arguments_of("spmm")
    words, positions = driver.pack(packed)
    fake = FakeDriver(monkeypatch, [8] * len(words))
    launch = driver.Launch("a kernel", compiled(), (3, 2, 1), (32, 4), packed)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: launch([i, i, i], i), range(2000)))
    for *_, stream, read in fake.launches:
        assert {int.from_bytes(read[i], "little") for i in positions} == {stream}
    assert sorted(stream for *_, stream, _ in fake.launches) == list(range(2000))


class Stream:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    "stream",
    [7, Stream(ptr=7), Stream(cuda_stream=7), Stream(handle=ctypes.c_void_p(7)), np.int64(7)],
    ids=["handle", "CuPy", "PyTorch", "Numba", "NumPy's integer"],
)
def test_a_stream_of_any_library_has_a_handle(stream):
    assert driver.handle_of(stream) == 7


def test_the_address_of_an_operand_is_what_it_says_or_what_it_is():
    x = np.zeros(3, np.float32)
    assert driver.address_of(OnDevice(x)) == driver.address_of(x.ctypes.data) == x.ctypes.data


class Device:
    """A device as `cuda.gpus` has it, which counts how often it is entered."""

    def __init__(self, handle):
        self.entered, self.handle = 0, handle

    def get_primary_context(self):
        return self

    def __enter__(self):
        self.entered += 1

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize("current, entered", [(7, 0), (8, 1), (0, 1), (None, 1)])
def test_a_device_is_entered_unless_its_context_is_the_current_one(current, entered, monkeypatch):
    context = None if current is None else driver.driver.CUcontext(current)
    fake = SimpleNamespace(
        cuCtxGetCurrent=lambda: (driver.SUCCESS, context), CUcontext=driver.driver.CUcontext
    )
    gpus = [Device(5), Device(driver.driver.CUcontext(7))]
    monkeypatch.setattr(driver, "driver", fake)
    monkeypatch.setattr(driver.cuda, "gpus", gpus)
    monkeypatch.setattr(driver, "_primary", driver._primary.__wrapped__)  # which remembers nothing
    for _ in range(2):
        with driver.on_device(1):
            pass
    assert [gpu.entered for gpu in gpus] == [0, 2 * entered]
