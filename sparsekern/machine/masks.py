"""Which lanes run, and what a variable holds for each: the registers of a machine in lockstep.

All lanes go through the program together, and those that an instruction is not for are masked. A value that
lanes share by construction, such as a constant or the counter of a loop, is one Python object. A value that
may differ is an array whose last axis is the lanes that run now: (lanes,), or (width, lanes) of a fragment.
"""

import numpy as np

from sparsekern.machine.vectors import OfLane, Unsupported, fragment, typed, varies

UNBOUND = -1


class Mask:
    """Lanes that run: their numbers, in order, of `width`. within: the masks that these are a part of."""

    __slots__ = ("lanes", "width", "within")

    def __init__(self, lanes, width, within=frozenset()):
        self.lanes, self.width, self.within = lanes, width, within | {self}

    def __len__(self):
        return len(self.lanes)

    @property
    def nobody(self):
        return self._of(self.lanes[:0])

    def split(self, condition):
        """(lanes where it is true, the others). condition: one for all, or an array."""
        if not varies(condition):
            condition = np.array(bool(condition))
        if condition.all():
            return self, self.nobody
        if not condition.any():
            return self.nobody, self
        return self._of(self.lanes[condition]), self._of(self.lanes[~condition])

    def join(self, *parts):
        """Where disjoint parts of these lanes meet again."""
        parts = [part for part in parts if len(part)]
        if sum(map(len, parts)) == len(self):
            return self
        if len(parts) == 1:
            return parts[0]
        return self._of(np.sort(np.concatenate([self.lanes[:0], *(part.lanes for part in parts)])))

    def _of(self, lanes):
        return Mask(lanes, self.width, self.within)


class Variable:
    """What a name means to each lane: one value to those that share it, to each other its own."""

    __slots__ = ("shared", "where", "versions", "version")

    def __init__(self, mask=None, value=None):
        self.shared = self.where = None
        self.versions, self.version = [], None  # arrays, by type and shape; which of them holds for a lane
        if mask is not None:
            self.set(mask, value)

    def get(self, mask):
        """The value for the lanes of `mask`. Raises `OfLane` for the first that has none."""
        if self.where in mask.within:
            return self.shared
        self._spread()
        lanes = mask.lanes
        held = self.version[lanes] if self.versions else np.full(len(lanes), UNBOUND)
        if (unbound := held == UNBOUND).any():
            error = UnboundLocalError("a local variable is read that has no value")
            raise OfLane(int(np.argmax(unbound)), error)
        if (held == held[0]).all():
            return self.versions[held[0]][..., lanes]
        values = [(held == at, self.versions[at][..., lanes]) for at in set(held.tolist())]
        if len({value.shape for _, value in values}) > 1:
            raise Unsupported("lanes in lockstep have fragments of one width in a variable")
        result = np.empty(values[0][1].shape, np.result_type(*(value for _, value in values)))
        for mine, value in values:
            result[..., mine] = value[..., mine]
        return result

    def set(self, mask, value):
        if isinstance(value, tuple) and varies(*value):
            value = fragment(value, len(mask))
        if value is self.shared and self.where in mask.within:
            return
        if self.where is not None and mask not in self.where.within:
            self._spread()  # other lanes share what was there
        if varies(value):
            self.where = None
            self._write(mask, value)
        else:
            self.shared, self.where = value, mask

    def _spread(self):
        if self.where is not None:
            shared, where = self.shared, self.where
            self.where = None
            self._write(where, fragment(shared, 1) if type(shared) is tuple else typed(shared))

    def _write(self, mask, value):
        kind = value.dtype, value.shape[:-1]
        at = next((i for i, x in enumerate(self.versions) if (x.dtype, x.shape[:-1]) == kind), None)
        if at is None:
            if not self.versions:
                self.version = np.full(mask.width, UNBOUND, np.int8)
            at = len(self.versions)
            self.versions.append(np.empty((*value.shape[:-1], mask.width), value.dtype))
        self.versions[at][..., mask.lanes] = value
        self.version[mask.lanes] = at
