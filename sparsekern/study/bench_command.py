"""python -m sparsekern bench: time variants on layers or made matrices, or compare what was timed."""

import sys
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import monotonic

from sparsekern.datasets import dlmc
from sparsekern.ladders import LADDERS
from sparsekern.naming import format_variant
from sparsekern.selection.candidates import candidates
from sparsekern.selection.candidates import read_variants as read_file
from sparsekern.study import scaling
from sparsekern.study.ablation import choice_and_each_off
from sparsekern.study.cases import cases
from sparsekern.study.compare import FASTEST, page, report, rival_us
from sparsekern.study.records import LEVELS, Appender, Record, read
from sparsekern.study.sweep import WrongKernel, meant, read_sputnik, sweep
from sparsekern.study.tools import timing_imports
from sparsekern.toggles import VariantError
from sparsekern.variants import check_op

INTERRUPTED = 130  # the exit status that shells give a program ended by Ctrl-C
UNFINISHED = 75  # EX_TEMPFAIL of sysexits.h: the same command, later, does the rest


class OutOfTime(Exception):
    """The minutes that a command was given are over."""


def bench(arguments):
    """The command. 0 if all went well, 1 if a kernel or a baseline was wrong, 2 for what cannot be done,
    UNFINISHED if time was up before all was timed.
    """
    try:
        console = page()
        if arguments.compare:
            return _compare(console, arguments.compare, arguments.all)
        return _measure(console, arguments)
    except (OSError, ValueError, RuntimeError) as error:  # of a file, a variant, a record; no GPU, no library
        print(error, file=sys.stderr)
        return 2


def read_variants(op, text):
    """The variants that --variants names, as `sweep` takes them; [None], the library's choice, for "default".

    Raises VariantError, naming file and line, for one that is none, TypeError for another operation.
    """
    check_op(op)
    if text == "default":
        return [None]
    if text == "ladder":
        return [variant for _, variant in LADDERS[op]]
    if text == "ablation":
        return [choice_and_each_off]
    return list(candidates(op)) if text == "candidates" else read_file(op, text)


def _compare(console, paths, every):
    if len(paths) > 2:
        raise ValueError(f"--compare got {len(paths)} files; it takes one or two")
    records = [read(path) for path in paths]
    names = [Path(path).name for path in paths]
    if len(records) == 2:
        report(console, f"{names[1]} against {names[0]}", records[1], before=records[0], every=every)
        for key in dict.fromkeys(key for record in records for key in record.provenance):
            old, new = (record.provenance.get(key) for record in records)
            if old != new:
                console.print(f"{key}: {old}, then {new}", soft_wrap=True, markup=False, highlight=False)
    for name, record in zip(names, records, strict=True):
        if len(records) == 1 or any(_has_rivals(row) for row in record.rows):
            report(console, name, record, every=every)
    return 0


def _measure(console, arguments):
    op, levels = arguments.op, LEVELS if arguments.l2 == "both" else (arguments.l2,)
    variants = read_variants(op, arguments.variants)
    todo = _problems(op, arguments)
    carried = read_sputnik(arguments.sputnik) if arguments.sputnik else None
    Laboratory, provenance = _instruments()
    baselines = not arguments.no_baselines and not arguments.repeat
    with Laboratory(baselines=baselines) as laboratory:
        if arguments.repeat:
            return _repeat(console, laboratory, todo, variants, levels, arguments.repeat)
        versions = laboratory.libraries.versions() if baselines else None
        origin = provenance(arguments.l2, versions, carried is not None)
        appender = Appender(arguments.out, origin) if arguments.out else nullcontext(_InMemory())
        with appender as record:
            status = _sweep(console, todo, variants, levels, record, laboratory.open, carried, arguments)
    if status not in (INTERRUPTED, UNFINISHED) and any(_has_rivals(row) for row in record.rows):
        report(console, arguments.out or "this run", Record(origin, record.rows))
    return status


