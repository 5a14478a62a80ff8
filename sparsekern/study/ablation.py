"""What each toggle is worth: what `select` chooses for a problem, and that with each of its toggles off.

`python -m sparsekern.study.ablation [CSV]` prints it, of a record that `bench --variants ablation` made;
without a file, of the one on an H200.
"""

import sys
from collections import defaultdict
from dataclasses import dataclass, fields

from rich.table import Table

from sparsekern.ladders import without
from sparsekern.naming import format_variant, parse_variant
from sparsekern.study.compare import Ratio, mean, report_command
from sparsekern.study.records import RecordError, Row


@dataclass(frozen=True)
class Ablation(Ratio):
    """Time without a toggle / time with it, in one problem: more than 1 is what the toggle gains.

    row: of the variant that `select` chose. off: of the nearest legal one without the toggle. moved:
    {field: (old, new)}, what else had to move, see `ladders.without`.
    """

    off: Row
    moved: dict


def toggled_off(variant):
    """{toggle: (nearest legal variant without it, {field: (old, new)} that had to move)}, of those on."""
    return {f.name: without(variant, f.name) for f in fields(variant) if variant.is_on(f.name)}


def each_off(variant):
    """[variant, then each that `toggled_off` gives]"""
    return [variant, *(off for off, _ in toggled_off(variant).values())]


def choice_and_each_off(bench):
    """What an ablation times on a `Workbench`: what the library chooses, and that with each toggle off."""
    return each_off(bench.choose())


def ablations(rows):
    """{toggle: [`Ablation`]} of the rows of one operation at one state of L2.

    The first row of a problem is of the variant that `select` chose; which of the others belongs to which
    toggle is computed anew from the variants. A variant that cannot run a problem has no row in it. Raises
    RecordError for a row that is neither: then this is no record of an ablation.
    """
    problems, found = defaultdict(list), defaultdict(list)
    for row in rows:
        problems[row.problem].append(row)
    for first, *others in problems.values():
        chosen, by_variant = parse_variant(first.op, first.variant), {row.variant: row for row in others}
        off = {toggle: (format_variant(v), moved) for toggle, (v, moved) in toggled_off(chosen).items()}
        strangers = set(by_variant) - {name for name, _ in off.values()}
        if strangers:
            raise RecordError(
                f"{first.op} {first.matrix} at {first.width} has {strangers.pop()}; each variant of an "
                f"ablation must be the first of its problem, {first.variant}, with a toggle off"
            )
        for toggle, (name, moved) in off.items():
            if name in by_variant:
                row = by_variant[name]
                found[toggle].append(Ablation(first, row.time_us / first.time_us, row, moved))
    return dict(found)


def report(console, name, record):
    """Prints what each toggle gains, by operation and state of L2, the most first.

    alone: the geometric mean over the problems in which nothing else had to move.
    """
    groups = defaultdict(list)
    for row in record.rows:
        groups[row.op, row.l2].append(row)
    for (op, l2), rows in groups.items():
        found = ablations(rows)
        if not found:
            raise RecordError(f"{name} has one variant a problem, so that no toggle is off in any")
        title = f"\n{op}, L2 {l2}: time without a toggle / time with it, {name}"
        console.print(title, soft_wrap=True, style="bold", markup=False, highlight=False)
        table = Table(box=None, pad_edge=False)
        table.add_column("toggle")
        numbers = "geometric mean", "least", "most", "problems", "of them it costs", "alone", "problems"
        for column in numbers:
            table.add_column(column, justify="right")
        table.add_column("moves with it")
        for toggle, ratios in sorted(found.items(), key=lambda pair: -mean(pair[1])):
            times = [ratio.times for ratio in ratios]
            moved = ", ".join(sorted({field for ratio in ratios for field in ratio.moved}))
            alone = [ratio for ratio in ratios if not ratio.moved]
            numbers = f"{mean(ratios):.2f}", f"{min(times):.2f}", f"{max(times):.2f}"
            counts = str(len(times)), str(sum(t < 1 for t in times))
            by_itself = (f"{mean(alone):.2f}", str(len(alone))) if alone else ("", "")
            table.add_row(toggle, *numbers, *counts, *by_itself, moved)
        console.print(table)


def main(words=None):
    return report_command("ablation", report, __doc__, words)


if __name__ == "__main__":
    sys.exit(main())
