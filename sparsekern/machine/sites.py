"""Which instruction of a function a frame is at.

`f_lasti` alone does not say: once Python has specialised an instruction, it may lie in the instruction's
inline cache, and so differ between two lanes that do the same.
"""

import dis
from bisect import bisect_right

_STARTS = {}  # id of a code object -> (the object, offsets of its instructions)
_KNOWN = {}  # (id of a code object, offset) -> offset of the instruction


def instruction(code, offset):
    """Offset at which the instruction of `code` begins that `offset` lies in."""
    key = id(code), offset
    try:
        return _KNOWN[key]
    except KeyError:
        if id(code) not in _STARTS:  # which keeps the object, so that its id is not used again
            _STARTS[id(code)] = code, [found.offset for found in dis.get_instructions(code)]
        starts = _STARTS[id(code)][1]
        return _KNOWN.setdefault(key, starts[bisect_right(starts, offset) - 1])
