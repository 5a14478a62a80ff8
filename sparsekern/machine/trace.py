"""What the warps of a launch did, instruction by instruction, told from what their lanes did.

`machine.lockstep` tells what lanes do; hardware issues an instruction for a warp at a time. Where lanes take
different paths, how that goes is up to the hardware: it may let the lanes of one path wait for those of
another, or not, until a barrier or collective names them. So everything is counted twice:

- `low`: between two points where the whole warp meets, lanes pass each place of the program together, the
  first time of one with the first time of all, and so on. No order of execution has fewer instructions.
- `high`: lanes that have parted stay apart until a barrier or collective names them.

Where all lanes take one path the two are equal. Of sectors and wavefronts neither is a limit: which lanes go
together decides what they share. An access that is switched off for all lanes of an instruction costs nothing
in `low`, and in `high` an instruction but no request.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sparsekern.machine.lanes import FULL_MASK
from sparsekern.machine.transactions import least, sectors, wavefronts
from sparsekern.toggles import WARP

MOST = 16  # bytes that a lane can access in one instruction
OFF, NOWHERE = -1, -2  # addresses: of an access that is switched off, of what is none
MEETINGS = "barrier", "shuffle", "vote"  # whose address is the mask of lanes that have to come


class Kind(NamedTuple):
    """What an instruction does: `verb` ("load", "store", "multiply-add", "shuffle", "vote" or "barrier")."""

    verb: str
    array: str = ""
    space: str = ""  # "global" or "shared"
    bytes: int = 0  # of a lane
    count: int = 1  # of such instructions, one after another


@dataclass
class Cost:
    """What instructions of one kind came to, over a launch.

    instructions: of warps. requests: those that some lane took part in. lanes: that did, added up. sectors:
    of global memory. wavefronts: passes through the banks of shared memory. ideal: sectors or wavefronts
    that would do for the bytes that lanes asked for, each once.
    """

    instructions: int = 0
    requests: int = 0
    lanes: int = 0
    sectors: int = 0
    ideal: int = 0
    wavefronts: int = 0

    def add(self, other):
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)


@dataclass
class Trace:
    """Records a launch. low, high: {Kind: Cost}. work: of each block and warp, instructions of `low`.

    A *stretch* of a lane lies between two points where its whole warp meets, a *site* is a kind of
    instruction at a place of the program, and a lane's *path* the sites of a stretch so far, as a hash.
    """

    low: dict = field(default_factory=lambda: defaultdict(Cost))
    high: dict = field(default_factory=lambda: defaultdict(Cost))
    work: list = field(default_factory=list)
    _sites: dict = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # (place, kind) -> number

    def begin(self, lanes, width, warps_of_block):
        """Blocks begin, whose `lanes` run at once. width: the lanes that their warps have places for."""
        self._lanes, self._warps_of_block = lanes, warps_of_block
        self._warps = np.arange(width) // WARP
        self._stretches = np.zeros(width, np.int64)
        self._paths = self._beginning(np.arange(width))
        # By site, how often each lane has passed it in its stretch, which is in the upper half.
        self._passed = defaultdict(lambda: np.zeros(width, np.int64))
        self._events, self._count = defaultdict(list), 0
        self._ends = []  # (warps, stretches, paths) of lanes
        self._joins = [(lanes[:0], lanes[:0])]  # (warps, stretches) of lanes

    def see(self, place, kind, lanes, address):
        """`lanes`, in order, do `kind` at `place`. address: of each, or one for all."""
        site = self._sites.setdefault((place, kind), len(self._sites))
        stretches, step = self._stretches[lanes], _hash(np.uint64(site | 1 << 63))
        paths = self._paths[lanes] = _hash(self._paths[lanes] ^ step)
        if kind.verb in MEETINGS and (whole := np.broadcast_to(address == FULL_MASK, lanes.shape)).any():
            paths = np.where(whole, _hash(self._beginning(lanes) ^ step), paths)  # they are together here
        passed = self._passed[site]
        times = np.maximum(passed[lanes], stretches << 32)
        passed[lanes] = times + (address != OFF)
        addresses = np.broadcast_to(np.asarray(address, np.int64), lanes.shape)
        self._events[kind].append((site, self._count, lanes, addresses, times, paths))
        self._count += 1

    def met(self, lanes):
        """The whole warps of `lanes` meet here."""
        self._end(lanes)
        self._stretches[lanes] += 1
        self._paths[lanes] = self._beginning(lanes)

    def joined(self, lanes, groups):
        """The lanes of each group meet here. groups: (lanes,), small numbers."""
        paths = self._paths[lanes]
        some = np.zeros(groups.max(initial=0) + 1, np.uint64)
        some[groups] = paths
        parted = lanes[paths != some[groups]]
        self._joins.append((self._warps[parted], self._stretches[parted]))

    def _beginning(self, lanes):
        """The paths with which a stretch begins."""
        return _hash((self._warps[lanes] << 32 | self._stretches[lanes]).view(np.uint64))

    def _end(self, lanes):
        self._ends.append((self._warps[lanes], self._stretches[lanes], self._paths[lanes]))

    def flush(self):
        """Blocks have ended: puts together what their lanes did, and returns how many events that was."""
        self._end(self._lanes)
        warps, stretches, paths = map(np.concatenate, zip(*self._ends, strict=True))
        most = stretches.max() + 1
        stretch = warps * most + stretches
        some = np.zeros(stretch.max() + 1, np.uint64)
        some[stretch] = paths
        parted = np.zeros(len(some), bool)  # whether lanes of a warp and stretch took different paths
        parted[stretch[paths != some[stretch]]] = True
        events = {kind: _Events(self._events.pop(kind), most) for kind in list(self._events)}
        warps, stretches = map(np.concatenate, zip(*self._joins, strict=True))
        joined = np.zeros(len(some), bool)
        joined[warps * most + stretches] = True
        if joined.any():
            self._join(events, joined)
        work = np.zeros(len(self._warps) // WARP, np.int64)
        for kind, seen in events.items():
            apart, on = parted[seen.stretch], seen.addresses != OFF
            for chosen, together in ((~apart, seen.paths), (apart, seen.places())):
                if chosen.any():
                    cost, warps = seen.cost(kind, chosen, seen.paths)
                    self.high[kind].add(cost)
                    if together is not seen.paths or not on.all():
                        cost, warps = seen.cost(kind, chosen & on, together)
                    self.low[kind].add(cost)
                    work += kind.count * np.bincount(warps, minlength=len(work))
        self.work += work.reshape(-1, self._warps_of_block).tolist()
        return sum(len(seen.lanes) for seen in events.values())

    def _join(self, events, joined):
        """Writes new paths for stretches in which lanes that had parted met: from there on they share one."""
        chosen = [(seen, np.flatnonzero(joined[seen.stretch])) for seen in events.values()]
        names = ("order", "lanes", "stretch", "sites", "addresses")
        columns = [np.concatenate([getattr(seen, name)[at] for seen, at in chosen]) for name in names]
        by_lane = np.lexsort(columns[:3])
        _, lanes, stretch, sites, addresses = (column[by_lane] for column in columns)
        starts = np.flatnonzero(np.diff(lanes * len(joined) + stretch, prepend=-1)).tolist()
        paths = defaultdict(lambda: defaultdict(list))  # stretch -> as `_apart` wants them
        for start, stop in zip(starts, [*starts[1:], len(sites)], strict=True):
            path = sites[start:stop].tobytes()
            paths[stretch[start]][path].append((start, addresses[start:stop].tolist()))
        masks = {site for (_, kind), site in self._sites.items() if kind.verb in MEETINGS}
        new = np.empty(len(sites), np.uint64)
        for number, alike in paths.items():
            instructions = _apart(alike, masks)
            for path, lanes_of_path in alike.items():
                for start, _ in lanes_of_path:
                    mine = np.array(instructions[path], np.uint64)
                    new[start : start + len(mine)] = mine | np.uint64(int(number) << 32)
        new[by_lane] = _hash(new)
        for seen, at in chosen:
            seen.paths[at], new = new[: len(at)], new[len(at) :]


class _Events:
    """Events of one kind, in columns. most: stretches that a lane has."""

    def __init__(self, seen, most):
        sites, orders, *columns = zip(*seen, strict=True)
        self.lanes, self.addresses, self.times, self.paths = map(np.concatenate, columns)
        sizes = list(map(len, columns[0]))
        self.sites, self.order = np.repeat(sites, sizes), np.repeat(orders, sizes)
        self.stretch = self.lanes // WARP * most + (self.times >> 32)

    def places(self):
        """The instructions of lanes that pass a site together, the first time of one with that of all."""
        times = self.times & 0xFFFFFFFF
        most = times.max() + 1
        return (self.sites * (self.stretch.max() + 1) + self.stretch) * most + times

    def cost(self, kind, chosen, instructions):
        """(`Cost` of the chosen events, warps of their instructions). instructions: of each event."""
        lanes, addresses = self.lanes[chosen], self.addresses[chosen]
        distinct, numbers = np.unique(instructions[chosen], return_inverse=True)
        warps = np.zeros(len(distinct), np.int64)
        warps[numbers] = lanes // WARP
        cost = Cost(kind.count * len(distinct))
        if not kind.space:
            cost.lanes = kind.count * len(lanes)
            return cost, warps
        on = addresses != OFF
        events = numbers[on], lanes[on] % WARP, addresses[on]
        cost.requests, cost.lanes = len(np.unique(events[0])), len(events[0])
        cost.ideal = least(kind.space, kind.bytes, *events)
        if kind.space == "global":
            cost.sectors = sectors(*events)
        else:
            cost.wavefronts = wavefronts(kind.bytes, *events)
        return cost, warps


def _hash(x):
    """A number of 64 bits for each, all uint64: the mixer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def _apart(paths, masks):
    """{path: instruction of each event}, of lanes that stay apart once they parted.

    paths: {sites, as bytes: [(lane, addresses), ...]}. masks: sites of barriers and collectives, whose
    address is the mask of lanes that have to come: there these are together again.
    """
    count, numbers, after = 0, {}, {}
    for path, lanes in paths.items():
        here, numbers[path], met = None, [], Counter()  # met: how often lanes of a mask have
        for at, site in enumerate(memoryview(path).cast("q")):
            if site in masks:
                named = {addresses[at] for _, addresses in lanes}
                keys = [(here, site), *(("met", mask, met[mask]) for mask in named)]
                met.update(named)
                here = next((after[key] for key in keys if key in after), count)
                after |= dict.fromkeys(keys, here)
            else:
                here = after.setdefault((here, site), count)
            count += here == count
            numbers[path].append(here)
    return numbers
