"""Makes the tables by which `select` chooses, from a record of the times of all candidates.

python -m sparsekern.study.choose data/results/nvidia-h200/candidates.csv
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np

from sparsekern.naming import format_variant, parse_variant
from sparsekern.selection.candidates import MOST, candidates
from sparsekern.selection.features import FEATURES, features
from sparsekern.selection.fitting import fitted
from sparsekern.selection.table import DIGITS, PATH, Table, costs_of
from sparsekern.study.records import RecordError, read, resident_warps
from sparsekern.study.row_lengths import problems_of, read_row_lengths
from sparsekern.textfiles import write_text
from sparsekern.toggles import VariantError

CARRIED = ("gpu", "sms", "date", "commit", "kernels_sha256")  # of a record's provenance, to the tables'
COLUMNS = 20  # candidates in a table, at most: the others seldom are the best by much


@dataclass
class Study:
    """The problems of one operation, and what each candidate costs on them.

    table: of all candidates. percent: (problems, candidates), of how much more than the least time each took,
    which `table` has as costs. matrices, layers: (problems,) ints: which are of one matrix. Problems of one
    layer, by name and shape, are look-alikes, whatever their sparsity and pruning method; so are generated
    ones of one shape.
    """

    op: str
    table: Table
    percent: np.ndarray
    matrices: np.ndarray
    layers: np.ndarray

    @cached_property
    def kept(self):
        """The columns of the candidates that `select` chooses from."""
        return few(self.table.costs)

    @cached_property
    def scores(self):
        """{what: text or number}: geometric means of time of the best candidate / time of the chosen one.

        held_out_layer, held_out_matrix: on layers, or on matrices, that the table had not seen.
        """
        table, everything = self.table, np.ones(len(self.matrices), bool)
        layer, matrix = (held_out_costs(table, groups) for groups in (self.layers, self.matrices))
        worst = int(layer.argmax())
        return {
            "problems": len(table.problems),
            "matrices": len(np.unique(self.matrices)),
            "layers": len(np.unique(self.layers)),
            "candidates_timed": len(table.variants),
            "candidates_kept": len(self.kept),
            "held_out_layer": _score(layer),
            "held_out_matrix": _score(matrix),
            "seen": _score(costs_of_chosen(table, everything, everything)),
            "one_candidate_for_all": _score(table.costs[:, table.costs.sum(0).argmin()]),
            "worst_of_held_out_layers": _score(layer[[worst]]),
            "worst_problem": table.problems[worst],
        }

    @property
    def written(self):
        """The candidates and problems of the table, as JSON keeps them."""
        table, kept = self.table, self.kept
        rows = zip(table.problems, table.values.tolist(), self.percent[:, kept].tolist(), strict=True)
        problems = [
            {"problem": name, "features": [json.loads(_short(value)) for value in at], "slower": slower}
            for name, at, slower in rows
        ]
        return {
            "candidates": [format_variant(table.variants[column]) for column in kept],
            "problems": problems,
        }


def few(costs, most=COLUMNS):
    """Up to `most` columns of costs, (problems, candidates): one by one, those that most lessen the mean over
    problems of the cost of the best of them.
    """
    kept, least = [], np.full(len(costs), np.inf)
    for _ in range(min(most, costs.shape[1])):
        together = np.minimum(costs, least[:, None])
        column = int(np.round(together.sum(0), DIGITS).argmin())
        if column in kept:
            break
        kept.append(column)
        least = together[:, column]
    return sorted(kept)


def costs_of_chosen(table, seen, unseen):
    """(problems,): costs, on the `unseen` problems, of what is chosen by a table made of those `seen`.

    seen, unseen: (problems,) bools.
    """
    kept = few(table.costs[seen])
    known = replace(table, values=table.values[seen], costs=table.costs[seen][:, kept])
    chosen = [kept[known.choice(known.weights(values))] for values in table.values[unseen]]
    return table.costs[unseen, chosen]


def held_out_costs(table, groups):
    """(problems,): costs on each problem of what is chosen by a table made without all of its group.

    groups: (problems,) ints, which no two problems of one matrix have different.
    """
    costs = np.zeros(len(groups))
    for group in np.unique(groups):
        costs[groups == group] = costs_of_chosen(table, groups != group, groups == group)
    return costs


def _score(costs):
    return round(float(np.exp(-costs.mean())), 4)


def study(op, record, row_lengths):
    """The `Study` of an operation. record: a `records.Record`, whose rows with a warm L2 count. row_lengths:
    {matrix: `RowStats`}.

    Raises RecordError for a record without rows of `op`, of more than MOST variants, of matrices that
    `row_lengths` lacks, other than generated ones, of problems without a nonzero, or of one layer.
    """
    times, problems = defaultdict(dict), {}
    parsed = cache(partial(parse_variant, op))
    rows = [row for row in record.rows if row.op == op and row.l2 == "warm"]
    for row, problem in zip(rows, problems_of(rows, row_lengths), strict=True):
        times[row.matrix, row.width][parsed(row.variant)] = row.time_us
        problems[row.matrix, row.width] = problem
    problems = dict(sorted(problems.items()))
    variants = sorted({variant for timed in times.values() for variant in timed}, key=format_variant)
    if not 0 < len(variants) <= MOST:
        raise RecordError(f"the record has {len(variants)} variants of {op}; it must have 1 to {MOST}")
    warps = resident_warps(record)
    values = np.array([_values(problem, warps) for problem in problems.values()])
    if not values.all():
        raise RecordError(f"the record has problems of {op} without a nonzero, a row or a column")
    percent = np.array([_percent(variants, times[key], problem) for key, problem in problems.items()])
    side = "n" if op == "spmm" else "k"
    names = tuple(f"{matrix} at {side}={width}" for matrix, width in problems)
    layers = _numbered(_layer_of(matrix, problem) for (matrix, _), problem in problems.items())
    if not layers.any():
        raise RecordError(
            f"the record has one layer of {op}; it must have 2 at least, of which to hold one out"
        )
    table = Table(names, tuple(variants), values, costs_of(percent))
    return Study(op, table, percent, _numbered(matrix for matrix, _ in problems), layers)


def _layer_of(matrix, problem):
    """What tells layers apart: name and shape; of generated matrices the shape."""
    *folders, name = matrix.split("/")
    return (name if folders else "generated"), problem.sparse_shape


def _values(problem, warps):
    """The features of a problem, as a table has them."""
    return [float(_short(value)) for value in features(problem, warps).values()]


def _short(number):
    """A number in as many digits as a table has."""
    return f"{number:.6g}"


def _percent(variants, times, problem):
    """How many percent more than the least time each candidate takes on a problem.

    `select` runs a candidate fitted to the problem. If that was not timed, the candidate itself counts, which
    leaves more lanes idle; if that was not either, or none can run, the slowest that was.
    """
    slowest, fastest = max(times.values()), min(times.values())
    found = []
    for variant in variants:
        try:
            found.append(times.get(fitted(variant, problem), times.get(variant, slowest)))
        except VariantError:
            found.append(slowest)
    return np.round((np.array(found) / fastest - 1) * 100, 1)


def _numbered(names):
    """(names,) ints: which are the same."""
    return np.unique([str(name) for name in names], return_inverse=True)[1]


def text(record, name, studies):
    """What the file of tables holds. name: what the record is called."""
    made = {"made_by": "python -m sparsekern.study.choose", "record": name}
    made |= {key: record.provenance[key] for key in CARRIED if key in record.provenance}
    kept = {s.op: {"scores": s.scores, "features": list(FEATURES[s.op]), **s.written} for s in studies}
    return _json({"made": made, **kept}) + "\n"


def _json(value, indent="\n", depth=3):
    """JSON with a line for each item of objects and arrays, down to `depth` of them."""
    if not depth or not isinstance(value, dict | list):
        return json.dumps(value)
    inner = indent + " "
    if isinstance(value, list):
        return f"[{inner}{f',{inner}'.join(_json(item, inner, depth - 1) for item in value)}{indent}]"
    items = (f"{json.dumps(key)}: {_json(item, inner, depth - 1)}" for key, item in value.items())
    return f"{{{inner}{f',{inner}'.join(items)}{indent}}}"


def _check_candidates(record):
    """Raises RecordError unless all variants of a record are candidates: `select` will choose among them."""
    for op in FEATURES:
        known = set(map(format_variant, candidates(op)))
        for row in record.rows:
            if row.op == op and row.variant not in known:
                raise RecordError(
                    f"the record has {row.variant} of {op}, which is no candidate: they are in "
                    f"sparsekern/selection/{op}.txt; --out names another file for its table"
                )


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern.study.choose", description=__doc__)
    help = "times of all candidates: bench --variants candidates, for both operations"
    parser.add_argument("record", type=Path, metavar="RECORD", help=help)
    help = "where the tables go; default: where select looks for them"
    parser.add_argument("--out", type=Path, default=PATH, metavar="JSON", help=help)
    arguments = parser.parse_args(words)
    try:
        record, lengths = read(arguments.record), read_row_lengths()
        if arguments.out == PATH:
            _check_candidates(record)
        if not arguments.out.parent.is_dir():
            raise FileNotFoundError(f"--out is {arguments.out}, and there is no folder of that name")
        studies = [study(op, record, lengths) for op in FEATURES]
        write_text(arguments.out, text(record, arguments.record.name, studies))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for each in studies:
        print(each.op, *(f"{what}: {value}" for what, value in each.scores.items()), sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
