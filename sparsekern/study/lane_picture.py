"""Which lane of a block loads and stores what, drawn from what the emulator saw. Needs matplotlib."""

from collections import defaultdict
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch, Rectangle

from sparsekern.kernels import make_spmm
from sparsekern.machine.arithmetic import CASTS
from sparsekern.machine.emulator import Machine
from sparsekern.machine.memory import Memory
from sparsekern.ops import plan_spmm
from sparsekern.study.canvas import ink

MOST_ROWS = 32  # that a picture can show
CELL, BAND, ROW = 0.2, 0.19, 0.34  # inches: a column of B, a read row of B, a row of A and C
HATCH = "/////"
COLUMN = "column (floats, 4 bytes each)"


class Access(NamedTuple):
    """One load or store of a lane: elements `index` to `index + width` of the parameter `array`."""

    kind: str  # "load" or "store"
    array: str
    block: tuple  # (x, y, z)
    thread: tuple  # (lane in its subwarp, subwarp in its block, 0)
    index: int
    width: int


VERBS = {"read": "load", "written": "store"}


class _Watch:
    """Tells of every access to one array; for `Memory`."""

    def __init__(self, machine, array, seen):
        self.machine, self.array, self.seen = machine, array, seen

    def see(self, verb, index, width):
        place = tuple(self.machine.cuda.blockIdx), tuple(self.machine.lane.thread)
        self.seen.append(Access(VERBS[verb], self.array, *place, int(index), width))


def trace(plan, values, b):
    """Every access to global memory that `plan(values, b)` makes on the emulator, a list of `Access`."""
    machine, seen = Machine(plan.function, plan.grid, plan.block), []

    def watched(name, x):
        skew, watch = x.ctypes.data // x.itemsize, _Watch(machine, name, seen)
        cells = list(map(CASTS[x.dtype], x.tolist()))
        return Memory(machine.fail, name, "global", cells, x.dtype, skew, watch=watch)

    arguments = plan.arguments(plan.structure, *plan.flat(values, b), np.zeros(plan.result_size, np.float32))
    handed = zip(plan.function.__code__.co_varnames, arguments, strict=False)  # parameters come first
    machine.run([watched(name, x) if isinstance(x, np.ndarray) else x for name, x in handed])
    return seen


class Mark(NamedTuple):
    """An access as it is drawn: who, and which elements of which row."""

    subwarp: int
    row: int
    first: int
    width: int


def block_marks(accesses, plan, block):
    """What block (x, y) does to A, B and C: three dicts from `Mark` to the set of lanes, and its rows.

    A: rows of A, elements counted from the row's first nonzero, negative before it. B, C: rows and
    columns. The fourth is {subwarp: row of A that it works on}.
    """
    p, (work, offsets, _) = plan.problem, plan.structure
    ours = [x for x in accesses if x.block[:2] == tuple(block)]
    rows = {}
    for x in ours:
        if x.array == "work":  # the second number of an entry: see Topology.row_list
            rows[x.thread[1]] = int(work[x.index + 1]) & 0xFFFFFFFF
        elif x.array == "offsets":
            rows[x.thread[1]] = min(x.index, rows.get(x.thread[1], x.index))
    a, b, c = defaultdict(set), defaultdict(set), defaultdict(set)
    for x in ours:
        lane, subwarp = x.thread[:2]
        if x.array in ("values", "columns"):
            row = rows[subwarp]
            a[Mark(subwarp, row, x.index - int(offsets[row]), x.width)].add(lane)
        elif x.array == "B":
            b[Mark(subwarp, *divmod(x.index, p.b.ld), x.width)].add(lane)
        elif x.array == "C":
            c[Mark(subwarp, *divmod(x.index, p.c.ld), x.width)].add(lane)
    return dict(a), dict(b), dict(c), rows


