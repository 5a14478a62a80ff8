"""What the library promises of its speed on an H200, and what its records say.

`python -m sparsekern.study.scorecard` prints two Markdown tables: every goal with its bar, and speed-ups by
kind of problem. Its exit status is 1 if a bar is missed or not measured.
"""

import argparse
import csv
import json
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sparsekern.selection.table import PATH as TABLES
from sparsekern.study.compare import FASTEST, against, mean
from sparsekern.study.records import RESULTS, RecordError, path_of, provenance_in, read
from sparsekern.study.scaling import BAR, tflops_of

SPARSE = 0.75  # sparsity from which on a sparse kernel should pay
SHORT_US = 8.0  # a problem below this is mostly launch, ramp and tail
NAMES = {"spmm": "SpMM", "sddmm": "SDDMM"}
COUNTS = {  # problems of the paper: (operation, whether only those at least SPARSE)
    ("spmm", False): 77, ("spmm", True): 44,
    ("sddmm", False): 147, ("sddmm", True): 87,
}  # fmt: skip
RIVALS = ("cusparse_us", "sputnik_us", "dense_fp32_us", FASTEST, "dense_tf32_us", "dense_fp16_us")
KINDS = {  # of problems: whether a row is one
    "all": lambda row: True,
    f"at least {SPARSE:.0%} sparse": lambda row: row.sparsity >= SPARSE,
    "less sparse": lambda row: row.sparsity < SPARSE,
    f"below {SHORT_US:g} µs": lambda row: row.time_us < SHORT_US,
}


def speed_up(rows, op, rival, sparse=False, worst=False):
    """Geometric mean, or the least, of a rival's time / ours, of rows of sweep.csv. sparse: SPARSE ones only.

    Raises RecordError unless there is one variant, and a time of the rival, for each problem of the paper.
    """
    some = [row for row in one_of_each(rows) if row.op == op and (not sparse or row.sparsity >= SPARSE)]
    if len(some) != COUNTS[op, sparse]:
        which = f"{op}, at least {SPARSE:.0%} sparse"
        raise RecordError(f"sweep.csv has {len(some)} problems of {which}; it must have {COUNTS[op, sparse]}")
    ratios = _against(some, rival)
    return min(ratio.times for ratio in ratios) if worst else mean(ratios)


def read_launch(path):
    """{what: microseconds} of a launch.csv: of several lines of one thing, the slowest.

    Raises RecordError if it lacks the columns what and time_us.
    """
    with open(path, encoding="utf-8", newline="") as file:
        lines = csv.DictReader(line for line in file if not line.startswith("#"))
        lacking = {"what", "time_us"} - set(lines.fieldnames or ())
        if lacking:
            raise RecordError(f"{path} lacks the columns {', '.join(sorted(lacking))}")
        times = defaultdict(float)
        for line in lines:
            times[line["what"]] = max(times[line["what"]], float(line["time_us"]))
        return dict(times)


def read_choices(path):
    """What `study.choose` found of the record at `path`, by operation, and wrote beside the tables.

    Raises RecordError if the tables were made from a record of another date, commit or kernels.
    """
    kept, origin = json.loads(TABLES.read_text(encoding="utf-8")), provenance_in(path)
    differ = [key for key, value in kept["made"].items() if origin.get(key, value) != value]
    if differ:
        raise RecordError(
            f"{path} is not what {TABLES.name} was made from, by its {', '.join(differ)}: "
            f"python -m sparsekern.study.choose {path}"
        )
    return kept


def _held_out(choices, op):
    return choices[op]["scores"]["held_out_matrix"]


def _rows(path):
    return read(path).rows


READERS = {"launch": read_launch, "candidates": read_choices}  # of studies; the others have rows


def _host(times, what, scale=1.0):
    if what not in times:
        raise RecordError(f"launch.csv has no {what!r}; it has {', '.join(times) or 'nothing'}")
    return times[what] * scale


@dataclass(frozen=True)
class Goal:
    """A figure and what it should be. bar: what it must reach. aim: what it should. most: are these the most,
    and not the least, that it may be? study: the record that tells. measure(what that holds): the figure.
    """

    what: str
    bar: float
    aim: float
    study: str
    measure: Callable
    most: bool = False


@dataclass(frozen=True)
class Score:
    """A goal, and what was measured: None if the record is missing, and then why."""

    goal: Goal
    got: float | None
    why: str = ""

    def reaches(self, figure):
        return self.got is not None and (self.got <= figure if self.goal.most else self.got >= figure)

    @property
    def verdict(self):
        if self.got is None:
            return self.why
        if self.reaches(self.goal.bar):
            return "aim reached" if self.reaches(self.goal.aim) else "reached"
        return f"missed by {abs(self.got / self.goal.bar - 1):.1%}"


