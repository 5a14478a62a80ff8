"""How work is spread: over rows, and over the SMs of a GPU. Needs matplotlib."""

import heapq
from dataclasses import fields

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from sparsekern.problem import RowStats
from sparsekern.study import canvas

MOST_BINS = 40


def row_lengths(topology, subject="", ax=None):
    """Histogram of the row lengths of a `Topology`, the mean and the longest marked. Returns the Axes."""
    lengths, stats = topology.row_lengths, RowStats.of(topology.row_lengths)
    width = -(-(stats.longest + 1) // MOST_BINS)  # whole lengths in a bin
    edges = np.arange(0, stats.longest + width + 1, width) - 0.5
    axis = canvas.axes(ax, 6, 3.2)
    axis.hist(lengths, edges, color=canvas.shades(3)[1], edgecolor="white", linewidth=0.5)
    axis.axvline(stats.mean, color="black", linewidth=1.5, label=f"mean: {stats.mean:.3g}")
    axis.axvline(stats.longest, color="black", linestyle="--", label=f"longest: {stats.longest:,}")
    axis.spines[["top", "right"]].set_visible(False)
    axis.yaxis.get_major_locator().set_params(integer=True)
    each = "" if width == 1 else f", in bins of {width}"
    canvas.label(axis, f"length of a row (nonzeros{each})", "rows")
    canvas.legend(axis)
    return canvas.claim(axis, _lengths_claim(len(lengths), stats), subject)


def _lengths_claim(m, stats):
    if not stats.mean:
        return f"{m:,} rows, all of them empty"
    empty = f"; {stats.empty:,} are empty" if stats.empty else ""
    return (
        f"{m:,} rows of {stats.mean:.3g} nonzeros on average, CoV {stats.cov:.2f}: "
        f"the longest has {stats.longest:,}, {stats.longest / stats.mean:.1f}x the mean{empty}"
    )


def schedule(work, sms):
    """Where and when each block runs if blocks go in order to the SM with the least work so far.

    work: (blocks,), of each block. Returns two (blocks,) arrays: its SM, and the start, in the unit of work.
    Together they tell what `counters.timeline` adds up.
    """
    free, places = [(0, sm) for sm in range(sms)], []
    for block in np.asarray(work).tolist():
        start, sm = free[0]
        places.append((sm, start))
        heapq.heapreplace(free, (start + block, sm))
    sm, start = np.array(places, np.int64).reshape(-1, 2).T
    return sm, start


def sm_timeline(before, after, gpu, names=None, subject="", ax=None):
    """Which SM works on which block when, for two launches one above the other.

    Blocks are handed in order to the SM that has the least work so far, and an SM runs one at a time. A box
    is a block; the lighter, the more work.

    before, after: `Counters` of the launches, such as without and with `bin`. gpu: a `Gpu`. names: what to
    call the two; None is the toggles in which their variants differ. Returns the Axes.

    Raises ValueError if a launch has no work.
    """
    names = differing(before, after) if names is None else names
    works = [launch.work.sum(axis=1) for launch in (before, after)]
    for name, work in zip(names, works, strict=True):
        if not work.sum():
            raise ValueError(
                f"{name} has {len(work)} blocks, without an instruction; there is nothing to draw"
            )
    colours, most = plt.colormaps["cividis"], max(work.max() for work in works)
    gap, axis = max(gpu.sms // 12, 1), canvas.axes(ax, 7, 4.2)
    ends, ideals, middles = [], [], []
    for launch, work in enumerate(works):
        sm, start = schedule(work, gpu.sms)
        top, ideal = launch * (gpu.sms + gap), work.sum() / gpu.sms
        few = gpu.sms <= 40  # else edges would hide the blocks
        style = dict(color=colours(work / most), edgecolor="white", linewidth=0.4 * few)
        axis.barh(top + sm + 0.5, work, 0.9 if few else 1, start, **style)
        end, height = (start + work).max(), (top, top + gpu.sms)
        first = launch == 0
        axis.plot([end] * 2, height, color="black", linewidth=2, label="makespan" if first else None)
        style = dict(color="black", linestyle="--", linewidth=1.5)
        axis.plot([ideal] * 2, height, **style, label="ideal: all SMs alike" if first else None)
        ends.append(int(end))
        ideals.append(ideal)
        middles.append(top + gpu.sms / 2)
    axis.set(xlim=(0, 1.03 * max(ends)), ylim=(2 * gpu.sms + gap, 0), yticks=middles)
    axis.set_yticklabels([name.replace(", ", "\n") for name in names])
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right", "left"]].set_visible(False)
    canvas.label(axis, "work so far (warp instructions)", f"SM: the {gpu.sms} of {gpu.name}, twice")
    canvas.legend_above(axis)
    bar = axis.figure.colorbar(ScalarMappable(Normalize(0, most), colours), ax=axis, pad=0.02)
    bar.set_label("work of a block (warp instructions)", fontsize=canvas.SMALL)
    bar.ax.tick_params(labelsize=canvas.SMALL)
    return canvas.claim(axis, _timeline_claim(names[1], ends, ideals), subject, canvas.LINE)


def _timeline_claim(name, ends, ideals):
    before, after = ends
    ideal = f"{after / ideals[1]:.2f}x the ideal, where it was {before / ideals[0]:.2f}x"
    if before == after:
        return f"{name} leaves the makespan at {after:,} warp instructions: {ideal}"
    change = "cuts" if after < before else "raises"
    return (
        f"{name} {change} the makespan from {before:,} to {after:,} warp instructions "
        f"({after / before - 1:+.0%}): {ideal}"
    )


def differing(before, after):
    """What to call two `Counters` beside each other: the toggles in which their variants differ."""
    one, other = before.variant, after.variant
    if type(one) is not type(other) or one in (None, other):
        return "before", "after"
    names = [f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name)]
    return tuple(", ".join(f"{name}={getattr(v, name)}" for name in names) for v in (one, other))