def claim(b):
    """What the loads of B in `b` (of `block_marks`) come to, for one nonzero of one subwarp, in words."""
    if not b:
        return "no loads of B"
    by_row = defaultdict(list)
    for mark, lanes in b.items():
        by_row[mark.subwarp, mark.row] += [(lane, mark.width) for lane in lanes]
    loads = max(by_row.values(), key=len)
    lanes, width = len({lane for lane, _ in loads}), max(w for _, w in loads)
    times = -(-len(loads) // lanes)
    each, s = (" each", "") if lanes > 1 else ("", "s")
    who = f"{_of(lanes, 'lane')} load{s} {_of(width, 'column')}{each}"
    again = f", {times} times" if times > 1 else ""
    return f"{who}{again}: {4 * sum(w for _, w in loads)} bytes of a row of B per nonzero"


def _of(count, noun):
    return f"{count} {noun}" + "s" * (count != 1)


def lane_map(a, n, variant, block=(0, 0), make=make_spmm):
    """Which lane of one block loads what of A and B, and stores what of C, when `variant` runs a @ b.

    A is drawn as it is stored: a row's nonzeros side by side, each with its column index. What a lane
    reads before the row's start, so as to be aligned, is hatched. Of B only the rows that are read
    appear, once for each subwarp that reads them. Colours are subwarps; numbers in boxes are lanes.

    a: a `Csr` of at most 32 rows. n: columns of B. block: (x, y) in the grid. make: a kernel factory
    like `make_spmm`. Returns three Axes: of A, B, C. Raises ValueError for more rows or no such block.
    """
    m, k = a.shape
    if m > MOST_ROWS:
        raise ValueError(f"a has {m} rows; a picture shows at most {MOST_ROWS}")
    dense = np.ones((k, n), np.float32)
    plan = plan_spmm(a, dense, variant, make=make, backend="emulator")
    if not all(0 <= at < size for at, size in zip(block, plan.grid, strict=False)):
        raise ValueError(f"block is {block}; the grid has {plan.grid[0]} x {plan.grid[1]} blocks")
    in_a, in_b, in_c, rows = block_marks(trace(plan, a.values, dense), plan, block)
    bands = sorted({(mark.row, mark.subwarp) for mark in in_b})
    lengths = a.topology.row_lengths
    before = max((-mark.first for mark in in_a if mark.first < 0), default=0)
    colours = dict(zip(sorted(rows), plt.colormaps["viridis"](np.linspace(0.1, 1, len(rows))), strict=True))
    longest = max(lengths.max(initial=0), 3)

    legend, of_a, of_b, of_c = _panels(before + longest, n, len(bands), m)
    for row, (start, length) in enumerate(zip(a.topology.offsets, lengths, strict=False)):
        _grid(of_a, row, length)
        _grid(of_c, row, 1, n)
        owner = next((colours[subwarp] for subwarp, mine in rows.items() if mine == row), (1, 1, 1))
        for at in range(length):
            _write(of_a, at + 0.5, row + 0.28, a.topology.columns[start + at], owner)
    _boxes(of_a, in_a, [mark.row for mark in in_a], colours, variant.subwarp, label_at=0.72)
    _boxes(of_b, in_b, [bands.index((mark.row, mark.subwarp)) for mark in in_b], colours, variant.subwarp)
    _boxes(of_c, in_c, [mark.row for mark in in_c], colours, variant.subwarp)

    of_a.set(xlim=(-before, longest), title="A as stored", ylabel="row of A", yticks=np.arange(m) + 0.5)
    of_a.set_xlabel("place in its row (nonzeros, 4 bytes each)\nabove: column index; below: lane, or all")
    of_b.set(title="B, the rows that are read", ylabel="row of B", xlabel=COLUMN)
    of_c.set(title="C", ylabel="row of C", xlabel=COLUMN, yticks=np.arange(m) + 0.5)
    of_a.set_yticklabels(range(m))
    of_c.set_yticklabels(range(m))
    _name_bands(of_b, bands, n)
    handles = [Patch(color=colour, label=f"subwarp {s}: row {rows[s]}") for s, colour in colours.items()]
    if before:
        handles.append(Patch(fill=False, hatch=HATCH, label="of the row before:\nread, not used"))
    style = dict(loc="lower center", ncols=-(-len(handles) // 9), frameon=False, fontsize=8, title_fontsize=8)
    legend.legend(handles=handles, title="numbers in boxes: lanes", **style)
    legend.figure.suptitle(claim(in_b))
    return np.array([of_a, of_b, of_c])


def _panels(a_columns, n, bands, m):
    """Axes of the legend, A, B and C: B above C, A beside C, rows downwards, at a readable scale."""
    widths = max(a_columns * ROW, 2.4), max(n * min(CELL, 8 / n), 3)
    heights = max(bands * BAND, 2), max(m * ROW, 1)
    figure, ((legend, of_b), (of_a, of_c)) = plt.subplots(
        2, 2, figsize=(sum(widths) + 1.6, sum(heights) + 1.7), width_ratios=widths, height_ratios=heights,
        layout="constrained",
    )  # fmt: skip
    legend.axis("off")
    for axis, width, height in ((of_a, a_columns, m), (of_b, n, bands), (of_c, n, m)):
        axis.set(xlim=(0, width), ylim=(max(height, 1), 0), xticks=range(0, width + 1, -(-width // 8)))
        axis.tick_params(length=0, labelsize=7)
        axis.spines[:].set_visible(False)
    return legend, of_a, of_b, of_c


def _grid(axis, row, cells, width=1):
    """Faint outlines of what could be touched in a row."""
    for at in range(cells):
        outline = Rectangle((at, row), width, 1, fill=False, edgecolor="0.7", linewidth=0.5, zorder=0)
        axis.add_artist(outline).set_clip_on(False)


def _boxes(axis, marks, heights, colours, subwarp, label_at=0.5):
    """A box for each access, with its lanes; the part before a row's start hatched."""
    for (mark, lanes), y in zip(marks.items(), heights, strict=True):
        colour = colours[mark.subwarp]
        axis.add_artist(Rectangle((mark.first, y), mark.width, 1, facecolor=colour, edgecolor="white"))
        if mark.first < 0:
            prefix = Rectangle((mark.first, y), min(-mark.first, mark.width), 1, fill=False, linewidth=0)
            prefix.set(hatch=HATCH, edgecolor=ink(colour))
            axis.add_artist(prefix)
        label = "all" if len(lanes) == subwarp > 1 else ",".join(map(str, sorted(lanes)))
        _write(axis, (max(mark.first, 0) + mark.first + mark.width) / 2, y + label_at, label, colour)


def _name_bands(axis, bands, n):
    """Rows of B at the left, and at the right the subwarp that each band belongs to."""
    read = sorted({row for row, _ in bands})
    places = [[at for at, (row, _) in enumerate(bands) if row == wanted] for wanted in read]
    axis.set_yticks([np.mean(at) + 0.5 for at in places], read)
    axis.text(n, -0.3, "subwarp", fontsize=7)
    for at, (row, subwarp) in enumerate(bands):
        axis.text(n + 0.3, at + 0.5, subwarp, va="center", fontsize=7)
        if at and bands[at - 1][0] != row:
            axis.axhline(at, color="black", linewidth=0.5)


def _write(axis, x, y, text, background):
    axis.text(x, y, text, ha="center", va="center", fontsize=6, color=ink(background), in_layout=False)