def _goals():
    fastest = "the fastest of cuSPARSE, Sputnik and dense fp32"
    ratios = [  # op, of SPARSE ones only, the worst only, rival, its name, bar, aim
        ("spmm", True, False, FASTEST, fastest, 1.30, 1.6),
        ("spmm", False, False, "cusparse_us", "cuSPARSE", 1.30, 1.6),
        ("spmm", False, False, "sputnik_us", "native Sputnik", 1.40, 1.75),
        ("spmm", True, True, FASTEST, "the fastest", 0.92, 1.0),
        ("sddmm", True, False, FASTEST, "the fastest", 1.60, 2.2),
        ("sddmm", False, False, "cusparse_us", "cuSPARSE", 1.70, 2.3),
        ("sddmm", False, False, "sputnik_us", "native Sputnik", 2.5, 3.3),
        ("sddmm", True, True, FASTEST, "the fastest", 0.85, 1.0),
    ]
    for op, sparse, worst, rival, name, bar, aim in ratios:
        which = f"at least {SPARSE:.0%} sparse" if sparse else "all"
        title = f"{NAMES[op]}, {which} ({COUNTS[op, sparse]}), {'the worst ' if worst else ''}against {name}"
        yield Goal(
            title, bar, aim, "sweep", partial(speed_up, op=op, rival=rival, sparse=sparse, worst=worst)
        )
    for op, name in NAMES.items():
        title = f"`select` against the best candidate of {name}, on matrices not used to make it"
        yield Goal(title, 0.95, 0.98, "candidates", partial(_held_out, op=op))
    yield Goal(
        f"SpMM, {BAR[1]}, n = {BAR[2]}, TFLOP/s", 13.5, 15, "scaling", lambda rows: tflops_of(rows, *BAR)
    )
    for title, bar, aim, what, scale in (
        ("host time of a planned launch, µs", 7, 4, "planned launch", 1),
        ("host time of a repeated `spmm(a, b)` on CuPy operands, µs", 30, 12, "spmm(a, b) on CuPy", 1),
        ("first call of a new variant, s (compile included)", 3, 1, "first call of a new variant", 1e-6),
    ):
        yield Goal(title, bar, aim, "launch", partial(_host, what=what, scale=scale), most=True)


GOALS = tuple(_goals())


def scores(gpu="nvidia-h200", results=RESULTS):
    """[`Score`] of GOALS."""
    return [_score(goal, gpu, results) for goal in GOALS]


def _score(goal, gpu, results):
    try:
        path = path_of(goal.study, gpu, results)
    except FileNotFoundError:
        return Score(goal, None, f"not measured: no {goal.study}.csv")
    return Score(goal, goal.measure(READERS.get(goal.study, _rows)(path)))


def card(scores):
    """Lines of a Markdown table of `Score`s."""
    yield "| | bar | aim | measured | |"
    yield "|---|---:|---:|---:|---|"
    for score in scores:
        goal, got = score.goal, "" if score.got is None else f"{score.got:.2f}"
        yield f"| {goal.what} | {goal.bar:g} | {goal.aim:g} | {got} | {score.verdict} |"


def by_kind(rows):
    """Lines of a Markdown table of speed-ups by kind of problem and rival, of rows of sweep.csv."""
    yield "| | cuSPARSE | Sputnik | dense fp32 | fastest of the three, and worst | dense TF32 | dense fp16 |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    rows = one_of_each(rows)
    for op, name in NAMES.items():
        for kind, holds in KINDS.items():
            some = [row for row in rows if row.op == op and holds(row)]
            if not some:
                continue
            cells = [f"{name}, all {len(some)}" if kind == "all" else f"{name}, {kind} ({len(some)})"]
            for rival in RIVALS:
                ratios = _against(some, rival)
                worst = f", {min(ratio.times for ratio in ratios):.2f}" if rival == FASTEST else ""
                cells.append(f"{mean(ratios):.2f}{worst}")
            yield f"| {' | '.join(cells)} |"


def one_of_each(rows):
    """The rows with L2 warm. Raises RecordError unless they are one for each problem of the paper."""
    rows = [row for row in rows if row.l2 == "warm"]
    for op in NAMES:
        problems, count = [row.problem for row in rows if row.op == op], COUNTS[op, False]
        if not len(problems) == len(set(problems)) == count:
            raise RecordError(
                f"sweep.csv has {len(problems)} rows of {op}, of {len(set(problems))} problems; it must have "
                f"one of each of {count}. Go on with it; or start anew, if the choices have changed"
            )
    return rows


def _against(rows, rival):
    ratios = against(rows, rival)
    if len(ratios) != len(rows):
        raise RecordError(f"{len(rows) - len(ratios)} of {len(rows)} problems in sweep.csv have no {rival}")
    return ratios


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern.study.scorecard", description=__doc__)
    parser.add_argument("--gpu", default="nvidia-h200", help="a folder of the results (default: nvidia-h200)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="default: data/results")
    arguments = parser.parse_args(words)
    try:
        found = scores(arguments.gpu, arguments.results)
        kinds = by_kind(read(path_of("sweep", arguments.gpu, arguments.results)).rows)
        print(*card(found), "", *kinds, sep="\n")
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return int(not all(score.reaches(score.goal.bar) for score in found))


if __name__ == "__main__":
    sys.exit(main())
