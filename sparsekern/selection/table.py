"""Tables of what candidates cost on recorded problems, and what to expect of others.

tables.json has for each problem its features, and how many percent slower than the best each candidate was. A
cost is log(time of a candidate / time of the best one): a mean of costs is the logarithm of a geometric mean.
"""

import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from sparsekern.naming import parse_variant
from sparsekern.selection.features import FEATURES

PATH = Path(__file__).with_name("tables.json")
NUGGET = 0.1  # doublings: two problems of the same features differ as much as two that are so far apart
DIGITS = 9  # of costs: candidates that differ by less are as good as each other, and the first is chosen


@dataclass(frozen=True)
class Table:
    """Recorded problems, and what candidates cost on them.

    problems: (problems,) names. variants: (candidates,). values: (problems, features), above 0. costs:
    (problems, candidates), at least 0.
    """

    problems: tuple
    variants: tuple
    values: np.ndarray
    costs: np.ndarray

    def weights(self, values):
        """(problems,): how much each tells of a problem with `values`, (features,). They sum to 1, and some
        may be below 0. Beyond the range of what is recorded, its edge counts.

        Ordinary kriging with a linear variogram (Matheron, Principles of Geostatistics, 1963): costs of two
        problems are expected to differ, in square, in proportion to their distance, which is that of the
        logarithms of their features. Of weights that sum to 1, these have the least expected error.
        """
        at = np.log2(np.clip(values, self.values.min(0), self.values.max(0)))
        right = np.append(-np.linalg.norm(np.log2(self.values) - at, axis=1), 1)
        return (self._solved @ right)[:-1]

    @cached_property
    def _solved(self):
        """The inverse of the matrix of kriging: distances, bordered by the rule that weights sum to 1."""
        at, count = np.log2(self.values), len(self.values)
        system = np.ones((count + 1, count + 1))
        system[:-1, :-1] = NUGGET * np.eye(count) - np.linalg.norm(at[:, None] - at, axis=2)
        system[-1, -1] = 0
        return np.linalg.inv(system)

    def choice(self, weights):
        """Of the candidates that should cost least, the first."""
        return int(np.round(weights @ self.costs, DIGITS).argmin())


@cache
def tables(path=PATH):
    """{op: `Table`} from a file that `study.choose` made."""
    kept = json.loads(Path(path).read_text(encoding="utf-8"))
    return {op: _read(op, kept[op]) for op in FEATURES}


def _read(op, kept):
    rows = kept["problems"]
    variants = tuple(parse_variant(op, text) for text in kept["candidates"])
    values = np.array([row["features"] for row in rows], float)
    costs = costs_of(np.array([row["slower"] for row in rows]))
    return Table(tuple(row["problem"] for row in rows), variants, values, costs)


def costs_of(percent):
    """Costs of times that are so many percent above the least."""
    return np.log1p(percent / 100)


def in_words(op, values, table, weights):
    """What a choice was made from: the features, {name: number}, and which problem counted most."""
    at = ", ".join(f"{values[name]:.3g} {what}" for name, what in FEATURES[op].items())
    most = weights.argmax()
    return (
        f"{at}: between {len(weights)} recorded problems, of which {table.problems[most]} counts most, "
        f"{weights[most]:.0%}"
    )
