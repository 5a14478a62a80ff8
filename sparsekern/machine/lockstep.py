"""Runs kernel functions on many lanes at once, instruction by instruction, and traces what their warps do.

SIMT as in a textbook: the lanes of many blocks go through the text of the kernel together, and a mask says
which of them run. A branch on which lanes disagree goes both ways, each for its own lanes, which meet again
after it; a loop goes on until no lane is left. Values are as exact as those of `machine.emulator`, but that a
fused multiply-add may round twice. Refused is what Python cannot say to many lanes at once, and lanes that
wait for each other at different places of the program.

Watched: what the emulator watches, but for races.
"""

from math import prod

import numpy as np

from sparsekern.machine.emulator import Dim3, check_arguments, emulate, places
from sparsekern.machine.interpreter import Apart, Interpreter
from sparsekern.machine.lockstep_memory import Memory
from sparsekern.machine.lockstep_words import Cuda, Lanes
from sparsekern.machine.masks import Mask
from sparsekern.machine.report import EmulatorError
from sparsekern.machine.trace import Trace
from sparsekern.machine.vectors import typed, varies
from sparsekern.machine.vocabulary import Rebuilder
from sparsekern.toggles import WARP

WIDTH, FIRST = 1 << 15, 1 << 12  # lanes that run at once, or those of a block: at most, and at first
EVENTS = 1 << 21  # that are to be put together at once, of some 100 bytes each


def launch(function, grid, block, arguments, outputs=()):
    """Runs `function` as `emulate` does, and returns the `Trace`.

    Raises what `emulate` does, but for races; EmulatorError "unsupported" also where lanes cannot be followed
    in lockstep.
    """
    machine = Lockstep(function, grid, block)
    try:
        machine.run(arguments, outputs)
    except Apart as apart:  # others may come later, from another place, or never: then `emulate` says so
        arrays = [x for x in arguments if isinstance(x, np.ndarray) and x.flags.writeable]
        before = [x.copy() for x in arrays]
        emulate(function, grid, block, arguments, outputs)
        for x, old in zip(arrays, before, strict=True):
            x[...] = old
        machine.fail("unsupported", f"{apart}: lanes meet here from different places, which is not counted")
    return machine.trace


class Lockstep(Interpreter):
    """Runs the blocks of one launch. Numbers of lanes are those of the lanes that run at once."""

    def __init__(self, function, grid, block):
        super().__init__()
        self.grid, self.block, self.thread_places = Dim3(*grid), Dim3(*block), np.array(places(block))
        self.padded = -(-len(self.thread_places) // WARP) * WARP  # lanes of a block, its last warp filled up
        self.trace = Trace()
        rebuilder = Rebuilder(Cuda(self), Lanes(self))
        self.function, self.codes = rebuilder.rebuild(function), rebuilder.codes
        self.inlined = set(rebuilder.helpers.values())

    def run(self, arguments, outputs):
        names = check_arguments(self.function, arguments, outputs)
        handed, arrays = list(arguments), []
        for position, (name, value) in enumerate(zip(names, arguments, strict=True)):
            if isinstance(value, np.ndarray):
                handed[position] = Memory.of(self, name, value, position in outputs)
                arrays.append((handed[position], value))
        self.arguments = handed
        first, blocks, width = 0, prod(self.grid), min(FIRST, WIDTH)
        with np.errstate(all="ignore"):
            while first < blocks:
                last = min(first + max(width // self.padded, 1), blocks)
                events = self._run_blocks(np.arange(first, last), handed)
                width = min(WIDTH, len(self.live) * EVENTS // max(events, 1))
                first = last
        for memory, array in arrays:
            memory.copy_out(array)

    def _run_blocks(self, numbers, handed):
        """numbers: of blocks, x first. Returns how many events there were."""
        self.block_of, number = np.divmod(np.arange(len(numbers) * self.padded), self.padded)
        blocks = np.unravel_index(numbers[self.block_of], self.grid[::-1])[::-1]
        last = len(self.thread_places) - 1
        self.live = number <= last  # and has not exited
        self.threads = _for_all(self.block, self.thread_places[np.minimum(number, last)].T)
        self.blocks = _for_all(self.grid, blocks)
        self.arrays = {}  # shared and local, by their places in the program
        self.mask = Mask(np.flatnonzero(self.live), len(self.live))
        self.trace.begin(self.mask.lanes, len(self.live), self.padded // WARP)
        self.attempt(self.call, self.function, *handed)
        return self.trace.flush()

    def exit(self):
        self.live[self.mask.lanes] = False

    @property
    def place(self):
        """Where in the program, with helpers inlined."""
        return (*self.frame.path, self.node)

    def here(self, values):
        """Of `values`, one for each lane or one for all, those of the lanes that run."""
        return values[self.mask.lanes] if varies(values) else values

    def spread(self, value):
        """(lanes,) of a number, of those that run."""
        value = typed(value)
        return value if varies(value) else np.full(len(self.mask), value)

    def record(self, kind, address):
        """The lanes that run do `kind` here."""
        self.trace.see(self.place, kind, self.mask.lanes, address)

    def fail(self, kind, detail, wrong=None, cause=None):
        lane = self.mask.lanes[0 if wrong is None else np.argmax(wrong)]
        block, thread = ([int(x[lane]) if varies(x) else x for x in at] for at in (self.blocks, self.threads))
        code = self.function.__code__
        inside = [(f.code.co_filename, f.line) for f in self.frames if id(f.code) in self.codes]
        place = inside[-1] if inside else (code.co_filename, code.co_firstlineno)
        raise EmulatorError(kind, detail, place, block, thread) from cause


def _for_all(sizes, coordinates):
    """Coordinates of each lane; one for all where there is but one."""
    return [x if size > 1 else 0 for size, x in zip(sizes, coordinates, strict=True)]
