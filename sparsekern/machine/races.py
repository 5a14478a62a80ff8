"""Finds races in shared memory: two lanes at one element, one of them writing, and no barrier to order them.

Only barriers order memory: shuffles and votes do not (CUDA C++ Programming Guide, on warp functions). What
happened before what is kept in vector clocks. A lane's `clock` numbers the stretches between its barriers,
from 1; its `known[other]` is the last clock of lane `other` whose accesses happened before its own.
"""

from sys import _getframe

UNTOUCHED = (0, 0, None, 0)  # an access before all others


def order(lanes):
    """Lanes have met at a barrier: each now knows of all that any of them knew or did."""
    lists = {id(lane.known): lane.known for lane in lanes}  # mostly one, from the barrier before
    known = list(map(max, *lists.values())) if len(lists) > 1 else lanes[0].known.copy()
    for lane in lanes:
        known[lane.number] = lane.clock
        lane.clock += 1
        lane.known = known


class Watch:
    """Checks each access to the shared array `name`, `size` elements long, against those before it.

    An access is (lane number, clock, code object, offset of the instruction in it).
    """

    def __init__(self, machine, name, size):
        self.machine, self.codes, self.name = machine, machine.codes, name
        # For each element the last write, and by lane number the last read of each lane. Reads stay when the
        # element is written again: what comes after that write comes after them too.
        self.words = [[UNTOUCHED, {}] for _ in range(size)]

    def see(self, verb, index, width):
        """`width` elements from `index` on are "read" or "written", by a helper of the kernel."""
        me, frame = self.machine.lane, _getframe(2)
        while id(frame.f_code) not in self.codes:  # a library helper: on to who called it
            frame = frame.f_back
        number, known = me.number, me.known
        access = number, me.clock, frame.f_code, frame.f_lasti
        words = self.words
        for word in words[index : index + width] if width > 1 else (words[index],):  # a slice is slow
            write, reads = word
            lane, clock, _, _ = write
            if clock > known[lane] and lane != number:
                self._race(verb, word, "wrote", write)
            if verb == "read":
                reads[number] = access
            else:
                for lane, clock, _, _ in reads.values():
                    if clock > known[lane] and lane != number:
                        self._race(verb, word, "read", reads[lane])
                word[0] = access

    def _race(self, verb, word, did, other):
        lane, _, code, offset = other
        line = next(line for start, stop, line in code.co_lines() if start <= offset < stop)
        index = next(at for at, one in enumerate(self.words) if one is word)
        self.machine.fail(
            "race",
            f"{self.name}[{index}] {verb}; thread {tuple(self.machine.threads[lane])} {did} it "
            f"at line {line}, and no barrier orders the two",
        )