def _problems(op, arguments):
    """The `Case` list that the arguments name. Raises ValueError if that is none."""
    if arguments.problems == "scaling":
        for name, default in (("dlmc", None), ("n", "paper")):
            if getattr(arguments, name) != default:
                raise ValueError(
                    f"--{name} is of layers; --problems scaling has matrices and widths of its own"
                )
        todo = [case for case in scaling.problems(op) if _wanted(case.layer, arguments.matrix)]
        where = "matrix of scaling"
    else:
        layers = [layer for layer in dlmc(arguments.dlmc) if _wanted(layer, arguments.matrix)]
        todo, where = cases(op, layers, arguments.n), "layer of the tree"
    if not todo:
        raise ValueError(f"--matrix is {', '.join(arguments.matrix)}; no {where} has that in its name")
    return todo


def _instruments():
    """(Laboratory, provenance), which need the CUDA of a GPU extra."""
    with timing_imports():
        from sparsekern.study.provenance import provenance
        from sparsekern.study.workbench import Laboratory
    return Laboratory, provenance


def _sweep(console, todo, variants, levels, record, measure, carried, arguments):
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    out, before = arguments.out, len(record.rows)
    end = monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    try:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task("", total=len(todo) * len(variants) * len(levels))

            def advance(case):
                progress.update(task, advance=1, description=f"{case.width:5} {case.matrix[-48:]}")
                # Not before something new is there, or a command called again and again might never end.
                if monotonic() > end and len(record.rows) > before and not progress.finished:
                    raise OutOfTime

            outcome = sweep(todo, variants, levels, record, measure, carried, advance)
    except (KeyboardInterrupt, OutOfTime) as stopped:
        how = (
            f"{out} has all of them: the same command goes on from there" if out else "none is kept: no --out"
        )
        late = isinstance(stopped, OutOfTime)
        why = f"Stopped, as {arguments.minutes:g} minutes are over," if late else "Interrupted"
        new = f", {len(record.rows) - before} of them new" if late else ""
        print(f"{why} after {len(record.rows)} timings{new}; {how}.", file=sys.stderr)
        return UNFINISHED if late else INTERRUPTED
    print(f"{outcome.measured} timings, and {outcome.known} recorded before", end="")
    print(f", in {out}" if out else "")
    for what, lines in (("cannot run", outcome.refused), ("WRONG, not recorded", outcome.wrong)):
        for line in lines:
            console.print(f"{what}: {line}", soft_wrap=True, markup=False, highlight=False)
    if not record.rows and not outcome.wrong:
        raise ValueError("no variant can run any of these problems")
    return int(bool(outcome.wrong))


def _repeat(console, laboratory, todo, variants, levels, times):
    """Prints, for each problem and variant, how far `times` medians are apart."""
    status = 0
    for case in todo:
        with laboratory.open(case) as bench:
            every = [variant for wanted in variants for variant in meant(wanted, bench)]
            for l2, variant in [(l2, variant) for l2 in levels for variant in dict.fromkeys(every)]:
                title = f"{case.op} {case.matrix} {case.width}, {format_variant(variant)}, L2 {l2}"
                try:
                    us = [bench.time(variant, l2).us for _ in range(times)]
                except (VariantError, WrongKernel) as failure:
                    console.print(f"{title}: {failure}", soft_wrap=True, markup=False, highlight=False)
                    status = 1
                    continue
                spread = (max(us) - min(us)) / median(us)
                text = f"{times} medians around {median(us):.2f} µs, largest - smallest {spread:.2%} of that"
                console.print(f"{title}: {text}", soft_wrap=True, markup=False, highlight=False)
    return status


class _InMemory:
    """A record without a file."""

    def __init__(self):
        self.rows = []
        self.append = self.rows.append


def _has_rivals(row):
    return rival_us(row, FASTEST) is not None


def _wanted(layer, texts):
    return not texts or any(text in layer.name for text in texts)
