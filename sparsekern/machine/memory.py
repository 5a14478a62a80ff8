"""The emulator's memory: flat arrays of Python numbers that check and count every access."""

from array import array
from itertools import islice

import numpy as np

from sparsekern.machine.arithmetic import CASTS, Float32, to_int32
from sparsekern.machine.multiply_adds import accumulate_here

UNWRITTEN = None  # a cell that nothing has been stored in
WIDEST = 16  # elements in a vector access, at most


class Memory:
    """A global or shared array. `fail(kind, detail)` raises what is wrong with an access.

    dtype: a NumPy dtype in CASTS. skew: elements from an address aligned for any vector to the first cell.
    """

    def __init__(self, fail, name, space, cells, dtype, skew, writeable=True, watch=None, owned=None):
        self.fail, self.name, self.space, self.cells, self.skew = fail, name, space, cells, skew
        self.writeable, self.unwritten, self.watch = writeable, UNWRITTEN in cells, watch
        self.foreign = None if owned is None else (~np.asarray(owned)).tolist()  # cells beside the result
        self.dtype, self.cast = dtype, CASTS[dtype]
        self.zero = self.cast(0)
        self.loads = [0] * (WIDEST + 1)  # accesses by width in elements
        self.stores = [0] * (WIDEST + 1)

    def __len__(self):
        return len(self.cells)

    @property
    def size(self):
        return len(self)

    def store(self, index, fragment):
        """The elements of `fragment` to `index` on, as one access."""
        width = len(fragment)
        if index < 0 or index + width > len(self.cells) or (self.skew + index) % width or not self.writeable:
            self.refuse("written", index, width)
        if self.foreign and True in self.foreign[index : index + width]:
            self.refuse("written", index, width)
        self.stores[width] += 1
        if self.watch:
            self.watch.see("written", index, width)
        self.cells[index : index + width] = map(self.cast, fragment)

    def __getitem__(self, index):
        try:
            value = self.cells[index]
        except IndexError:
            self.refuse("read", index, 1)
        except TypeError:
            self.fail(
                "unsupported",
                f"{self.name}[{index}]: {self.name} is flat; one whole number leads to an element",
            )
        if index < 0:
            self.refuse("read", index, 1)
        self.loads[1] += 1
        if value is UNWRITTEN:
            self.fail("unwritten", f"{self.span(index, 1)} read before it was written")
        if self.watch:
            self.watch.see("read", index, 1)
        return value

    def __setitem__(self, index, value):
        if index < 0 or index >= len(self.cells) or not self.writeable:
            self.refuse("written", index, 1)
        if self.foreign and self.foreign[index]:
            self.refuse("written", index, 1)
        self.stores[1] += 1
        if self.watch:
            self.watch.see("written", index, 1)
        self.cells[index] = self.cast(value)

    def span(self, index, width):
        return f"{self.name}[{index}]" if width == 1 else f"{self.name}[{index}:{index + width}]"

    def refuse(self, verb, index, width):
        what = f"{self.span(index, width)} {verb}"
        if index < 0 or index + width > len(self):
            self.fail("out of bounds", f"{what}; {self.name} has {len(self)} elements")
        if verb == "written" and not self.writeable:
            self.fail("read-only", what)
        if self.foreign and True in self.foreign[index : index + width]:
            self.fail("out of bounds", f"{what}; it is beside the result, in memory of someone else")
        off = (self.skew + index) % width * self.dtype.itemsize
        self.fail("misaligned", f"{what} as one vector; its address is {off} bytes past alignment")


class Place:
    """A place in a global `Memory`, to load from: see `lanes.place`."""

    def __init__(self, memory, start):
        self.memory, self.start = memory, start

    def __getattr__(self, name):
        self.memory.fail("unsupported", f"a place has no {name}: it can only be loaded from")

    def __getitem__(self, index, _=None):
        self.memory.fail("unsupported", f"a place takes no [{index}]: say lanes.load")

    __setitem__ = __getitem__


def place(array, position):
    """`position` elements into a `Memory` or further from a `Place`."""
    if type(array) is Place:
        return Place(array.memory, array.start + to_int32(position))
    if array.space != "global":
        array.fail("unsupported", f"{array.name} is in {array.space} memory; places are in global memory")
    return Place(array, position)


