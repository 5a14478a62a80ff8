"""What a kernel may say in lockstep: its `cuda` and `lanes`, for all lanes that run at once."""

from numbers import Integral
from types import SimpleNamespace

import numpy as np

from sparsekern.machine import vectors
from sparsekern.machine.expressions import Word
from sparsekern.machine.interpreter import Apart
from sparsekern.machine.lanes import FULL_MASK
from sparsekern.machine.lockstep_memory import WIDE, Memory, Registers
from sparsekern.machine.trace import NOWHERE, Kind
from sparsekern.machine.vectors import Unsupported, varies
from sparsekern.machine.vocabulary import DTYPES, TYPES
from sparsekern.toggles import WARP

INT32 = np.dtype(np.int32)
ARGUMENT = 2**44  # elements: more than an array has
BARRIER, SHUFFLE, VOTE = map(Kind, ("barrier", "shuffle", "vote"))


class Lanes(Word):
    """The primitives of `machine.lanes`; what is composed of them is set by a `Rebuilder`."""

    def __init__(self, machine):
        self._machine = machine

    def place(self, array, position):
        """A number, as a pointer is: of the kernel's argument, from 1, times ARGUMENT, plus elements."""
        if not isinstance(array, Memory):
            return array + vectors.cast(INT32, position)
        if array not in self._machine.arguments:
            raise Unsupported(f"{array.name} is in {array.space} memory; places are in global memory")
        return (self._machine.arguments.index(array) + 1) * ARGUMENT + position

    def load(self, array, index, width):
        return self.load_if(True, array, index, width)

    def load_if(self, wanted, array, index, width):
        array, index = self._memory(array, index)
        return array.load(wanted, index, width)

    def load_or_leave(self, wanted, array, index, width):
        loaded = self.load_if(wanted, array, index, width)
        anything = np.nan if loaded.dtype.kind == "f" else -(2**31)
        return np.where(vectors.truth(wanted), loaded, loaded.dtype.type(anything))

    def store(self, array, index, fragment):
        if not isinstance(array, Memory):
            raise TypeError(f"lanes store to global and shared arrays, not {type(array).__name__}")
        array.store(index, fragment)

    def _memory(self, array, index):
        """The array that is meant, and the index in it."""
        if isinstance(array, Memory):
            return array, index
        wrong = TypeError(f"lanes access global and shared arrays, not {type(array).__name__}")
        if not isinstance(array, Integral) and not (varies(array) and array.dtype.kind == "i"):
            raise wrong
        place = self._machine.spread(array) + vectors.cast(INT32, index)
        arguments = np.unique((place + ARGUMENT // 2) // ARGUMENT)
        if len(arguments) > 1:
            raise Unsupported("lanes in lockstep have places in one array at a time")
        memory = dict(enumerate(self._machine.arguments, 1)).get(int(arguments[0]))
        if not isinstance(memory, Memory):
            raise wrong
        return memory, place - arguments[0] * ARGUMENT

    def take(self, registers, start, width):
        return registers.take(start, width)

    def put(self, fragment, registers, start):
        registers.put(start, fragment)

    def fma(self, a, b, c):
        self._multiply_add(1)
        a, b, c = (self._machine.spread(x) for x in (a, b, c))
        return (a.astype(np.float64) * b + c).astype(np.float32)

    def axpy(self, a, x, y, start):
        x = vectors.fragment(x, len(self._machine.mask))
        self._multiply_add(len(x))
        y.put(start, np.multiply(vectors.typed(a), x, dtype=np.float64) + y.take(start, len(x)))

    def dot(self, x, y, sums, index):
        x, y = (vectors.fragment(items, len(self._machine.mask)) for items in (x, y))
        if len(x) != len(y):
            raise Unsupported(f"fragments of {len(x)} and {len(y)} elements have no product")
        self._multiply_add(len(x))
        total = sums[index]
        for product in np.multiply(x, y, dtype=np.float64):
            total = (product + total).astype(np.float32)
        sums[index] = total

    def _multiply_add(self, count):
        self._machine.record(Kind("multiply-add", count=count), NOWHERE)

    def scale(self, fragment, factor):
        fragment = vectors.fragment(fragment, len(self._machine.mask))
        return vectors.cast(INT32, fragment * vectors.typed(factor))


class Cuda(Word):
    """The `cuda` of kernels in lockstep. A name outside it is an error that names it."""

    warpsize = WARP

    def __init__(self, machine):
        self._machine = machine
        self.gridDim, self.blockDim = machine.grid, machine.block
        self.shared = SimpleNamespace(array=self._shared_array)
        self.local = SimpleNamespace(array=self._local_array)

    def __getattr__(self, name):
        known = ", ".join(sorted(n for n in {**vars(Cuda), **vars(self)} if not n.startswith("_")))
        raise Unsupported(f"the emulator has no cuda.{name}; it has {known}")

    @property
    def threadIdx(self):
        return type(self.blockDim)(*map(self._machine.here, self._machine.threads))

    @property
    def blockIdx(self):
        return type(self.gridDim)(*map(self._machine.here, self._machine.blocks))

    @property
    def laneid(self):
        return self._machine.mask.lanes % WARP

    def grid(self, dimensions):
        place = [b * d + t for b, d, t in zip(self.blockIdx, self.blockDim, self.threadIdx, strict=True)]
        return place[0] if dimensions == 1 else tuple(place[:dimensions])

    # Arrays: one for each place in the program that asks, with helpers inlined

    def _shared_array(self, shape, dtype, alignment=None):
        machine = self._machine
        if machine.place not in machine.arrays:
            size, dtype, blocks = self._size(shape), self._dtype(dtype), machine.block_of[-1] + 1
            skew = max(alignment or 0, dtype.itemsize) // dtype.itemsize
            cells, written = np.empty(blocks * size, WIDE[dtype]), np.zeros(blocks * size, bool)
            name = f"shared array (line {machine.frame.line})"
            machine.arrays[machine.place] = Memory(
                machine, name, "shared", size, cells, dtype, skew, machine.block_of * size, written
            )
        return machine.arrays[machine.place]

    def _local_array(self, shape, dtype, alignment=None):
        machine, size, dtype = self._machine, self._size(shape), self._dtype(dtype)
        key = machine.place, size, dtype
        if key not in machine.arrays:
            machine.arrays[key] = Registers(machine, size, dtype)
        machine.arrays[key].written[:, machine.mask.lanes] = False
        return machine.arrays[key]

    def _size(self, shape):
        if type(shape) is not int or shape < 0:
            raise Unsupported(f"the emulator has arrays of one dimension only, not {shape}")
        return shape

    def _dtype(self, dtype):
        if dtype not in DTYPES:
            raise Unsupported(f"the emulator has no arrays of {dtype}; it has {', '.join(TYPES)}")
        return DTYPES[dtype]

    # Barriers and collectives

    def syncthreads(self):
        machine, lanes = self._machine, self._machine.mask.lanes
        machine.record(BARRIER, FULL_MASK)
        absent = machine.live.copy()
        absent[lanes] = False
        if (missing := np.isin(machine.block_of[lanes], machine.block_of[absent])).any():
            self._apart("syncthreads", missing)
        machine.trace.met(lanes)

    def syncwarp(self, mask=FULL_MASK):
        self._meet("syncwarp", BARRIER, mask)

    def _meet(self, name, kind, mask):
        """Lanes of a warp with one mask meet: (lanes,), the number of the group that each is in."""
        machine, lanes = self._machine, self._machine.mask.lanes
        mask, warps = machine.spread(mask) & FULL_MASK, lanes // WARP
        if (wrong := mask >> self.laneid & 1 == 0).any():
            lane = np.argmax(wrong)
            what = f"{name} with mask {mask[lane]:#010x} does not name its caller, lane {self.laneid[lane]}"
            machine.fail("collective", what, wrong)
        machine.record(kind, mask)
        groups = np.unique(warps << 32 | mask, return_inverse=True)[1]
        here = np.bincount(groups, 1 << self.laneid).astype(np.int64)[groups]
        live = np.packbits(machine.live.reshape(-1, WARP), axis=1, bitorder="little").view("<u4")[warps, 0]
        if (missing := here != mask & live).any():
            self._apart(f"{name} with mask {mask[np.argmax(missing)]:#010x}", missing)
        whole = mask == FULL_MASK
        machine.trace.joined(lanes[~whole], groups[~whole])
        machine.trace.met(lanes[whole])
        return groups

    def _apart(self, name, missing):
        machine = self._machine
        machine.mask, _ = machine.mask.split(missing)
        raise Apart(name)

    def _shuffle(self, name, mask, value, source):
        machine, lanes = self._machine, self._machine.mask.lanes
        groups, source = self._meet(name, SHUFFLE, mask), machine.spread(source)
        at = np.full(machine.mask.width, -1)
        at[lanes] = np.arange(len(lanes))
        origin = at[lanes // WARP * WARP + source % WARP]
        if (wrong := (source < 0) | (source >= WARP) | (origin < 0) | (groups[origin] != groups)).any():
            what = f"{name} reads lane {source[np.argmax(wrong)]}, which has exited or is not in its mask"
            machine.fail("collective", what, wrong)
        value = vectors.fragment(value, len(lanes)) if isinstance(value, tuple) else value
        return value[..., origin] if varies(value) else value

    def shfl_sync(self, mask, value, source):
        return self._shuffle("shfl_sync", mask, value, source % WARP)

    def shfl_xor_sync(self, mask, value, lane_mask):
        return self._shuffle("shfl_xor_sync", mask, value, self.laneid ^ vectors.typed(lane_mask))

    def shfl_up_sync(self, mask, value, delta):
        source = self.laneid - vectors.typed(delta)
        return self._shuffle("shfl_up_sync", mask, value, np.where(source >= 0, source, self.laneid))

    def shfl_down_sync(self, mask, value, delta):
        source = self.laneid + vectors.typed(delta)
        return self._shuffle("shfl_down_sync", mask, value, np.where(source < WARP, source, self.laneid))

    def _vote(self, name, mask, predicate, outcome):
        groups = self._meet(name, VOTE, mask)
        votes = np.broadcast_to(vectors.truth(predicate), groups.shape)
        return outcome(groups, votes)[groups]

    def all_sync(self, mask, predicate):
        return self._vote("all_sync", mask, predicate, lambda groups, votes: np.bincount(groups, ~votes) == 0)

    def any_sync(self, mask, predicate):
        return self._vote("any_sync", mask, predicate, lambda groups, votes: np.bincount(groups, votes) > 0)

    def ballot_sync(self, mask, predicate):
        bits = 1 << self.laneid
        return self._vote(
            "ballot_sync",
            mask,
            predicate,
            lambda groups, votes: np.bincount(groups, votes * bits).astype(np.int64),
        )
