"""The memory of many lanes at once: arrays of NumPy that check and record every access."""

from functools import partial
from numbers import Integral

import numpy as np

from sparsekern.machine import memory, vectors
from sparsekern.machine.arithmetic import CASTS
from sparsekern.machine.expressions import Word
from sparsekern.machine.trace import MOST, OFF, Kind
from sparsekern.machine.vectors import Unsupported, varies

# What lanes compute in: of integers 64 bits, of which casts and stores leave what fits.
WIDE = {dtype: np.dtype(np.int64) if dtype.kind == "i" else dtype for dtype in CASTS}


class Memory(memory.Memory, Word):
    """A global or shared array. base: where it begins among the cells, of each lane or for all."""

    def __init__(self, machine, name, space, size, cells, dtype, skew, base=0, written=None, writeable=True):
        self.machine, self.name, self.space, self.dtype = machine, name, space, dtype
        self.elements, self.cells, self.skew, self.base = size, cells, skew, base
        self.written, self.writeable, self.foreign, self.changed = written, writeable, None, False

    @classmethod
    def of(cls, machine, name, array, unwritten):
        """An argument of the kernel."""
        skew = array.ctypes.data // array.itemsize if array.size else 0
        written = np.zeros(len(array), bool) if unwritten else None
        cells = array.astype(WIDE[array.dtype])
        return cls(
            machine, name, "global", len(array), cells, array.dtype, skew, 0, written, array.flags.writeable
        )

    def copy_out(self, array):
        if self.changed:
            written = slice(None) if self.written is None else self.written
            array[written] = self.cells[written]

    def __len__(self):
        return self.elements

    def __getitem__(self, index):
        return self.load(True, index, 1)[0]

    def __setitem__(self, index, value):
        self.store(index, (value,))

    def load(self, wanted, index, width):
        on = np.broadcast_to(vectors.truth(wanted), (len(self.machine.mask),))
        places = self._access("load", index, width, on)
        if self.written is not None and not (there := self.written[places].all(axis=0)).all():
            wrong = np.flatnonzero(on)[~there][0] == np.arange(len(on))
            span = self.span(int(self.machine.spread(index)[wrong][0]), width)
            self.machine.fail("unwritten", f"{span} read before it was written", wrong)
        if places.shape[1] == len(on):
            return self.cells[places]
        result = np.zeros((width, len(on)), self.cells.dtype)
        result[:, on] = self.cells[places]
        return result

    def store(self, index, items):
        values = vectors.cast(self.dtype, vectors.fragment(items, len(self.machine.mask)))
        places = self._access("store", index, len(values), np.True_)
        self.cells[places], self.changed = values, True
        if self.written is not None:
            self.written[places] = True

    def _access(self, verb, index, width, on):
        """(width, lanes) places of cells, of the lanes where it is `on`, checked and recorded."""
        machine = self.machine
        if not varies(index) and not isinstance(index, Integral):
            raise Unsupported(
                f"{self.name}[{index}]: {self.name} is flat; one whole number leads to an element"
            )
        index = machine.spread(index)
        if index.dtype.kind == "f":
            raise TypeError(f"indices of {self.name} must be integers")
        wrong = (index < 0) | (index > self.elements - width)
        if width > 1:
            wrong |= (self.skew + index) % width != 0
        if verb == "store" and not self.writeable:
            wrong[:] = True
        wrong &= on
        if wrong.any():
            self.fail = partial(machine.fail, wrong=wrong)
            self.refuse("read" if verb == "load" else "written", int(index[np.argmax(wrong)]), width)
        base, size = machine.here(self.base), width * self.dtype.itemsize
        address, places = (self.skew + index) * self.dtype.itemsize, base + index
        if not on.all():
            address, places = np.where(on, address, OFF), places[on]
        kind = Kind(verb, self.name, self.space, min(size, MOST))
        for piece in range(0, size, MOST):
            machine.record(kind, address if not piece else np.where(address == OFF, OFF, address + piece))
        return places + np.arange(width)[:, None]


class Registers(Word):
    """A local array."""

    def __init__(self, machine, size, dtype):
        self.machine, self.size, self.dtype = machine, size, dtype
        self.cells = np.empty((size, len(machine.live)), WIDE[dtype])
        self.written = np.zeros(self.cells.shape, bool)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.take(index, 1)[0]

    def __setitem__(self, index, value):
        self.put(index, (value,))

    def take(self, start, width):
        places = self._places(start, width)
        unwritten = ~self.written[places]
        if unwritten.any():
            register = self._number(start) + np.argmax(unwritten.any(axis=1))
            self.machine.fail(
                "unwritten", f"register [{register}] read before it was written", unwritten.any(axis=0)
            )
        return self.cells[places]

    def put(self, start, items):
        values = vectors.cast(self.dtype, vectors.fragment(items, len(self.machine.mask)))
        places = self._places(start, len(values))
        self.cells[places], self.written[places] = values, True

    def _places(self, start, width):
        lanes = self.machine.mask.lanes
        wrong = (vectors.number(start) < 0) | (start + width > self.size)
        if np.any(wrong):
            number = self._number(start, wrong)
            span = f"[{number}]" if width == 1 else f"[{number}:{number + width}]"
            what = f"register {span} of a local array of {self.size}"
            self.machine.fail("out of bounds", what, wrong if varies(wrong) else None)
        if varies(start):
            return start + np.arange(width)[:, None], lanes
        return slice(start, start + width), lanes

    @staticmethod
    def _number(start, wrong=0):
        return int(start[np.argmax(wrong)]) if varies(start) else start