def load_if(wanted, array, index, width):
    """`width` elements of a `Memory` from `index` on, as one access; zeros and no access if not `wanted`."""
    if type(array) is Place:
        array, index = array.memory, array.start + to_int32(index)
    if not wanted:
        return [array.zero] * width
    fragment = array.cells[index : index + width]
    if index < 0 or len(fragment) != width or (array.skew + index) % width:
        array.refuse("read", index, width)
    array.loads[width] += 1
    if array.unwritten and UNWRITTEN in fragment:
        array.fail("unwritten", f"{array.span(index, width)} read before it was written")
    if array.watch:
        array.watch.see("read", index, width)
    return fragment


def load_or_leave(wanted, array, index, width):
    """`load_if`, but NaN, or the smallest integer, if not `wanted`."""
    fragment = load_if(wanted, array, index, width)
    if wanted:
        return fragment
    zero = fragment[0]
    return [type(zero)("nan") if isinstance(zero, float) else -(2**31)] * width


class Registers:
    """A local array whose indices are constants after unrolling: it lives in registers, uncounted.

    Multiply-adds are put off until a register is read: many at once are cheaper, and come out the same.
    `counts.fma` counts them.
    """

    def __init__(self, fail, size, dtype, counts):
        self.fail, self.counts, self.cells = fail, counts, [UNWRITTEN] * size
        self.cast = CASTS[dtype]
        self.pending = {}  # (start, width) -> multipliers, rows one after another
        self.waiting = set()  # the registers of all pending spans, which are disjoint

    def __len__(self):
        return len(self.cells)

    @property
    def size(self):
        return len(self.cells)

    def take(self, start, width):
        if self.pending:
            self._catch_up()
        return self._peek(start, width)

    def _peek(self, start, width):
        if start < 0 or start + width > len(self.cells):
            self.fail("out of bounds", self._span(start, width))
        cells = self.cells[start : start + width]
        if UNWRITTEN in cells:
            self.fail("unwritten", f"register [{start + cells.index(UNWRITTEN)}] read before it was written")
        return cells

    def put(self, start, fragment):
        """Writes registers `start` on."""
        if self.pending:
            self._catch_up()
        width = len(fragment)
        if start < 0 or start + width > len(self.cells):
            self.fail("out of bounds", self._span(start, width))
        self.cells[start : start + width] = map(self.cast, fragment)

    def _span(self, start, width):
        span = f"[{start}]" if width == 1 else f"[{start}:{start + width}]"
        return f"register {span} of a local array of {len(self.cells)}"

    def __getitem__(self, index):
        if self.pending:
            self._catch_up()
        if 0 <= index < len(self.cells) and (value := self.cells[index]) is not UNWRITTEN:
            return value
        return self._peek(index, 1)[0]  # which says what is wrong

    def __setitem__(self, index, value):
        if self.pending:
            self._catch_up()
        if index < 0 or index >= len(self.cells):
            self.fail("out of bounds", self._span(index, 1))
        self.cells[index] = self.cast(value)

    def put_off(self, start, width):
        span = range(start, start + width)
        if not self.waiting.isdisjoint(span):
            self._catch_up()
        self._peek(start, width)
        self.waiting.update(span)
        return self.pending.setdefault((start, width), ([], []))

    def count_unread(self):
        """Counts the multiply-adds whose sums nobody has read: hardware does them all the same."""
        self.counts.fma += sum(len(rows) for _, rows in self.pending.values())

    def _catch_up(self):
        multipliers, rows, spans, sums = array("f"), array("f"), array("i"), array("f")
        for (start, width), (a, x) in self.pending.items():
            multipliers.extend(a)
            rows.extend(x)
            spans += array("i", (len(a), width))
            sums.extend(self.cells[start : start + width])
        self.counts.fma += len(rows)
        accumulate_here(
            np.frombuffer(multipliers, np.float32),
            np.frombuffer(rows, np.float32),
            np.frombuffer(spans, np.int32).reshape(-1, 2),
            np.frombuffer(sums, np.float32),
        )
        done = iter(map(Float32, sums.tolist()))
        for start, width in self.pending:
            self.cells[start : start + width] = islice(done, width)
        self.pending, self.waiting = {}, set()


def axpy(a, x, y, start):
    """Adds a * x to registers `y` from `start` on."""
    try:
        multipliers, rows = y.pending[start, len(x)]
    except KeyError:
        multipliers, rows = y.put_off(start, len(x))
    multipliers.append(a)
    rows += x


def dot(x, y, sums, index):
    """Adds x . y to register `index` of `sums`."""
    if len(x) != len(y):
        sums.fail("unsupported", f"fragments of {len(x)} and {len(y)} elements have no product")
    try:
        multipliers, others = sums.pending[index, 1]
    except KeyError:
        multipliers, others = sums.put_off(index, 1)
    multipliers += x
    others += y
