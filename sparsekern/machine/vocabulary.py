"""What a kernel may say on the emulator: its `cuda` and `lanes`, and how a function is given them."""

import builtins
import dis
import sys
from functools import partial
from itertools import chain
from types import CellType, CodeType, FunctionType, SimpleNamespace

import numba
from numba import cuda as compiled_cuda

from sparsekern.machine import arithmetic, memory, multiply_adds
from sparsekern.machine import lanes as compiled_lanes
from sparsekern.machine.memory import UNWRITTEN, Memory, Registers
from sparsekern.machine.races import Watch
from sparsekern.machine.sites import instruction
from sparsekern.toggles import WARP

DTYPES = {cast: dtype for dtype, cast in arithmetic.CASTS.items()}
TYPES = {dtype.name: cast for dtype, cast in arithmetic.CASTS.items()}  # by name, as Numba's


class Lanes(SimpleNamespace):
    """The `lanes` of emulated kernels: `PRIMITIVES` here, what is composed of them rebuilt."""

    place = staticmethod(memory.place)
    load = staticmethod(partial(memory.load_if, True))
    load_if = staticmethod(memory.load_if)
    load_or_leave = staticmethod(memory.load_or_leave)
    store = staticmethod(Memory.store)
    take = staticmethod(Registers.take)
    axpy = staticmethod(memory.axpy)
    dot = staticmethod(memory.dot)

    def __init__(self, counts):
        self._counts = counts

    @staticmethod
    def put(fragment, registers, start):
        registers.put(start, fragment)

    @staticmethod
    def scale(fragment, factor):
        return [arithmetic.to_int32(item * factor) for item in fragment]

    def fma(self, a, b, c):
        self._counts.fma += 1
        return arithmetic.Float32(multiply_adds.fma_here(a, b, c))


class Cuda:
    """The `cuda` of emulated kernels. A name outside it is an error that names it."""

    warpsize = WARP
    threadIdx = blockIdx = None  # set by the machine, block by block and lane by lane

    def __init__(self, machine):
        self._machine = machine
        self.gridDim, self.blockDim = machine.grid, machine.block
        self.shared = SimpleNamespace(array=self._shared_array)
        self.local = SimpleNamespace(array=self._local_array)

    def __getattr__(self, name):
        known = ", ".join(sorted(n for n in {**vars(Cuda), **vars(self)} if not n.startswith("_")))
        self._machine.fail("unsupported", f"the emulator has no cuda.{name}; it has {known}")

    @property
    def laneid(self):
        return self._machine.lane.id

    def grid(self, dimensions):
        place = [b * d + t for b, d, t in zip(self.blockIdx, self.blockDim, self.threadIdx, strict=True)]
        return place[0] if dimensions == 1 else tuple(place[:dimensions])

    # Arrays

    def _shared_array(self, shape, dtype, alignment=None):
        """One array a block for each place in the program that asks; aligned as asked and no better."""
        machine, frame = self._machine, sys._getframe(1)
        key, caller = _place(frame), frame.f_back
        while caller and id(caller.f_code) in machine.codes:  # helpers are inlined: an array for each call
            key, caller = (key, _place(caller)), caller.f_back
        if key not in machine.shared:
            dtype = self._dtype(dtype)
            skew = max(alignment or 0, dtype.itemsize) // dtype.itemsize
            name = f"shared array (line {frame.f_lineno})"
            cells = [UNWRITTEN] * self._size(shape)
            watch = Watch(machine, name, len(cells))
            machine.shared[key] = Memory(machine.fail, name, "shared", cells, dtype, skew, watch=watch)
        return machine.shared[key]

    def _local_array(self, shape, dtype, alignment=None):
        machine = self._machine
        registers = Registers(machine.fail, self._size(shape), self._dtype(dtype), machine.counts)
        machine.registers.append(registers)
        return registers

    def _size(self, shape):
        if type(shape) is not int or shape < 0:
            self._machine.fail("unsupported", f"the emulator has arrays of one dimension only, not {shape}")
        return shape

    def _dtype(self, dtype):
        if dtype not in DTYPES:
            names = ", ".join(TYPES)
            self._machine.fail("unsupported", f"the emulator has no arrays of {dtype}; it has {names}")
        return DTYPES[dtype]

    # Barriers and collectives: `meet` waits for the lanes and gives each its answer from all payloads

    def syncthreads(self):
        self._machine.counts.barriers += 1
        self._machine.meet("syncthreads", place=_place(sys._getframe(1)))

    def syncwarp(self, mask=compiled_lanes.FULL_MASK):
        self._machine.counts.barriers += 1
        self._machine.meet("syncwarp", mask)

    def _shuffle(self, name, mask, value, source):
        machine, frame = self._machine, sys._getframe(2)
        machine.counts.shuffles += 1
        return machine.meet(name, mask, (value, source), self._shuffled, _place(frame))

    def _shuffled(self, meeting, lane):
        payloads = meeting.payloads
        source = payloads[lane.id][1]
        if source not in payloads:
            self._machine.fail(
                "collective", f"{meeting.name} reads lane {source}, which has exited or is not in its mask"
            )
        return payloads[source][0]

    def shfl_sync(self, mask, value, source):
        return self._shuffle("shfl_sync", mask, value, source % WARP)

    def shfl_xor_sync(self, mask, value, lane_mask):
        return self._shuffle("shfl_xor_sync", mask, value, self._machine.lane.id ^ lane_mask)

    def shfl_up_sync(self, mask, value, delta):
        source = self.laneid - delta
        return self._shuffle("shfl_up_sync", mask, value, source if source >= 0 else self.laneid)

    def shfl_down_sync(self, mask, value, delta):
        source = self.laneid + delta
        return self._shuffle("shfl_down_sync", mask, value, source if source < WARP else self.laneid)

    def _vote(self, name, mask, predicate, outcome):
        self._machine.counts.votes += 1
        answer = lambda meeting, _: outcome(meeting.payloads)  # noqa: E731
        return self._machine.meet(name, mask, bool(predicate), answer, _place(sys._getframe(2)))

    def all_sync(self, mask, predicate):
        return self._vote("all_sync", mask, predicate, lambda votes: all(votes.values()))

    def any_sync(self, mask, predicate):
        return self._vote("any_sync", mask, predicate, lambda votes: any(votes.values()))

    def ballot_sync(self, mask, predicate):
        return self._vote("ballot_sync", mask, predicate, lambda votes: sum(v << i for i, v in votes.items()))


