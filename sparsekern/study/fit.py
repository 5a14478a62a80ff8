"""The constants of the prediction in `study.cost`, fitted: python -m sparsekern.study.fit --dlmc DIR."""

import argparse
import sys
from collections import defaultdict
from dataclasses import astuple, replace
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.stats import kendalltau

from sparsekern.datasets import layers_named
from sparsekern.foreign import as_topology
from sparsekern.naming import parse_variant
from sparsekern.problem import RowStats
from sparsekern.study import cost
from sparsekern.study.gpus import GPUS
from sparsekern.study.records import load
from sparsekern.study.row_lengths import problem_of
from sparsekern.study.work import work_of

STARTS = 12  # from which the search begins


class Point(NamedTuple):
    """A row of a record, with what `cost` works from."""

    row: object
    bounds: cost.Bounds
    work: object


def points(record, tree, gpu):
    """A `Point` for each row of a record, of layers of a DLMC tree. Raises as `layers_named`."""
    by_matrix = defaultdict(list)
    for row in record.rows:
        by_matrix[row.matrix].append(row)
    layers = layers_named(by_matrix, tree)
    for name, rows in by_matrix.items():
        topology = as_topology(layers[name].load())
        stats = RowStats.of(topology.row_lengths)
        for row in rows:
            problem, variant = problem_of(row, stats), parse_variant(row.op, row.variant)
            bounds = cost.bounds_of(topology, problem, variant, gpu)
            yield Point(row, bounds, work_of(topology, problem, variant))


def errors(points):
    """|log(predicted / measured)| of each point."""
    return [abs(np.log(p.bounds.predicted_us / p.row.time_us)) for p in points]


def agreement(points):
    """Kendall's tau between predicted and measured times of the steps of a ladder, for each problem."""
    by_problem = defaultdict(list)
    for point in points:
        by_problem[point.row.problem].append((point.bounds.predicted_us, point.row.time_us))
    return [kendalltau(*zip(*pairs, strict=True)).statistic for pairs in by_problem.values()]


def fit(op, points, gpu):
    """The `Pace` of least mean |log(predicted / measured)|. Factors of bounds stay at least 1."""
    measured = np.array([p.row.time_us for p in points])
    terms = np.array([cost.terms(p.bounds.us, p.work, gpu) for p in points])

    def pace(x):
        start, issue, l1, l2, latency, block, power = np.exp(np.clip(x, -10, 10))
        return cost.Pace(start, 1 + issue, 1 + l1, l2, latency, block, 1 + power)

    def loss(x):
        return np.abs(np.log(cost.predict(pace(x), gpu.launch_us, terms) / measured)).mean()

    first, rng = np.log([0.5, 2, 0.5, 0.5, 300, 0.5, 1]), np.random.default_rng(0)
    found = [
        minimize(loss, first + rng.normal(0, 0.5, len(first)), method="Nelder-Mead", options={"maxiter": 900})
        for _ in range(STARTS)
    ]
    best = min(found, key=lambda result: result.fun)
    return cost.Pace(*(float(f"{x:.3g}") for x in astuple(pace(best.x))))


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern.study.fit", description=__doc__)
    parser.add_argument("--dlmc", metavar="DIR", help="a DLMC tree; default: SPARSEKERN_DLMC")
    arguments = parser.parse_args(words)
    gpu = GPUS["h200"]
    try:
        everything = list(points(load("ladder"), arguments.dlmc, gpu))
    except (OSError, ValueError) as error:  # of the record, or the tree
        print(error, file=sys.stderr)
        return 2
    for op in cost.PACES:
        mine = [p for p in everything if p.row.op == op]
        pace = fit(op, mine, gpu)
        print(op, pace)
        times = [cost.predicted_us(pace, p.bounds.us, p.work, gpu) for p in mine]
        again = [
            p._replace(bounds=replace(p.bounds, predicted_us=us)) for p, us in zip(mine, times, strict=True)
        ]
        print(f"  median |log(predicted / measured)| {median(errors(again)):.3f}")
        print(f"  median of Kendall's tau {median(agreement(again)):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
