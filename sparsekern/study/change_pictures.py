"""What a toggle changes: registers and occupancy, and counts. Needs matplotlib."""

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator

from sparsekern.study import canvas
from sparsekern.study.gpus import Gpu
from sparsekern.study.work_pictures import differing

REGISTERS = Gpu.registers_per_thread  # that a thread can have
COUNTS = (  # what `counts_change` looks at unless told
    "global load instructions",
    "global load sectors",
    "shared load instructions",
    "shared load wavefronts",
    "shuffles",
    "barriers",
    "multiply-adds",
    "active lanes",
)


def occupancy_bars(entries, subject="", ax=None):
    """Occupancy and registers of some kernels, with what keeps an SM from holding more blocks.

    entries: [(name, `Resources`, `Occupancy`)], from the plainest kernel on. Returns the Axes. Raises
    ValueError without entries.
    """
    entries = list(entries)
    if not entries:
        raise ValueError("entries is empty; give at least one kernel")
    axis = canvas.axes(ax, 7, 1.5 + 0.36 * len(entries))
    dark, light = canvas.shades(2)
    for row, (_, resources, held) in enumerate(entries):
        axis.barh(row - 0.18, 100 * held.fraction, 0.38, color=dark)
        taken = 100 * resources.registers / REGISTERS
        axis.barh(row + 0.2, taken, 0.34, color=light, hatch="////", edgecolor="0.3")
    canvas.rows(axis, [name for name, _, _ in entries])
    axis.set_xlim(0, 100)
    canvas.beside(axis, [_held(resources, held) for _, resources, held in entries])
    handles = [
        Patch(color=dark, label="occupancy: of the warps that an SM can hold"),
        Patch(facecolor=light, hatch="////", edgecolor="0.3", label=f"registers: of a thread's {REGISTERS}"),
    ]
    canvas.legend_above(axis, handles)
    canvas.label(axis, "share of what there is (%)", "kernel")
    return canvas.claim(axis, _occupancy_claim(entries), subject, canvas.LINE)


def _held(resources, held):
    spilled = resources.spill_stores + resources.spill_loads
    spills = f", {spilled:,} bytes spilled" if spilled else ""
    return f"{held.fraction:.0%}, {resources.registers} registers{spills}\nlimited by {held.limiter}"


def _occupancy_claim(entries):
    (first, had, before), (last, has, after) = entries[0], entries[-1]
    if len(entries) == 1:
        held = f"{had.registers} registers, occupancy {before.fraction:.0%}"
        return f"{first}: {held}, limited by {before.limiter}"
    moves = (
        _moves("registers go", "registers stay", str(had.registers), str(has.registers)),
        _moves("occupancy goes", "occupancy stays", f"{before.fraction:.0%}", f"{after.fraction:.0%}"),
    )
    return f"From {first} to {last} {' and '.join(moves)}, limited by {after.limiter}"


def _moves(go, stay, old, new):
    return f"{go} from {old} to {new}" if old != new else f"{stay} at {new}"


def counts_change(before, after, names=None, title=None, subject="", ax=None):
    """Counts of a launch as multiples of those of another, such as with and without a toggle.

    Bars compare the two with lanes together as soon as they can. Where lanes may drift, and counts are
    ranges, a whisker goes from the lowest count after over the highest before to the highest over the lowest.

    before, after: `Counters`. names: of counts, or triples such as ("B", "load", "instructions") for those of
    one array; None is COUNTS, as far as there are any. title: what to call the change; None is the toggles in
    which the variants differ. Returns the Axes.

    Raises KeyError for a count that there is not, ValueError for no names.
    """
    if names is None:
        names = [name for name in COUNTS if before[name].high or after[name].high]
    if not names:
        raise ValueError("names is empty; give at least one count")
    pairs = [(_count(before, name), _count(after, name)) for name in names]
    ratios = [ratio(one, other) for one, other in pairs]
    finite = [x for three in ratios if three for x in three if 0 < x < np.inf]
    low, high = min([0.5, *finite]) / 1.3, max([2, *finite]) * 1.3

    axis = canvas.axes(ax, 7, 1.3 + 0.36 * len(names))
    axis.set_xscale("log", base=2)
    dark, light = canvas.shades(2)
    for row, three in enumerate(ratios):
        if three is None:
            continue
        least, middle, most = (float(np.clip(x, low, high)) for x in three)
        look = dict(color=dark) if middle <= 1 else dict(color=light, hatch="////", edgecolor="0.3")
        axis.barh(row, middle - 1, 0.6, left=1, **look)
        if least < most:
            reach = [[middle - least], [most - middle]]
            axis.errorbar(middle, row, xerr=reach, ecolor="0.5", capsize=4, fmt="none")
    axis.axvline(1, color="black", linewidth=1)
    canvas.rows(axis, [_called(name) for name in names])
    axis.set_xlim(low, high)
    axis.xaxis.set_major_locator(LogLocator(2))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}x"))
    texts = zip(pairs, ratios, strict=True)
    canvas.beside(axis, [f"{_times(three)}; before: {one}\nafter: {other}" for (one, other), three in texts])
    canvas.label(axis, "count after / count before (log scale)", "count")
    change = title or differing(before, after)[1]
    return canvas.claim(axis, _counts_claim(names, pairs, ratios, change), subject)


def ratio(before, after):
    """(least, with lanes together, most) of `after` over `before`, two `Range`s; None if both are 0."""
    if not (before.high or after.high):
        return None
    ends = (after.low, before.high), (after.low, before.low), (after.high, before.low)
    return tuple(x / y if y else np.inf if x else 1.0 for x, y in ends)


def _count(counters, name):
    if isinstance(name, str):
        return counters[name]
    array, verb, what = name
    return counters.of(array, verb)[what]


def _called(name):
    return name if isinstance(name, str) else "{1} {2} of {0}".format(*name)


def _times(three):
    if three is None:
        return "none"
    middle = three[1]
    return "new" if middle == np.inf else "gone" if middle == 0 else f"{middle:.3g}x"


def _counts_claim(names, pairs, ratios, change):
    """The count that moves most."""
    with np.errstate(divide="ignore"):
        moves = [0 if three is None else abs(np.log(three[1])) for three in ratios]
    most = int(np.argmax(moves))
    name, (one, other), three = _called(names[most]), pairs[most], ratios[most]
    if not moves[most]:
        what = (
            "stay as they are" if all(one == other for one, other in pairs) else "change in their ranges only"
        )
        return f"With {change} all of these counts {what}"
    if three[1] == np.inf:
        return f"With {change} there are {other.low:,} {name}; there were none"
    if three[1] == 0:
        return f"With {change} there are no {name}; there were {one.low:,}"
    way = "falls" if three[1] < 1 else "rises"
    return f"With {change}, the number of {name} {way} to {three[1]:.3g}x"
