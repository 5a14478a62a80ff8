"""Runs kernel functions on the CPU, exactly, and watches them.

A launch takes the same Python function that would be compiled, gives it a `cuda` and `lanes` of its
own, and runs each lane as a greenlet that switches away at barriers and collectives. Blocks run one
after another; within a block each lane runs until it has to wait.

Exact: integers wrap when stored or cast to int32, each float32 operation rounds to float32, a fused
multiply-add rounds once. Lanes that have exited are not waited for at a barrier, as on hardware. Not as on
a device: the compiler may fuse `x * y + z`, which here rounds twice (say `lanes.fma` and both fuse); `min`
and `max` treat NaN as Python does; a lane that spins on memory spins forever.

Watched: each access, for bounds, alignment and memory that nothing was written to (a negative index
is out of bounds); each access to shared memory, for races with what the other lanes of its block did,
in whatever order they ran; each barrier, for lanes that never come. Unseen: races in global memory, within
a block or between blocks, and races on paths that this launch does not take. A lane that reads too early
may find memory that nothing was written to, and is reported for that. Arguments are copied in, and
results copied out only when the whole launch has succeeded.
"""

import gc
import sys
from collections import Counter
from itertools import product
from math import prod
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from greenlet import getcurrent, greenlet

from sparsekern.machine import races
from sparsekern.machine.arithmetic import Float32
from sparsekern.machine.memory import UNWRITTEN, Memory
from sparsekern.machine.report import Counts, EmulatorError
from sparsekern.machine.vocabulary import Cuda, Lanes, Rebuilder
from sparsekern.toggles import MAX_THREADS, WARP


class Dim3(NamedTuple):
    x: int
    y: int = 1
    z: int = 1


def places(block):
    """The places of the threads of a block, x first. Raises ValueError for a block that no GPU has."""
    size = prod(block)
    if not 1 <= size <= MAX_THREADS:
        raise ValueError(f"block is {tuple(block)}, {size} threads; it must have 1 to {MAX_THREADS}")
    return [Dim3(x, y, z) for z, y, x in product(*map(range, reversed(Dim3(*block))))]


class Lane:
    """One thread of a block: its place, its greenlet, and the answer it will go on with."""

    __slots__ = ("number", "thread", "warp", "id", "greenlet", "answer", "clock", "known")

    def __init__(self, number, thread, function, known):
        self.number, self.thread, self.warp, self.id = number, thread, number // WARP, number % WARP
        self.greenlet, self.answer = greenlet(function), None
        self.clock, self.known = 1, known  # see machine.races


class Meeting:
    """Lanes that wait for the same barrier or collective; mask None is the whole block."""

    def __init__(self, name, warp, mask, answer):
        self.name, self.warp, self.mask = name, warp, mask
        self.answer = answer  # (this, lane) -> what the lane gets
        self.lanes, self.payloads = [], {}

    def names(self, lane):
        return self.mask is None or (lane.warp == self.warp and self.mask >> lane.id & 1)

    def __str__(self):
        return self.name if self.mask is None else f"{self.name} with mask {self.mask:#010x}"


