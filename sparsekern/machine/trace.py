"""What the warps of a launch did, instruction by instruction, told from what their lanes did.

`machine.lockstep` tells what lanes do. Hardware issues an instruction for a warp at a time, so the events of
its lanes are put together. Where lanes take different paths, how that goes is up to the hardware: it may let the lanes of one path wait for those of another, or not, until a barrier or collective names them.
So everything is counted twice:

- `low`: between two points where the whole warp meets, lanes pass each place of the program together, the
  first time of one with the first time of all, and so on. No order of execution has fewer instructions.
- `high`: lanes that have parted stay apart until a barrier or collective names them.

Where all lanes take one path the two are equal. Of sectors and wavefronts neither is a limit: which lanes go
together decides what they share. An access that is switched off for all lanes of an
instruction costs nothing in `low`, and in `high` an instruction but no request.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sparsekern.machine.lanes import FULL_MASK
from sparsekern.machine.transactions import least, sectors, wavefronts
from sparsekern.variants import WARP

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
    _sites: dict = field(default_factory=dict, repr=False, compare=False)  # (place, kind) -> number

    def begin(self, lanes, width, warps_of_block):
        """Blocks begin, whose `lanes`, (lanes,) of `width` that all warps have places for, run at once."""
        self._lanes, self._warps_of_block = lanes, warps_of_block
        self._warps = np.arange(width) // WARP
        self._stretches = np.zeros(width, np.int64)
        self._paths = self._beginning(np.arange(width))
        self._passed = defaultdict(lambda: np.zeros(width, np.int64))  # site -> see `_Events.times`
        self._events, self._count = defaultdict(list), 0
        self._ends = []  # (warps, stretches, paths) of lanes

    def see(self, place, kind, lanes, address):
        """`lanes`, a sorted array, do `kind` at `place`. address: of each lane, or one for all."""
        site = self._sites.setdefault((place, kind), len(self._sites))
        stretches, step = self._stretches[lanes], _hash(np.uint64(site + 1))
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

    def _beginning(self, lanes):
        return _hash(self._warps[lanes].astype(np.uint64) << np.uint64(32) ^ self._stretches[lanes].astype(np.uint64))

    def _end(self, lanes):
        self._ends.append((self._warps[lanes], self._stretches[lanes], self._paths[lanes]))

    def flush(self):
        """Blocks have ended: puts together what their lanes did."""
        self._end(self._lanes)
        warps, stretches, paths = map(np.concatenate, zip(*self._ends, strict=True))
        most = stretches.max() + 1
        stretch = warps * most + stretches
        some = np.zeros(stretch.max() + 1, np.uint64)
        some[stretch] = paths
        parted = np.zeros(len(some), bool)  # whether lanes of a warp and stretch took different paths
        parted[stretch[paths != some[stretch]]] = True
        events = {kind: _Events(seen, most) for kind, seen in self._events.items()}
        self._find_meetings(events, parted)
        work = np.zeros(len(self._warps) // WARP, np.int64)
        for kind, seen in events.items():
            apart = parted[seen.stretch]
            on = seen.addresses != OFF
            together = np.flatnonzero(~apart)
            if len(together):
                cost, _ = seen.cost(kind, together, seen.paths)
                self.high[kind].add(cost)
                low, warps = seen.cost(kind, together[on[together]], seen.paths)
                self.low[kind].add(low)
                work += np.bincount(warps, minlength=len(work)) * kind.count
            if len(together) < len(apart):
                cost, _ = seen.cost(kind, np.flatnonzero(apart), seen.paths)
                self.high[kind].add(cost)
                low, warps = seen.cost(kind, np.flatnonzero(apart & on), seen.places())
                self.low[kind].add(low)
                work += np.bincount(warps, minlength=len(work)) * kind.count
        self.work += work.reshape(-1, self._warps_of_block).tolist()

    def _find_meetings(self, events, parted):
        """Gives lanes that have parted one path again where a barrier or collective of some of them lets them meet."""
        meet = np.zeros(len(parted), bool)
        for kind, seen in events.items():
            if kind.verb in MEETINGS:
                meet[seen.stretch[seen.addresses != FULL_MASK]] = True
        meet &= parted
        if not meet.any():
            return
        chosen = [(seen, np.flatnonzero(meet[seen.stretch])) for seen in events.values()]
        columns = [np.concatenate([getattr(seen, name)[at] for seen, at in chosen])
                   for name in ("stretch", "lanes", "order", "sites", "addresses")]  # fmt: skip
        order = np.lexsort(columns[2::-1])
        stretch, lanes, _, sites, addresses = (column[order] for column in columns)
        masks = {site for (_, kind), site in self._sites.items() if kind.verb in MEETINGS}
        found = np.empty(len(order), np.uint64)
        starts = np.flatnonzero(np.diff(lanes * len(parted) + stretch, prepend=-1))
        by_stretch = defaultdict(lambda: defaultdict(list))
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            by_stretch[stretch[start]][sites[start:stop].tobytes()].append((start, addresses[start:stop].tolist()))
        for number, paths in by_stretch.items():
            _, numbers = _apart(paths, masks)
            for path, its in paths.items():
                mine = _hash(np.array(numbers[path], np.uint64) ^ np.uint64(number << 32))
                for start, _ in its:
                    found[start : start + len(mine)] = mine
        back = np.empty_like(found)
        back[order] = found
        for seen, at in chosen:
            seen.paths[at], back = back[: len(at)], back[len(at) :]


class _Events:
    """Events of one kind: of each, site, order among all, lane, address, stretch, time and path, in columns."""

    def __init__(self, seen, most):
        sites, orders, lanes, addresses, times, paths = zip(*seen, strict=True)
        sizes = [len(x) for x in lanes]
        self.sites, self.order = np.repeat(sites, sizes), np.repeat(orders, sizes)
        self.lanes, self.addresses, self.times, self.paths = map(np.concatenate, (lanes, addresses, times, paths))
        self.warps = self.lanes // WARP
        self.stretch = self.warps * most + (self.times >> 32)

    def places(self):
        """Of each event a number for its stretch, site, and which time it is that the lane passes it."""
        times = self.times & 0xFFFFFFFF
        most = times.max() + 1
        return (self.sites * (self.stretch.max() + 1) + self.stretch) * most + times

    def cost(self, kind, chosen, instructions):
        """(`Cost` of the chosen events, warps of their instructions). instructions: what tells these apart."""
        distinct, numbers = np.unique(instructions[chosen], return_inverse=True)
        lanes, addresses = self.lanes[chosen], self.addresses[chosen]
        warps = np.zeros(len(distinct), np.int64)
        warps[numbers] = lanes // WARP
        cost = Cost(kind.count * len(distinct))
        if not kind.space:
            cost.lanes = kind.count * len(chosen)
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
    """A number for each of 64 bits, as uint64: the mixer of splitmix64."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def _sites(path):
    """The sites that a path, as bytes, stands for."""
    return memoryview(path).cast("q")


def _apart(paths, masks):
    """(sites of instructions, {path: instruction of each event}), of lanes that stay apart once they parted.

    paths: {sites, as bytes: [(lane, addresses), ...]}. masks: sites of barriers and collectives, whose
    address is the mask of lanes that have to come: there these are together again.
    """
    sites, numbers, after = [], {}, {}
    for path, lanes in paths.items():
        here, numbers[path], met = None, [], Counter()  # met: how often lanes of a mask have
        for at, site in enumerate(_sites(path)):
            keys = [(here, site)]
            if site in masks:
                named = {addresses[at] for _, addresses in lanes}
                keys += [("met", mask, met[mask]) for mask in named]
                met.update(named)
            here = next((after[key] for key in keys if key in after), len(sites))
            if here == len(sites):
                sites.append(site)
            after |= dict.fromkeys(keys, here)
            numbers[path].append(here)
    return sites, numbers
