"""Growing a tree that chooses, from what each choice costs: small, and judged on what it has not seen.

A cost is log(time of a candidate / time of the best one): 0 for the best; a mean of costs is the logarithm of
a geometric mean. CART (Breiman et al., 1984) with these for its impurity: the choice of a leaf is the
candidate with the least sum of costs there, and a split is the one that lessens that sum most.
"""

from dataclasses import dataclass
from math import floor, log10, sqrt

import numpy as np

LEAVES = 16  # of a tree, at most
FEWEST = 2  # problems in a leaf
LEEWAY = 0.005  # 0.5%: among sizes that do as well on what is unseen, the largest does best on what is seen
GAIN = 1e-9  # of a split, at least: more than rounding


@dataclass
class Table:
    """What a tree is made from. Rows are problems.

    values: (problems, features). costs: (problems, candidates), at least 0. matrices: (problems,) ints, which
    tell apart the matrices that problems are of.
    """

    values: np.ndarray
    costs: np.ndarray
    matrices: np.ndarray

    def __len__(self):
        return len(self.costs)

    def part(self, which):
        """The rows that a (problems,) array of bools names."""
        return Table(self.values[which], self.costs[which], self.matrices[which])


class Node:
    """A node of a growing tree: the rows that come to it, its choice, and how it splits if it does.

    choice: a column of costs. grown: leaves of the tree once this node is split; None for one that never is.
    """

    def __init__(self, table, rows, choice):
        self.rows, self.choice, self.grown = rows, choice, None
        self.split = _best_split(table, rows, choice)

    def into(self, table, grown):
        """Splits the node: a tree with `grown` leaves."""
        _, self.feature, self.threshold, *choices = self.split
        below = table.values[self.rows, self.feature] < self.threshold
        parts = self.rows[below], self.rows[~below]
        self.grown = grown
        self.below, self.above = (Node(table, *part) for part in zip(parts, choices, strict=True))
        return self.below, self.above


def grow(table, most=LEAVES):
    """The root of a tree with up to `most` leaves, the most useful splits first.

    So the same tree, read as if it had fewer leaves, is the one that would have been grown to those.
    """
    root = Node(table, np.arange(len(table)), int(table.costs.sum(0).argmin()))
    ends = [root]
    while len(ends) < most:
        best = max(ends, key=lambda node: node.split[0] if node.split else 0)
        if not best.split:
            break
        ends.remove(best)
        ends += best.into(table, len(ends) + 2)
    return root


def costs_by_size(root, table, most=LEAVES):
    """(problems, most): what the trees of 1 to `most` leaves in `root` cost on each row of a table."""
    found = np.empty((len(table), most))
    for row, (values, costs) in enumerate(zip(table.values, table.costs, strict=True)):
        node, size = root, 0  # leaves of the last tree that is dealt with
        while size < most:
            until = node.grown - 1 if node.grown else most
            found[row, size:until] = costs[node.choice]
            if node.grown:
                node = node.below if values[node.feature] < node.threshold else node.above
            size = until
    return found


def costs_of(root, table, leaves):
    """(problems,): the same for one of these trees."""
    return costs_by_size(root, table)[:, leaves - 1]


def right_size(table, most=LEAVES):
    """How many leaves a tree should have: the most whose mean cost, on matrices that trees have not seen, is
    within LEEWAY of the least.
    """
    costs = np.zeros(most)
    for unseen in _each(table.matrices):
        root = grow(table.part(~unseen), most)
        costs += costs_by_size(root, table.part(unseen), most).sum(0)
    good = costs <= costs.min() + LEEWAY * len(table)
    return int(np.flatnonzero(good)[-1]) + 1


def held_out_costs(table, groups, most=LEAVES):
    """(problems,): costs on each problem of a tree of the right size, both made without all of its group.

    groups: (problems,) ints, which no two problems of one matrix have different.
    """
    costs = np.zeros(len(table))
    for unseen in _each(groups):
        seen = table.part(~unseen)
        costs[unseen] = costs_of(grow(seen, most), table.part(unseen), right_size(seen, most))
    return costs


def _each(groups):
    """For each group, an array of bools: who belongs to it."""
    return [groups == group for group in np.unique(groups)]


def _best_split(table, rows, choice):
    """(gain, feature, threshold, choice below, choice above), or None where no split gains anything."""
    before, best = table.costs[rows, choice].sum(), (GAIN,)
    for feature in range(table.values.shape[1]):
        order = rows[np.argsort(table.values[rows, feature], kind="stable")]
        values = table.values[order, feature]
        below = np.cumsum(table.costs[order], axis=0)
        counts = np.arange(FEWEST, len(order) - FEWEST + 1)  # of rows below the threshold
        counts = counts[values[counts - 1] < values[counts]]
        if not len(counts):
            continue
        sums = below[counts - 1], below[-1] - below[counts - 1]
        gains = before - sums[0].min(1) - sums[1].min(1)
        at = int(gains.argmax())
        if gains[at] > best[0] + GAIN:
            threshold = round_between(values[counts[at] - 1], values[counts[at]])
            best = (gains[at], feature, threshold, *(int(part[at].argmin()) for part in sums))
    return best if len(best) > 1 else None


def round_between(low, high):
    """A number above `low`, not above `high`, near their geometric mean, of as few digits as that allows."""
    middle = sqrt(low * high) if low > 0 else (low + high) / 2
    for digits in range(1, 17):
        rounded = round(middle, digits - 1 - floor(log10(abs(middle)))) if middle else 0.0
        if low < rounded <= high:
            return float(rounded)
    return float(high)