def _place(frame):
    """The instruction that `frame` is at: all lanes must meet at the same one."""
    return id(frame.f_code), instruction(frame.f_code, frame.f_lasti)


class Rebuilder:
    """Gives a kernel, and every helper that it calls, the emulated `cuda` and `lanes`."""

    def __init__(self, cuda, lanes):
        self.cuda, self.lanes = cuda, lanes
        self.codes = {}  # of all rebuilt functions, by id: to hash a code object takes long
        self.helpers = {}  # jitted function -> rebuilt
        self._translated = {
            id(getattr(compiled_lanes, n)): getattr(lanes, n) for n in compiled_lanes.PRIMITIVES
        }

    def rebuild(self, function):
        function = getattr(function, "py_func", function)
        code = function.__code__
        codes = list(_nested(code))
        if function.__module__ != compiled_lanes.__name__:
            self.codes |= {id(code): code for code in codes}
        instructions = chain.from_iterable(map(dis.get_instructions, codes))
        names = {i.argval for i in instructions if i.opname == "LOAD_GLOBAL"}
        globals_ = {
            n: self._translate(n, function.__globals__[n]) for n in names & function.__globals__.keys()
        }
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        closure = [CellType(self._translate(*pair)) for pair in zip(code.co_freevars, cells, strict=True)]
        globals_["__builtins__"] = builtins
        return FunctionType(code, globals_, function.__name__, function.__defaults__, tuple(closure))

    def _translate(self, name, value):
        if value is compiled_cuda:
            return self.cuda
        if value is compiled_lanes:
            return self._translate_lanes()
        if isinstance(value, numba.types.Type) and str(value) in TYPES:
            return TYPES[str(value)]
        if id(value) in self._translated:
            return self._translated[id(value)]
        if hasattr(value, "py_func"):
            if value not in self.helpers:
                self.helpers[value] = self.rebuild(value)
            return self.helpers[value]
        if isinstance(value, FunctionType):
            raise TypeError(
                f'{name} is a plain function; a kernel can call it once it is @njit(inline="always")'
            )
        return value

    def _translate_lanes(self):
        for name, value in vars(compiled_lanes).items():
            if hasattr(value, "py_func") and name not in vars(self.lanes):
                setattr(self.lanes, name, self._translate(name, value))
            elif isinstance(value, int):
                setattr(self.lanes, name, value)
        return self.lanes


def _nested(code):
    """`code` and the code of every function and comprehension inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
