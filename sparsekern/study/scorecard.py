"""What the library promises of its speed on an H200, and what its records say.

`python -m sparsekern.study.scorecard` prints two Markdown tables: every goal with its bar, and speed-ups by
kind of problem. Its exit status is 1 if a bar is missed or not measured.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sparsekern.selection.table import PATH as TABLES
from sparsekern.study.compare import FASTEST, against, mean
from sparsekern.study.launch_cost import read_launch_costs
from sparsekern.study.records import RESULTS, RecordError, path_of, provenance_in, read
from sparsekern.study.scaling import BAR, tflops_of

SPARSE = 0.75  # sparsity from which on a sparse kernel should pay
SHORT_US = 8.0  # a problem below this is mostly launch, ramp and tail
NAMES = {"spmm": "SpMM", "sddmm": "SDDMM"}
COUNTS = {  # problems of the paper: (operation, whether only those at least SPARSE)
    ("spmm", False): 77, ("spmm", True): 44,
    ("sddmm", False): 147, ("sddmm", True): 87,
}  # fmt: skip
TABLE_RIVALS = ("cusparse_us", "sputnik_us", "dense_fp32_us", FASTEST, "dense_tf32_us", "dense_fp16_us")
PROBLEM_KINDS = {  # whether a row is one
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


def _score_of(choices, op, which):
    return choices[op]["scores"][which]


def _rows(path):
    return read(path).rows


def _costs(path):
    return read_launch_costs(path).rows


READERS = {"launch": _costs, "candidates": read_choices}  # of studies; the others have rows


def _host(costs, what, scale=1.0):
    """Microseconds of a call, times `scale`: of several of one thing, the slowest."""
    times = [cost.time_us for cost in costs if cost.what == what]
    if not times:
        there = ", ".join(dict.fromkeys(cost.what for cost in costs))
        raise RecordError(f"launch.csv has no {what!r}; it has {there or 'nothing'}")
    return max(times) * scale


@dataclass(frozen=True)
class Goal:
    """A figure and what it should be.

    bar: what it must reach. aim: what it should; both None for a figure that is only shown. most: are these
    the most, and not the least, that it may be? study: the record that tells. measure(what that holds): the
    figure.
    """

    what: str
    bar: float | None
    aim: float | None
    study: str
    measure: Callable
    most: bool = False

    def holds(self, figure, mark):
        """Whether a figure is as good as a mark, such as the bar; without one it is."""
        return mark is None or (figure <= mark if self.most else figure >= mark)


@dataclass(frozen=True)
class Score:
    """A goal, and what was measured: None if the record is missing or will not do, and then why."""

    goal: Goal
    got: float | None
    why: str = ""

    def reaches(self, mark):
        return self.got is not None and self.goal.holds(self.got, mark)

    @property
    def figure(self):
        """What was measured, with three digits, or as many as it takes to fall on its side of bar and aim."""
        if self.got is None:
            return ""
        marks, decimals = (self.goal.bar, self.goal.aim), 2 if self.got >= 1 else 3
        while any(self.goal.holds(round(self.got, decimals), mark) != self.reaches(mark) for mark in marks):
            decimals += 1
        return f"{self.got:.{decimals}f}"

    @property
    def verdict(self):
        if self.got is None:
            return self.why
        if self.goal.bar is None:
            return "shown"
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
        title = f"`select` against the best candidate of {name}, on"
        matrix, layer = (partial(_score_of, op=op, which=f"held_out_{part}") for part in ("matrix", "layer"))
        yield Goal(f"{title} matrices not used to make it", 0.95, 0.98, "candidates", matrix)
        yield Goal(f"{title} layers not used to make it at any sparsity", None, None, "candidates", layer)
    yield Goal(
        f"SpMM, {BAR[1]}, n = {BAR[2]}, TFLOP/s", 13.5, 15, "scaling", lambda rows: tflops_of(rows, *BAR)
    )
    for title, bar, aim, what, scale in (
        ("host time of a planned launch, 64 x 64, µs", 7, 4, "planned launch", 1),
        (
            "host time of a repeated `spmm(a, b)` on CuPy, 64 x 64, µs",
            30,
            12,
            "spmm(a, b) on CuPy",
            1,
        ),
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
    try:
        return Score(goal, goal.measure(READERS.get(goal.study, _rows)(path)))
    except RecordError as error:
        return Score(goal, None, " ".join(str(error).split()))


def card(scores):
    """Lines of a Markdown table of `Score`s."""
    yield "| | bar | aim | measured | |"
    yield "|---|---:|---:|---:|---|"
    for score in scores:
        goal = score.goal
        bar, aim = ("" if mark is None else f"{mark:g}" for mark in (goal.bar, goal.aim))
        yield f"| {goal.what} | {bar} | {aim} | {score.figure} | {score.verdict} |"


def by_kind(rows):
    """Lines of a Markdown table of speed-ups by kind of problem and rival, of rows of sweep.csv."""
    yield "| | cuSPARSE | Sputnik | dense fp32 | fastest of the three, and worst | dense TF32 | dense fp16 |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    rows = one_of_each(rows)
    for op, name in NAMES.items():
        for kind, holds in PROBLEM_KINDS.items():
            some = [row for row in rows if row.op == op and holds(row)]
            if not some:
                continue
            cells = [f"{name}, all {len(some)}" if kind == "all" else f"{name}, {kind} ({len(some)})"]
            for rival in TABLE_RIVALS:
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
    found = scores(arguments.gpu, arguments.results)
    print(*card(found), sep="\n")
    try:
        kinds = list(by_kind(read(path_of("sweep", arguments.gpu, arguments.results)).rows))
        print("", *kinds, sep="\n")
    except (OSError, RecordError) as error:
        print(error, file=sys.stderr)
    missed = sum(not score.reaches(score.goal.bar) for score in found)
    if missed:
        print(f"\nMissed {missed} of {len(found)}: the exit status is 1", file=sys.stderr)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
