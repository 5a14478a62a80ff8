"""Trees that lead from the features of a problem to a candidate, as they are kept in trees.json."""

import json
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path

from sparsekern.naming import format_variant, parse_variant
from sparsekern.selection.features import FEATURES

PATH = Path(__file__).with_name("trees.json")


@dataclass(frozen=True)
class Leaf:
    """The end of a path. problems: of those that made the tree, how many ended here."""

    variant: object
    problems: int


@dataclass(frozen=True)
class Split:
    """A question: is `feature` below `threshold`? `then` is the tree for yes, `otherwise` the one for no."""

    feature: str
    threshold: float
    then: object
    otherwise: object


@cache
def trees(path=PATH):
    """{op: tree}, each a `Split` or a `Leaf`, from a file that `study.choose` made."""
    kept = json.loads(Path(path).read_text(encoding="utf-8"))
    return {op: _read(op, kept[op]["tree"]) for op in FEATURES}


def _read(op, node):
    if "variant" in node:
        return Leaf(parse_variant(op, node["variant"]), node["problems"])
    then, otherwise = (_read(op, node[branch]) for branch in ("then", "else"))
    return Split(node["feature"], node["below"], then, otherwise)


def written(tree):
    """The tree as JSON keeps it."""
    if isinstance(tree, Leaf):
        return {"variant": format_variant(tree.variant), "problems": tree.problems}
    branches = {"then": written(tree.then), "else": written(tree.otherwise)}
    return {"feature": tree.feature, "below": tree.threshold, **branches}


def leaves(tree):
    """All leaves of a tree, from left to right."""
    return [tree] if isinstance(tree, Leaf) else [*leaves(tree.then), *leaves(tree.otherwise)]


def find(tree, values):
    """(leaf, path): where `values`, {feature: number}, lead, and {feature: (at least, below)} on the way."""
    path = {}
    while isinstance(tree, Split):
        low, high = path.get(tree.feature, (-inf, inf))
        if values[tree.feature] < tree.threshold:
            path[tree.feature], tree = (low, tree.threshold), tree.then
        else:
            path[tree.feature], tree = (tree.threshold, high), tree.otherwise
    return tree, path


def in_words(op, values, path):
    """What was asked on the way, with the numbers: "31 (at least 0.6) warps of C per resident warp, ..."."""
    return ", ".join(
        f"{values[name]:.3g} ({_bounds(*bounds)}) {FEATURES[op][name]}" for name, bounds in path.items()
    )


def _bounds(low, high):
    least, below = f"at least {low:g}", f"below {high:g}"
    return " and ".join(([least] if low > -inf else []) + ([below] if high < inf else []))
