"""What the emulator reports of a launch: counts, or an error."""

import linecache
from collections import Counter
from dataclasses import dataclass, field


class EmulatorError(RuntimeError):
    """A kernel did what hardware would not survive or does not define.

    kind: "out of bounds", "misaligned", "unwritten", "read-only", "race", "deadlock", "collective",
    "unsupported" or "exception". line: of the kernel's source `file`. block, thread: (x, y, z).
    """

    def __init__(self, kind, detail, place, block, thread):
        file, line = place
        source = linecache.getline(file, line).strip()
        where = f"{file}:{line}, block {tuple(block)}, thread {tuple(thread)}"
        super().__init__(f"{kind}: {detail}\n  at {where}\n    {source}")
        self.kind, self.file, self.line = kind, file, line
        self.block, self.thread = tuple(block), tuple(thread)


@dataclass
class Counts:
    """What the lanes of a launch did, added up over lanes.

    loads, stores: accesses by (space, bytes each), space "global" or "shared".
    fma: fused multiply-adds of one element. barriers, shuffles, votes: calls.
    """

    lanes: int = 0
    fma: int = 0
    barriers: int = 0
    shuffles: int = 0
    votes: int = 0
    loads: Counter = field(default_factory=Counter)
    stores: Counter = field(default_factory=Counter)

    def add_memory(self, memory):
        for mine, theirs in ((self.loads, memory.loads), (self.stores, memory.stores)):
            for width, accesses in enumerate(theirs):
                if accesses:
                    mine[memory.space, width * memory.dtype.itemsize] += accesses

    def accesses(self, space):
        """(loads, stores) in `space`."""
        return tuple(
            sum(n for (where, _), n in c.items() if where == space) for c in (self.loads, self.stores)
        )

    def bytes(self, space):
        """(bytes loaded, bytes stored) in `space`, as lanes asked for them."""
        tables = (self.loads, self.stores)
        return tuple(sum(n * size for (where, size), n in c.items() if where == space) for c in tables)