class Machine:
    """Runs the blocks of one launch; what the kernel's `cuda` and `lanes` talk to."""

    def __init__(self, function, grid, block):
        self.grid, self.block, self.threads = Dim3(*grid), Dim3(*block), places(block)
        self.counts, self.cuda = Counts(), Cuda(self)
        rebuilder = Rebuilder(self.cuda, Lanes(self.counts))
        self.function, self.codes = rebuilder.rebuild(function), rebuilder.codes

    def run(self, arguments):
        for z, y, x in product(*map(range, reversed(self.grid))):
            self.cuda.blockIdx = Dim3(x, y, z)
            self._run_block(arguments)

    def _run_block(self, arguments):
        self.hub, self.meetings, self.shared, self.registers = getcurrent(), {}, {}, []
        known = [0] * len(self.threads)
        lanes = [Lane(number, place, self.function, known) for number, place in enumerate(self.threads)]
        self.counts.lanes += len(lanes)
        self.live = [0] * -(-len(lanes) // WARP)  # for each warp, the mask of lanes that have not exited
        for lane in lanes:
            self.live[lane.warp] |= 1 << lane.id
        try:
            for lane in lanes:
                self._resume(lane, *arguments)
            while any(self.live):
                for lane in self._release():
                    self._resume(lane, lane.answer)
        finally:
            for lane in filter(attrgetter("greenlet"), lanes):  # suspended by an error: never collected
                lane.greenlet.throw()
        for memory in self.shared.values():
            self.counts.add_memory(memory)
        for registers in self.registers:
            registers.count_unread()

    def _resume(self, lane, *handed):
        self.lane, self.cuda.threadIdx = lane, lane.thread
        running = lane.greenlet
        try:
            running.switch(*handed)
            if running.dead:
                self.live[lane.warp] &= ~(1 << lane.id)
        except EmulatorError:
            raise
        except Exception as error:
            stack = [(frame.f_code, line) for frame, line in _raised_at(error)]
            self._raise("exception", f"{type(error).__name__}: {error}", stack, lane, error)

    def meet(self, name, mask=None, payload=None, answer=None, place=None):
        """Waits until every live lane of `mask` (None: of the block) has called the same, from `place`.

        Returns answer(the meeting, the lane), if there is an `answer`.
        """
        lane = self.lane
        if mask is not None:
            mask &= 0xFFFFFFFF
            if not mask >> lane.id & 1:
                self.fail(
                    "collective", f"{name} with mask {mask:#010x} does not name its caller, lane {lane.id}"
                )
        warp = None if mask is None else lane.warp
        key = name, warp, mask, place
        meeting = self.meetings.get(key)
        if meeting is None:
            meeting = self.meetings[key] = Meeting(name, warp, mask, answer)
        meeting.lanes.append(lane)
        meeting.payloads[lane.id] = payload
        return self.hub.switch()

    def _release(self):
        """The lanes whose barrier or collective is complete, answered."""
        complete = [
            key for key, meeting in self.meetings.items() if len(meeting.lanes) == self._wanted(meeting)
        ]
        if not complete:
            self._deadlock()
        ready = []
        for meeting in map(self.meetings.pop, complete):
            if meeting.answer:
                for lane in meeting.lanes:
                    self.lane = lane
                    lane.answer = meeting.answer(meeting, lane)
            else:
                races.order(meeting.lanes)
            ready += meeting.lanes
        return ready

    def _wanted(self, meeting):
        """How many lanes a meeting waits for; exited ones do not count."""
        if meeting.mask is None:
            return sum(live.bit_count() for live in self.live)
        return (meeting.mask & self.live[meeting.warp]).bit_count()

    def _deadlock(self):
        # A barrier of a warp before one of the block: its mask says whom it should not have waited for.
        meeting = min(self.meetings.values(), key=lambda meeting: meeting.mask is None)
        elsewhere = Counter()
        for other in self.meetings.values():
            for lane in filter(meeting.names, other.lanes if other is not meeting else ()):
                elsewhere[f"in {other} at line {self._place(_stack(lane.greenlet.gr_frame))[1]}"] += 1
        waits = ", ".join(f"{count} wait {where}" for where, count in elsewhere.items())
        self.lane = meeting.lanes[0]
        self.fail("deadlock", f"{meeting} waits for {elsewhere.total()} lanes that never come: {waits}")

    def fail(self, kind, detail):
        """Raises the EmulatorError of what the current lane is doing."""
        running = getcurrent() is self.lane.greenlet
        self._raise(
            kind, detail, _stack(sys._getframe() if running else self.lane.greenlet.gr_frame), self.lane
        )

    def _raise(self, kind, detail, stack, lane, cause=None):
        error = EmulatorError(kind, detail, self._place(stack), self.cuda.blockIdx, lane.thread)
        raise error from cause

    def _place(self, stack):
        """(file, line) of the innermost frame of the kernel or a helper of it."""
        inside = ((code.co_filename, line) for code, line in stack if id(code) in self.codes)
        return next(inside, ("<unknown>", 0))


def _stack(frame):
    """(code, line) from `frame` outwards."""
    while frame is not None:
        yield frame.f_code, frame.f_lineno
        frame = frame.f_back


def _raised_at(error):
    """(frame, line) of the traceback of `error`, innermost first."""
    frames, traceback = [], error.__traceback__
    while traceback is not None:
        frames.append((traceback.tb_frame, traceback.tb_lineno))
        traceback = traceback.tb_next
    return reversed(frames)


def _copy_in(machine, name, array, poisoned, owned):
    typed = map(Float32, array.tolist()) if array.dtype == np.float32 else array.tolist()
    cells = [UNWRITTEN] * len(array) if poisoned else list(typed)
    skew = array.ctypes.data // array.itemsize if array.size else 0
    return Memory(
        machine.fail, name, "global", cells, array.dtype, skew, writeable=array.flags.writeable, owned=owned
    )


def _copy_out(memory, array):
    written = [at for at, cell in enumerate(memory.cells) if cell is not UNWRITTEN]
    array[written] = [memory.cells[at] for at in written]


def check_arguments(function, arguments, outputs):
    """The names of a kernel's parameters. Raises TypeError or ValueError if the others do not fit it."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    if not set(outputs) <= set(range(len(arguments))):
        raise ValueError(f"outputs is {outputs}; it must be positions of arguments, below {len(arguments)}")
    if len(names) != len(arguments):
        raise TypeError(
            f"{function.__name__} has {len(names)} parameters, {', '.join(names)}; "
            f"a kernel here is called with {len(arguments)} arguments"
        )
    return names


def emulate(function, grid, block, arguments, outputs=(), owned=None):
    """Runs `function` on `grid` blocks of `block` threads, and returns its `Counts`.

    arguments: contiguous 1-D NumPy arrays (updated in place at the end) and Python numbers.
    outputs: positions of arguments that are arrays which hold nothing yet: reading them is an error, and
    elements that the kernel does not write keep their value. owned: {position: bools}, the elements of an
    array that may be written, where the others are somebody else's.

    Raises EmulatorError, with no array changed.
    """
    machine = Machine(function, grid, block)
    names = check_arguments(machine.function, arguments, outputs)
    arrays, handed = {}, []
    for position, (name, value) in enumerate(zip(names, arguments, strict=True)):
        if isinstance(value, np.ndarray):
            memory = _copy_in(machine, name, value, position in outputs, (owned or {}).get(position))
            arrays[name], value = (memory, value), memory
        handed.append(value)
    collecting = gc.isenabled()
    gc.disable()  # millions of small lists, none in a cycle: looking through them is a third of the time
    try:
        machine.run(handed)
    finally:
        if collecting:
            gc.enable()
    for memory, copied in arrays.values():
        machine.counts.add_memory(memory)
        if any(memory.stores):
            _copy_out(memory, copied)
    return machine.counts
