"""Finds races in shared memory: two lanes at one element, one of them writing, and no barrier to order them.

Only barriers order memory: shuffles and votes do not (CUDA C++ Programming Guide, on warp functions). What
happened before what is kept in vector clocks. A lane's `clock` numbers the stretches between its barriers,
from 1; its `known[other]` is the last clock of lane `other` whose accesses happened before its own.
"""

from sys import _getframe


def order(lanes):
    """Lanes have met at a barrier: each now knows of all that any of them knew or did."""
    lists = {id(lane.known): lane.known for lane in lanes}  # mostly one, from the barrier before
    known = list(map(max, *lists.values())) if len(lists) > 1 else lanes[0].known.copy()
    for lane in lanes:
        known[lane.number] = lane.clock
        lane.clock += 1
        lane.known = known


class Watch:
    """Checks each access to the shared array `name`, `size` elements long, against those before it."""

    def __init__(self, machine, name, size):
        self.machine, self.codes, self.name = machine, machine.codes, name
        # For each element its last "write", and by lane number each lane's last read. A read stays when the
        # element is written again: whoever comes after that write comes after the read too. An access is
        # (lane number, clock, code object, offset of the instruction in it).
        self.words = [{} for _ in range(size)]

    def see(self, verb, index, width):
        """`width` elements from `index` on are "read" or "written", by a function that the kernel calls."""
        me, frame = self.machine.lane, _getframe(2)
        while id(frame.f_code) not in self.codes:  # a library helper: on to who called it
            frame = frame.f_back
        number, known = me.number, me.known
        access = number, me.clock, frame.f_code, frame.f_lasti
        for word in self.words[index : index + width]:
            if verb == "read":
                lane, clock, _, _ = word["write"]
                if clock > known[lane] and lane != number:
                    self._race(verb, word, "write")
                word[number] = access
            else:
                for key, (lane, clock, _, _) in word.items():
                    if clock > known[lane] and lane != number:
                        self._race(verb, word, key)
                word["write"] = access

    def _race(self, verb, word, key):
        """Reports that `word` is read or written while nothing orders that after its access `key`."""
        lane, _, code, offset = word[key]
        line = next(line for start, stop, line in code.co_lines() if start <= offset < stop)
        index = next(at for at, other in enumerate(self.words) if other is word)
        self.machine.fail(
            "race",
            f"{self.name}[{index}] {verb}; thread {tuple(self.machine.threads[lane])} "
            f"{'wrote' if key == 'write' else 'read'} it at line {line}, and no barrier orders the two",
        )
