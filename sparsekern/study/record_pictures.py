"""Recorded times: who is fastest at which sparsity and width. Needs matplotlib."""

from collections import Counter, defaultdict
from itertools import chain

from matplotlib.patches import Patch, Rectangle

from sparsekern.study import canvas
from sparsekern.study.compare import BANDS, EDGES, FASTEST, FP32, against, best, mean

OURS = "sparsekern"
TITLES = {"spmm": "SpMM", "sddmm": "SDDMM"}
LABELS = {"cusparse_us": "cuSPARSE", "sputnik_us": "Sputnik", "dense_fp32_us": "dense fp32"}
HATCHES = {OURS: "", "cuSPARSE": "////", "Sputnik": "....", "dense fp32": "xxxx"}


def crossover(record, gpu, op="spmm", l2="warm", ax=None):
    """A map of sparsity by width of the dense operands: who is fastest, and by how much.

    In each cell the best variant of each problem is set against the fastest of cuSPARSE, Sputnik and dense
    fp32 in that problem. The number is the geometric mean of (time of that rival / ours), with how many
    problems it is over. The cell is ours if that is at least 1, else of the rival that is the fastest most
    often.

    record: a `Record`. gpu: its name, for the title. op, l2: which rows of the record. Returns the Axes.

    Raises ValueError if there are no such rows, or one lacks the dense time: dense is always a rival.
    """
    rows = [row for row in record.rows if (row.op, row.l2) == (op, l2)]
    if not rows:
        found = sorted({(row.op, row.l2) for row in record.rows})
        raise ValueError(f"op is {op!r} and l2 is {l2!r}; the record has rows of {found or 'nothing'}")
    for row in best(rows).values():
        if row.dense_fp32_us is None:
            at = f"{row.matrix} at width {row.width}"
            raise ValueError(f"dense_fp32_us of {at} is missing; dense is always a rival")
    cells = defaultdict(list)
    for ratio in against(rows, FASTEST):
        cells[ratio.band, ratio.row.width].append(ratio)
    bands = [band for band in BANDS if any(band == b for b, _ in cells)]
    widths = sorted({width for _, width in cells})
    winners = {cell: winner(ratios) for cell, ratios in cells.items()}

    axis = canvas.axes(ax, 2.4 + 0.85 * max(len(widths), 3), 1.6 + 0.52 * max(len(bands), 2))
    colours = dict(zip(HATCHES, canvas.shades(len(HATCHES))[::-1], strict=True))
    for (band, width), ratios in cells.items():
        x, y, name = widths.index(width), bands.index(band), winners[band, width]
        look = dict(facecolor=colours[name], hatch=HATCHES[name], edgecolor="white", linewidth=1.5)
        axis.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **look))
        box = dict(facecolor=colours[name], edgecolor="none", pad=1.5)
        text = f"{mean(ratios):.2f}x\nof {len(ratios)}"
        style = dict(ha="center", va="center", fontsize=canvas.SMALL, color=canvas.ink(colours[name]))
        axis.text(x, y, text, bbox=box, **style)
    axis.set(xlim=(-0.5, len(widths) - 0.5), ylim=(-0.5, len(bands) - 0.5))
    axis.set(xticks=range(len(widths)), xticklabels=[f"{width:,}" for width in widths])
    axis.set(yticks=range(len(bands)), yticklabels=bands)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    columns = "n (columns of B)" if op == "spmm" else "k (inner dimension, elements)"
    canvas.label(axis, columns, "sparsity of the matrix")
    shown = [name for name in HATCHES if name == OURS or name in _timed(rows)]
    handles = [Patch(facecolor=colours[n], hatch=HATCHES[n], edgecolor="white", label=n) for n in shown]
    note = "fastest; number: time of the\nfastest rival / ours, of so many\nproblems; blank: none measured"
    canvas.legend(axis, handles, note)
    return canvas.claim(axis, _crossover_claim(op, gpu, cells, winners, bands))


def winner(ratios):
    """The name of who is fastest over problems, given the `Ratio` of each to its fastest rival."""
    if mean(ratios) >= 1:
        return OURS
    firsts = Counter(_fastest(ratio.row) for ratio in ratios)
    return max(LABELS.values(), key=lambda name: firsts[name])


def _fastest(row):
    times = {LABELS[rival]: getattr(row, rival) for rival in FP32 if getattr(row, rival) is not None}
    return min(times, key=times.__getitem__)


def _timed(rows):
    return {label for rival, label in LABELS.items() if any(getattr(row, rival) is not None for row in rows)}


def _crossover_claim(op, gpu, cells, winners, bands):
    """How many cells are ours, and how far we are behind and ahead below and above some sparsity."""
    won = sum(name == OURS for name in winners.values())
    text = f"{TITLES[op]} on {gpu}: {OURS} is fastest in {won} of {len(cells)} cells"
    by_band = [[r for (b, _), ratios in cells.items() if b == band for r in ratios] for band in bands]
    first = max((at for at, ratios in enumerate(by_band) if mean(ratios) < 1), default=-1) + 1
    below, above = (list(chain.from_iterable(some)) for some in (by_band[:first], by_band[first:]))
    if not (below and above):
        return f"{text}, {mean(below + above):.2f}x the fastest rival over all"
    edge = f"{100 * EDGES[BANDS.index(bands[first]) - 1]:g}% sparsity"
    return f"{text}, {mean(below):.2f}x the fastest rival below {edge} and {mean(above):.2f}x above"
