"""Makes the trees by which `select` chooses, from a record of the times of all candidates.

python -m sparsekern.study.choose data/results/nvidia-h200/candidates.csv
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from sparsekern.naming import format_variant, parse_variant
from sparsekern.selection.candidates import MOST
from sparsekern.selection.features import FEATURES, features
from sparsekern.selection.fitting import fitted
from sparsekern.selection.tree import PATH, Leaf, Split, leaves, written
from sparsekern.study.growing import Table, costs_of, grow, held_out_costs, right_size
from sparsekern.study.records import RecordError, read, resident_warps
from sparsekern.study.row_lengths import problems_of, read_row_lengths
from sparsekern.toggles import VariantError

CARRIED = ("gpu", "sms", "date", "commit", "kernels_sha256")  # of a record's provenance, to the trees'


@dataclass
class Study:
    """The problems of one operation, what each candidate costs on them, and the tree made of that.

    problems: (matrix, width) of each row of `table`. layers: (problems,) ints: problems of one layer, by name
    and shape, are look-alikes, whatever their sparsity and pruning method. size: leaves
    that the tree may have.
    """

    op: str
    problems: list
    variants: list
    table: Table
    layers: np.ndarray

    def __post_init__(self):
        self.size, self.root = right_size(self.table), grow(self.table)

    @property
    def tree(self):
        """A `Split` or a `Leaf`."""
        return self._tree(self.root)

    def _tree(self, node):
        if not node.grown or node.grown > self.size:
            return Leaf(self.variants[node.choice], len(node.rows))
        name = list(FEATURES[self.op])[node.feature]
        return Split(name, node.threshold, self._tree(node.below), self._tree(node.above))

    @cached_property
    def scores(self):
        """{what: text or number}: geometric means of time of the best candidate / time of the chosen one.

        held_out_layer, held_out_matrix: on layers, or on matrices, that the tree had not seen.
        """
        table = self.table
        layer, matrix = (held_out_costs(table, groups) for groups in (self.layers, table.matrices))
        worst = int(layer.argmax())
        name, width = self.problems[worst]
        return {
            "problems": len(self.problems),
            "matrices": len(np.unique(table.matrices)),
            "layers": len(np.unique(self.layers)),
            "candidates": len(self.variants),
            "leaves": len(leaves(self.tree)),
            "held_out_layer": _score(layer),
            "held_out_matrix": _score(matrix),
            "seen": _score(costs_of(self.root, table, self.size)),
            "one_candidate_for_all": _score(table.costs[:, table.costs.sum(0).argmin()]),
            "worst_of_held_out_layers": _score(layer[[worst]]),
            "worst_problem": f"{name} at {'n' if self.op == 'spmm' else 'k'}={width}",
        }


def _score(costs):
    return round(float(np.exp(-costs.mean())), 4)


def study(op, record, row_lengths):
    """The `Study` of an operation. record: a `records.Record`, whose rows with a warm L2 count. row_lengths:
    {matrix: `RowStats`}.

    Raises RecordError for a record without rows of `op`, of more than MOST variants, or of matrices that
    `row_lengths` lacks, other than generated ones.
    """
    times, problems = defaultdict(dict), {}
    rows = [row for row in record.rows if row.op == op and row.l2 == "warm"]
    for row, problem in zip(rows, problems_of(rows, row_lengths), strict=True):
        times[row.matrix, row.width][parse_variant(op, row.variant)] = row.time_us
        problems[row.matrix, row.width] = problem
    problems = dict(sorted(problems.items()))
    variants = sorted({variant for timed in times.values() for variant in timed}, key=format_variant)
    if not 0 < len(variants) <= MOST:
        raise RecordError(f"the record has {len(variants)} variants of {op}; it must have 1 to {MOST}")
    warps = resident_warps(record)
    values = [list(features(problem, warps).values()) for problem in problems.values()]
    costs = [_costs(variants, times[key], problem) for key, problem in problems.items()]
    table = Table(np.array(values, float), np.array(costs), _numbered(matrix for matrix, _ in problems))
    layers = [(matrix.rsplit("/", 1)[-1], p.sparse_shape) for (matrix, _), p in problems.items()]
    return Study(op, list(problems), variants, table, _numbered(layers))


def _costs(variants, times, problem):
    """log(time / least time) of each candidate on a problem.

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
    return np.log(np.array(found) / fastest)


def _numbered(names):
    """(names,) ints: which are the same."""
    return np.unique([str(name) for name in names], return_inverse=True)[1]


def text(record, name, studies):
    """What the file of trees holds. name: what the record is called."""
    made = {"made_by": "python -m sparsekern.study.choose", "record": name}
    made |= {key: record.provenance[key] for key in CARRIED if key in record.provenance}
    kept = {s.op: {"scores": s.scores, "tree": written(s.tree)} for s in studies}
    return json.dumps({"made": made, **kept}, indent=1) + "\n"


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern.study.choose", description=__doc__)
    help = "times of all candidates: bench --variants candidates, for both operations"
    parser.add_argument("record", type=Path, metavar="RECORD", help=help)
    help = "where the trees go; default: where select looks for them"
    parser.add_argument("--out", type=Path, default=PATH, metavar="JSON", help=help)
    arguments = parser.parse_args(words)
    try:
        record, lengths = read(arguments.record), read_row_lengths()
        studies = [study(op, record, lengths) for op in FEATURES]
        arguments.out.write_text(text(record, arguments.record.name, studies), encoding="utf-8", newline="\n")
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for each in studies:
        print(each.op, *(f"{what}: {value}" for what, value in each.scores.items()), sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
