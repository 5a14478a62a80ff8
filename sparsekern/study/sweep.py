"""The loop over problems and variants: what is recorded already is not measured again."""

import csv
from dataclasses import dataclass, field
from io import StringIO

from sparsekern.naming import format_variant
from sparsekern.study.records import Row
from sparsekern.textfiles import parsing, read_text
from sparsekern.toggles import Variant, VariantError
from sparsekern.variants import KINDS

RIVAL_COLUMNS = ("cusparse_us", "cusparse_alg", "dense_fp32_us", "dense_tf32_us", "dense_fp16_us")


class WrongKernel(Exception):
    """A result that is further from float64 than rounding explains."""


@dataclass
class Outcome:
    """What a sweep came to. wrong: kernels and baselines whose results are, never recorded. refused:
    variants that cannot run a problem. Both as text that names them.
    """

    measured: int = 0
    known: int = 0  # recorded before
    wrong: list = field(default_factory=list)
    refused: list = field(default_factory=list)


def sweep(cases, variants, levels, record, measure, carried=None, advance=lambda case: None):
    """Times every variant on every case at every level of L2, and appends each time to `record` at once.

    variants: a list; None in it is the variant that the library would choose, and a function of a `Workbench`
    returns a list of variants for its problem. levels: of LEVELS. record: has `rows`, those measured before,
    and `append`. measure(case): a context manager that gives a `Workbench`, or what has its `sizes`,
    `choose`, `time` and `rivals`. carried: see `read_sputnik`. advance(case) is called after each of
    `variants` at each level, new or not; what it raises ends the sweep.

    A variant with a wrong result is not timed: it is named in the `Outcome`, and the sweep goes on.
    """
    outcome, carried = Outcome(), carried or {}
    done = {(row.problem, row.variant) for row in record.rows}
    rivals = {row.problem: {name: getattr(row, name) for name in RIVAL_COLUMNS} for row in record.rows}
    for case in cases:
        asked = [((case.op, case.matrix, case.width, l2), wanted) for l2 in levels for wanted in variants]
        if all(_is_variant(v) and (problem, format_variant(v)) in done for problem, v in asked):
            outcome.known += len(asked)
            for _ in asked:
                advance(case)
            continue
        with measure(case) as bench:
            tried = set()
            for problem, wanted in asked:
                for variant in meant(wanted, bench):
                    if (problem, variant) in tried:
                        continue
                    tried.add((problem, variant))
                    if (problem, format_variant(variant)) in done:
                        outcome.known += 1
                        continue
                    l2 = problem[-1]
                    if problem not in rivals:
                        rivals[problem], wrong = bench.rivals(l2)
                        outcome.wrong += [f"{_title(case)}: {what}" for what in wrong]
                    _time(case, bench, variant, l2, record, rivals[problem], carried, outcome)
                advance(case)
    return outcome


def meant(wanted, bench):
    """The list of variants that an element of `variants` stands for on a `Workbench`."""
    if _is_variant(wanted):
        return [wanted]
    return [bench.choose()] if wanted is None else wanted(bench)


def _is_variant(wanted):
    return isinstance(wanted, Variant)


def _time(case, bench, variant, l2, record, rivals, carried, outcome):
    name = format_variant(variant)
    try:
        timing = bench.time(variant, l2)
    except WrongKernel as failure:
        outcome.wrong.append(f"{_title(case)}, {name}: {failure}")
        return
    except VariantError as refusal:
        outcome.refused.append(f"{_title(case)}, {name}: {refusal}")
        return
    sizes = bench.sizes
    key = case.op, case.matrix, sizes["m"], sizes["k"], sizes["n"]
    sputnik = carried.get(key) if l2 == "warm" else None
    times = {"time_us": timing.us, "spread": timing.spread, "l2": l2, "sputnik_us": sputnik}
    record.append(Row(op=case.op, matrix=case.matrix, variant=name, **sizes, **times, **rivals))
    outcome.measured += 1


def _title(case):
    return f"{case.op} {case.matrix} at {'n' if case.op == 'spmm' else 'k'}={case.width}"


def read_sputnik(path):
    """{(op, matrix, m, k, n): microseconds} of native Sputnik, float32, L2 warm, for operations of KINDS.

    path: a CSV file with columns op, dtype, matrix, m, k, n and sputnik_us. Raises ValueError without it or
    them, and, naming the line, for what is no number.
    """
    wanted = ("op", "dtype", "matrix", "m", "k", "n", "sputnik_us")
    lines = csv.DictReader(StringIO(read_text(path, "file of Sputnik's times")))
    lacking = [name for name in wanted if name not in (lines.fieldnames or ())]
    if lacking:
        raise ValueError(f"{path} lacks the columns {', '.join(lacking)}; it must have {', '.join(wanted)}")
    found = {}
    with parsing(path):
        rows = [(lines.line_num, line) for line in lines]
    for number, line in rows:
        if line["op"] not in KINDS or line["dtype"] != "float32" or not line["sputnik_us"]:
            continue
        try:
            key = (line["op"], line["matrix"], *(int(line[size]) for size in "mkn"))
            found[key] = float(line["sputnik_us"])
        except (TypeError, ValueError):  # None, where a line is too short
            cells = ", ".join(f"{name} {line[name]!r}" for name in wanted[3:])
            raise ValueError(f"{path}, line {number}, has {cells}; all must be numbers") from None
    return found
