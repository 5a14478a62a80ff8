"""What records say: the best variant against each rival, and one record against another.

Every figure is a geometric mean of ratios of times, over problems, in which more than 1 is faster: than the
rival, or than before.
"""

import argparse
import sys
from collections import defaultdict
from dataclasses import dataclass
from statistics import geometric_mean

from rich.console import Console
from rich.table import Table

from sparsekern.study.records import path_of, read

FP32 = ("cusparse_us", "sputnik_us", "dense_fp32_us")
RIVAL_TIMES = ("cusparse_us", "sputnik_us", "dense_fp32_us", "dense_tf32_us", "dense_fp16_us")
FASTEST = "fastest fp32"  # of FP32, in each problem the fastest that was timed
EDGES = (0.60, 0.75, 0.85, 0.925, 0.965)  # sparsity: between 0.5 0.7 0.8 0.9 0.95 0.98, which DLMC aims at
PAGE = 160  # columns of tables that go to a file
SHOWN = 8  # wins, and losses, that are named unless all are asked for
BANDS = ("below 60%", "60 to 75%", "75 to 85%", "85 to 92.5%", "92.5 to 96.5%", "96.5% up")


@dataclass(frozen=True)
class Ratio:
    """How many times faster in one problem. `row` is the one that is judged."""

    row: object
    times: float

    @property
    def band(self):
        return BANDS[sum(self.row.sparsity >= edge for edge in EDGES)]


def best(rows):
    """{problem: the row of its fastest variant}. Problems are told apart by the state of L2, too."""
    fastest = {}
    for row in rows:
        if row.problem not in fastest or row.time_us < fastest[row.problem].time_us:
            fastest[row.problem] = row
    return fastest


def rival_us(row, rival):
    """Microseconds of a rival, of RIVAL_TIMES or FASTEST, in the problem of `row`; None if not timed."""
    if rival != FASTEST:
        return getattr(row, rival)
    return min((us for us in (getattr(row, name) for name in FP32) if us is not None), default=None)


def against(rows, rival):
    """[`Ratio`] of the best variant of each problem to a rival, where that was timed."""
    pairs = ((row, rival_us(row, rival)) for row in best(rows).values())
    return [Ratio(row, us / row.time_us) for row, us in pairs if us is not None]


def between(before, after):
    """[`Ratio`] of the best variants of `after` to those of `before`, for the problems that both have."""
    old = best(before)
    return [
        Ratio(row, old[problem].time_us / row.time_us)
        for problem, row in best(after).items()
        if problem in old
    ]


def same_variants(before, after):
    """{variant: [`Ratio`]}: the same variant after and before, for what both have."""
    old, found = {(row.problem, row.variant): row for row in before}, defaultdict(list)
    for row in after:
        if (row.problem, row.variant) in old:
            ratio = old[row.problem, row.variant].time_us / row.time_us
            found[row.variant].append(Ratio(row, ratio))
    return dict(found)


def mean(ratios):
    """Geometric mean of ratios, which must be some."""
    return geometric_mean(ratio.times for ratio in ratios)


def page():
    """A console as wide as the terminal, or as PAGE where there is none."""
    return Console(width=None if sys.stdout.isatty() else PAGE)


def report_command(study, report, description, words=None):
    """The command of a study that reports on its record: the exit status. report(console, name, record)."""
    parser = argparse.ArgumentParser(prog=f"python -m sparsekern.study.{study}", description=description)
    parser.add_argument("csv", nargs="?", help=f"a record (default: data/results/nvidia-h200/{study}.csv)")
    path = parser.parse_args(words).csv
    try:
        path = path or path_of(study)
        report(page(), str(path), read(path))
    except (OSError, ValueError) as error:  # of a file that is not there, or no such record
        print(error, file=sys.stderr)
        return 2
    return 0


def report(console, name, record, before=None, every=False):
    """Prints what `record` says: against each rival, or, if a record `before` is given, against that.

    every: name each problem that is won or lost, and not only SHOWN of them, the clearest.

    Raises ValueError if there is nothing to compare.
    """
    said = False
    for (op, l2), rows in _groups(record.rows).items():
        if before is None:
            one = all(len({row.variant for row in group}) == 1 for group in _by_problem(rows))
            which = "the recorded variant" if one else "the best of the recorded variants"
            title = f"{op}, L2 {l2}: {which} against its rivals, {name}"
            lines = {_label(rival): against(rows, rival) for rival in (*RIVAL_TIMES, FASTEST)}
            judged = lines[FASTEST]
        else:
            old = _groups(before.rows).get((op, l2), [])
            title = f"{op}, L2 {l2}: {name}"
            lines = {"best variant": (judged := between(old, rows)), **same_variants(old, rows)}
        lines = {label: ratios for label, ratios in lines.items() if ratios}
        if not lines:
            continue
        said = True
        console.print(f"\n{title}", soft_wrap=True, style="bold", markup=False, highlight=False)
        made = ", ".join(record.provenance[key] for key in ("gpu", "date") if key in record.provenance)
        console.print(f"time of the other / time of ours, geometric mean (number of problems); {made}")
        width = "n" if op == "spmm" else "k"
        console.print(_table("by sparsity", lines, lambda ratio: ratio.band, BANDS))
        widths = sorted({ratio.row.width for ratios in lines.values() for ratio in ratios})
        console.print(_table(f"by {width}", lines, lambda ratio: ratio.row.width, widths))
        _wins_and_losses(console, judged, FASTEST if before is None else "before", every)
    if not said:
        other = "rival times" if before is None else "problem in common"
        raise ValueError(f"{name}: no {other}, so there is nothing to compare")


def _groups(rows):
    groups = defaultdict(list)
    for row in rows:
        groups[row.op, row.l2].append(row)
    return groups


def _by_problem(rows):
    groups = defaultdict(list)
    for row in rows:
        groups[row.problem].append(row)
    return groups.values()


def _label(rival):
    return rival.removesuffix("_us").replace("_", " ")


def _table(title, lines, key, columns):
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="italic")
    table.add_column("", overflow="fold")
    columns = [c for c in columns if any(key(ratio) == c for ratios in lines.values() for ratio in ratios)]
    for column in ("all", *columns):
        table.add_column(str(column), justify="right")
    for label, ratios in lines.items():
        groups = [ratios, *([r for r in ratios if key(r) == column] for column in columns)]
        table.add_row(label, *(f"{mean(group):.2f} ({len(group)})" if group else "" for group in groups))
    return table


def _wins_and_losses(console, ratios, rival, every):
    """Prints problems by name that are no draw, the losses first, worst first, then the wins, best first."""
    ordered = sorted(ratios, key=lambda ratio: ratio.times)
    lost, won = ([r for r in ordered if r.times < 1], [r for r in reversed(ordered) if r.times > 1])
    for title, some in (("losses to", lost), ("wins over", won)):
        console.print(f"{len(some)} {title} {rival}", style="italic", highlight=False)
        for ratio in some if every else some[:SHOWN]:
            row = ratio.row
            at = f"{'n' if row.op == 'spmm' else 'k'}={row.width}"
            line = f"  {ratio.times:5.2f}  {at:7} {row.matrix}  {row.variant}"
            console.print(line, soft_wrap=True, markup=False, highlight=False)
        if len(some) > SHOWN and not every:
            console.print(f"  ... and {len(some) - SHOWN} more: --all names them", highlight=False)
