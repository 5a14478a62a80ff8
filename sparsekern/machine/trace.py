"""What the warps of a launch did, instruction by instruction, told from what their lanes did.

The emulator runs lanes one by one. Hardware issues an instruction for a warp at a time, so the events of
its lanes are put together again. Where lanes take different paths, how that goes is up to the hardware: it
may let the lanes of one path wait for those of another, or not, until a barrier or collective names them.
So everything is counted twice:

- `low`: between two points where the whole warp meets, lanes pass each place of the program together, the
  first time of one with the first time of all, and so on. No order of execution has fewer instructions.
- `high`: lanes that have parted stay apart until a barrier or collective names them.

Where all lanes take one path the two are equal. Of sectors and wavefronts neither is a limit: which lanes go
together decides what they share. An access that is switched off for all lanes of an
instruction costs nothing in `low`, and in `high` an instruction but no request.
"""

from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import compress
from sys import _getframe
from typing import NamedTuple

import numpy as np

from sparsekern.machine.memory import WIDEST
from sparsekern.machine.sites import instruction
from sparsekern.machine.transactions import least, sectors, wavefronts
from sparsekern.variants import WARP

BATCH = 200_000  # events that are put together at once
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
    """Records a launch. low, high: {Kind: Cost}. work: of each block and warp, instructions of `low`."""

    low: dict = field(default_factory=lambda: defaultdict(Cost))
    high: dict = field(default_factory=lambda: defaultdict(Cost))
    work: list = field(default_factory=list)

    def begin(self, machine):
        self._machine, self._sites, self._numbers, self._kinds = machine, {}, {}, []
        self._new_batch()

    def _new_batch(self):
        self._both, self._low, self._high = _Instructions(), _Instructions(), _Instructions()

    def see(self, kind, address=NOWHERE, frame=None):
        """The lane that runs now does `kind`, called from `frame`."""
        frame = frame or _getframe(2)
        caller = frame.f_back
        if caller is None:
            site = id(kind), frame.f_lasti
        elif caller.f_back is None:  # in a helper: also from where in the kernel
            site = id(kind), frame.f_lasti, caller.f_lasti
        else:
            site = id(kind), *_offsets(frame)
        sites, addresses, _ = self._machine.lane.events
        try:
            sites.append(self._sites[site])
        except KeyError:
            sites.append(self._sites.setdefault(site, self._number(kind, frame)))
        addresses.append(address)

    def _number(self, kind, frame):
        site = [kind]
        while frame is not None:
            site.append(instruction(frame.f_code, frame.f_lasti))
            frame = frame.f_back
        number = self._numbers.setdefault(tuple(site), len(self._kinds))
        if number == len(self._kinds):
            self._kinds.append(kind)
        return number

    def met(self):
        """The whole warp of the lane that runs now meets here."""
        sites, _, met = self._machine.lane.events
        met.append(len(sites))

    def watch(self, array, space, itemsize, skew):
        """What a `Memory` tells of its accesses."""
        return _Watch(self, array, space, itemsize, skew)

    def end_block(self, lanes_of_block):
        masks = {site for site, kind in enumerate(self._kinds) if kind.verb in MEETINGS}
        for first in range(0, len(lanes_of_block), WARP):
            lanes = [lane.events for lane in lanes_of_block[first : first + WARP]]
            self._both.begin_warp()
            self._low.begin_warp()
            ends = [(*met, len(sites)) for sites, _, met in lanes]
            starts = [0] * len(lanes)
            for stretch in range(max(map(len, ends))):
                paths = defaultdict(list)  # sites, as bytes -> lanes that pass them, in this order
                for lane, (sites, _, _) in enumerate(lanes):
                    if stretch < len(ends[lane]):
                        start, stop = starts[lane], ends[lane][stretch]
                        paths[sites[start:stop].tobytes()].append((lane, lanes[lane][1][start:stop]))
                        starts[lane] = stop
                if len(paths) == 1:
                    (path,) = paths
                    sites = _sites(path)
                    self._both.add((sites, {path: range(len(sites))}), paths)
                else:
                    self._high.add(_apart(paths, masks), paths)
                    paths = _switched_on(paths)
                    self._low.add(_together(paths), paths)
        if len(self._both.addresses) + len(self._high.addresses) > BATCH:
            self.flush()

    def flush(self):
        work = 0
        for instructions, low, high in ((self._both, 1, 1), (self._low, 1, 0), (self._high, 0, 1)):
            for kind, cost, skipped in instructions.costs(self._kinds):
                if high:
                    self.high[kind].add(cost)
                if low:
                    cost.instructions -= skipped
                    self.low[kind].add(cost)
            if low:
                work = work + instructions.work(self._kinds)
        self.work += work.reshape(-1, -(-len(self._machine.threads) // WARP)).tolist()
        self._new_batch()


def _offsets(frame):
    while frame is not None:
        yield frame.f_lasti
        frame = frame.f_back


class _Watch:
    def __init__(self, trace, array, space, itemsize, skew):
        self.see_one, self.itemsize, self.skew = trace.see, itemsize, skew
        sizes = [width * itemsize for width in range(WIDEST + 1)]
        loads, stores = (
            [Kind(verb, array, space, min(size, MOST)) for size in sizes] for verb in ("load", "store")
        )
        self.pieces = [-(-size // MOST) for size in sizes]
        self.kinds = {"read": loads, "skipped": loads, "written": stores}

    def see(self, verb, index, width):
        address = OFF if verb == "skipped" else (self.skew + index) * self.itemsize
        kind, frame = self.kinds[verb][width], _getframe(2)
        self.see_one(kind, address, frame)
        for piece in range(1, self.pieces[width]):
            self.see_one(kind, address if address == OFF else address + piece * MOST, frame)


def _sites(path):
    """The sites that a path, as bytes, stands for."""
    return memoryview(path).cast("i")


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


def _switched_on(paths):
    """The same paths without accesses that are switched off."""
    result = defaultdict(list)
    for path, lanes in paths.items():
        for lane, addresses in lanes:
            on = [address != OFF for address in addresses]
            sites = array("i", compress(_sites(path), on))
            result[sites.tobytes()].append((lane, array("q", compress(addresses, on))))
    return result


def _together(paths):
    """The same of lanes that pass each site together, the first time of one with the first of all."""
    sites, numbers, known = [], {}, {}
    for path in paths:
        times, numbers[path] = Counter(), []
        for site in _sites(path):
            key = site, times[site]
            times[site] += 1
            if key not in known:
                known[key] = len(sites)
                sites.append(site)
            numbers[path].append(known[key])
    return sites, numbers


class _Instructions:
    """Instructions of warps, and the lanes that took part."""

    def __init__(self):
        self.sites, self.warps = array("i"), []  # of each instruction; where those of each warp begin
        # Of each event: its instruction, lane, address.
        self.numbers, self.lanes, self.addresses = array("q"), array("q"), array("q")

    def begin_warp(self):
        self.warps.append(len(self.sites))

    def add(self, instructions, paths):
        sites, numbers = instructions
        base = len(self.sites)
        self.sites.extend(sites)
        for path, lanes in paths.items():
            mine = array("q", [base + number for number in numbers[path]])
            for lane, addresses in lanes:
                self.numbers += mine
                self.lanes += array("q", (lane,)) * len(mine)
                self.addresses += addresses

    def costs(self, kinds):
        """Yields (kind, `Cost`, how many of its instructions are switched off for all lanes)."""
        distinct = list(dict.fromkeys(kinds))
        kind_of_site = np.array([distinct.index(kind) for kind in kinds], np.int64)
        of_instruction = kind_of_site[np.array(self.sites)]
        issued = np.bincount(of_instruction, minlength=len(distinct)).tolist()
        events = np.array([self.numbers, self.lanes, self.addresses], np.int64)
        of_event = of_instruction[events[0]]
        order = np.argsort(of_event, kind="stable")
        ends = np.searchsorted(of_event[order], np.arange(len(distinct) + 1))
        for at, kind in enumerate(distinct):
            if not issued[at]:
                continue
            cost = Cost(instructions=kind.count * issued[at])
            mine = events[:, order[ends[at] : ends[at + 1]]]
            if not kind.space:
                cost.lanes = kind.count * mine.shape[1]
                yield kind, cost, 0
                continue
            mine = mine[:, mine[2] != OFF]
            cost.requests, cost.lanes = len(np.unique(mine[0])), mine.shape[1]
            cost.ideal = least(kind.space, kind.bytes, *mine)
            if kind.space == "global":
                cost.sectors = sectors(*mine)
            else:
                cost.wavefronts = wavefronts(kind.bytes, *mine)
            yield kind, cost, issued[at] - cost.requests

    def work(self, kinds):
        """Instructions of each warp, but those that are switched off for all lanes."""
        counts = np.array([kind.count for kind in kinds], np.int64)[np.array(self.sites)]
        on = np.zeros(len(counts), bool)
        on[np.array(self.numbers)[np.array(self.addresses) != OFF]] = True
        before = np.concatenate([[0], np.cumsum(counts * on)])
        return np.diff(before[[*self.warps, len(counts)]])
