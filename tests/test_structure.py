"""Imports run one way, and modules stay small."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "sparsekern"
LAYERS = [  # a module imports from its own layer and from those before it
    {"arrays", "libraries", "lru", "formats", "foreign", "problem", "textfiles"},
    {"toggles", "variants", "naming", "ladders"},
    {"machine"},
    {"kernels"},
    {"reference", "generators", "datasets", "zoo", "selection", "select", "factories", "operands", "ops"},
    {"study"},
    {"doctor", "__main__", "__init__"},
]
DEFERRED = {("formats", "ops")}  # Csr @ b is spmm, looked up at the call
MODULES = sorted(ROOT.rglob("*.py"))


def layer(module):
    return next(depth for depth, names in enumerate(LAYERS) if module in names)


def imports(path):
    """(module, whether at the top level) that a file imports from sparsekern."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sparsekern":
            inner = node.module.split(".")[1:2] or [alias.name for alias in node.names]
            yield from ((name, node in tree.body) for name in inner)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_imports_only_from_layers_below(path):
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    upward = {name for name, _ in imports(path) if layer(name) > layer(own)}
    assert {(own, name) for name in upward} <= DEFERRED
    assert not {name for name, top in imports(path) if top and name in upward}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_is_one_idea_in_at_most_300_lines_and_says_which(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    assert ast.get_docstring(ast.parse(text))


def test_llvm_is_spoken_in_one_place():
    assert [p.name for p in MODULES if "llvmlite" in imports_of_all(p)] == ["lanes.py"]


def imports_of_all(path):
    tree = ast.walk(ast.parse(path.read_text()))
    names = [alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names]
    tree = ast.walk(ast.parse(path.read_text()))
    names += [node.module or "" for node in tree if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names}
