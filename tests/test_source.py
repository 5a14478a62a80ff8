"""A kernel's text with its toggles resolved: it runs, and to the same bits."""

import ast
import linecache
import textwrap
from dataclasses import replace
from inspect import getclosurevars
from pathlib import Path

import numpy as np
import pytest
from evidence import MAKE, MASKED, PLAIN, SAMPLED
from lattice import depth, problem, sampled

from sparsekern import LADDERS, Types, sddmm, spmm
from sparsekern.kernels import sddmm as sddmm_page
from sparsekern.kernels import spmm as spmm_page
from sparsekern.machine.launch import make_kernel
from sparsekern.study.branches import fold
from sparsekern.study.codegen import sass
from sparsekern.study.diff import sass_lines
from sparsekern.study.source import source

PAGES = {"spmm": spmm_page, "sddmm": sddmm_page}
STEPS = LADDERS["spmm"] + LADDERS["sddmm"]
RUN = [STEPS[i][1] for i in (0, 4, 8, 14, 16, 17, 20, 25, 28)] + [replace(MASKED, faithful=True)]


def names(text):
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def switches(variant):
    """The names of the toggles that are True or False in the kernel and its helpers."""
    held = getclosurevars(make_kernel(MAKE[variant.op], variant, Types())).nonlocals
    for value in list(held.values()):
        if hasattr(value, "py_func"):
            held = {**held, **getclosurevars(value.py_func).nonlocals}
    return {name for name, value in held.items() if isinstance(value, bool)}


def remade(variant, types):
    """The kernel from its resolved text."""
    text = source(MAKE[variant.op], variant, types)
    name = f"<resolved {hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope = dict(vars(PAGES[variant.op]))
    exec(compile(text, name, "exec"), scope)
    return scope[variant.op]


def result(variant, make):
    if variant.op == "spmm":
        return spmm(*problem(), variant, make=make, backend="emulator")
    return sddmm(*sampled(variant.tile_nnz, depth(variant)), variant, make=make, backend="emulator").values


@pytest.mark.parametrize("step, variant", STEPS)
def test_a_resolved_kernel_parses_and_names_no_switch(step, variant):
    text = source(MAKE[variant.op], variant)
    assert switches(variant)
    assert not switches(variant) & names(text)
    assert {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)} >= {variant.op}


@pytest.mark.parametrize("step, variant", STEPS)
def test_a_resolved_kernel_has_no_line_of_its_own_making_but_those_that_lost_a_part(step, variant):
    page = [line.strip() for line in Path(PAGES[variant.op].__file__).read_text().splitlines()]
    text = source(MAKE[variant.op], variant)
    lines = filter(None, map(str.strip, text[text.index("\n@njit") :].splitlines()))
    new = [line for line in lines if not any(old.endswith(line) for old in page)]
    folded = ("mask = ", "start = shift", "head = int32(1) if ", "if ", "elif ", "wanted = ")
    assert [line for line in new if not line.startswith(folded)] == []
    assert len(new) <= 8


@pytest.mark.parametrize("variant", RUN, ids=str)
def test_the_resolved_text_runs_and_gives_the_same_bits(variant):
    expected, found = (result(variant, make) for make in (MAKE[variant.op], remade))
    assert np.any(expected)
    np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("variant", [PLAIN, SAMPLED], ids=str)
def test_the_resolved_text_compiles_to_the_same_machine_code(variant):
    assert sass_lines(sass(remade, variant)) == sass_lines(sass(MAKE[variant.op], variant))


def test_a_toggle_that_is_on_keeps_its_mark_and_one_that_is_off_leaves_no_line():
    on = source(MAKE["spmm"], MASKED)
    off = source(MAKE["spmm"], replace(MASKED, roma=False, unroll_residue=False))
    for mark in ("# New: roma", "# New: unroll_residue"):
        assert mark in on and mark not in off
    assert "if s < start:" in on and "if s < start:" not in off
    assert "cuda.shared.array" not in source(MAKE["spmm"], LADDERS["spmm"][0][1])


def test_the_sizes_and_types_that_are_still_named_come_first():
    text = source(MAKE["spmm"], MASKED)
    assert (
        "\nVECTOR = 4\n" in text and "\nSUM = numba.float32\n" in text and "\nSUBWARP_MASK = 0xff\n" in text
    )
    assert "UNROLL =" not in source(MAKE["spmm"], replace(MASKED, unroll_residue=False))


CELL = """
def make(variant, types):
    FAST = variant.vector > 1
    VECTOR = variant.vector

    def kernel(out):
        if FAST:  # New: vector
            out[0] = VECTOR  # wide
        else:
            out[0] = 1

    return kernel
"""


def test_a_factory_from_a_notebook_cell_can_be_resolved():
    name = "<ipython-input-1>"
    linecache.cache[name] = (len(CELL), None, CELL.splitlines(keepends=True), name)
    scope = {}
    exec(compile(CELL, name, "exec"), scope)
    text = source(scope["make"], MASKED)
    assert text == "VECTOR = 4\n\n\ndef kernel(out):\n    # New: vector\n    out[0] = VECTOR  # wide\n"


FOLDED = {  # constants: YES, NO, TWO
    "an if that holds": ("if YES:  # why\n    a = 1", "# why\na = 1"),
    "an if that does not, with the comment above": (
        "a = 1\n# about b\nif NO:\n    b = 1\n    # more\nc = 1",
        "a = 1\nc = 1",
    ),
    "an else": ("if NO:\n    a = 1\nelse:  # why\n    b = 1", "# why\nb = 1"),
    "an elif that comes first": (
        "if NO:\n    a = 1\nelif x:  # why\n    b = 1\nelse:\n    c = 1",
        "if x:  # why\n    b = 1\nelse:\n    c = 1",
    ),
    "an elif that holds": (
        "if x:\n    a = 1\nelif YES:  # why\n    b = 1\nelse:\n    c = 1",
        "if x:\n    a = 1\nelse:  # why\n    b = 1",
    ),
    "an elif that does not": (
        "if x:\n    a = 1\nelif NO:\n    b = 1\nelse:\n    c = 1",
        "if x:\n    a = 1\nelse:\n    c = 1",
    ),
    "an elif between": (
        "if x:\n    a = 1\nelif NO:\n    b = 1\nelif y:\n    c = 1",
        "if x:\n    a = 1\nelif y:\n    c = 1",
    ),
    "a last elif that does not": ("if x:\n    a = 1\nelif NO:\n    b = 1", "if x:\n    a = 1"),
    "an if in an else": (
        "if x:\n    a = 1\nelse:\n    if NO:\n        b = 1\n    c = 1",
        "if x:\n    a = 1\nelse:\n    c = 1",
    ),
    "the only statement of a block": ("for i in x:\n    if NO:\n        a = 1", "for i in x:\n    pass"),
    "branches in branches": ("if YES:\n    if NO:\n        a = 1\n    else:\n        b = 1", "b = 1"),
    "one line": ("if YES: a = 1\nif NO: b = 1\nelse: c = 1", "a = 1\nc = 1"),
    "a condition over lines": ("if (\n    YES\n    and TWO > 1\n):  # why\n    a = 1", "# why\na = 1"),
    "a comparison": ("if TWO * 2 - 1 == 3:\n    a = 1", "a = 1"),
    "a word": ("if WORD in ('grid', 'strips') and WORD != 'grid':\n    a = 1", "a = 1"),
    "part of a condition": ("if x and YES and y:\n    a = 1", "if x and y:\n    a = 1"),
    "part of a condition in parentheses": ("if YES and (x or y):\n    a = 1", "if x or y:\n    a = 1"),
    "a condition that cannot hold": ("if x and NO:\n    a = 1\nb = 1", "b = 1"),
    "a call before it is still made": ("if f() and NO:\n    a = 1", "if f() and False:\n    a = 1"),
    "a choice": ("a = b if YES else c  # why", "a = b  # why"),
    "a choice in a call": ("a = f((x + 1) if NO else (y, 2), z)", "a = f((y, 2), z)"),
    "a choice of choices": ("a = x if NO else y if YES else z", "a = y"),
    "a choice on part": ("a = x if y and not NO else z", "a = x if y else z"),
    "a value that is decided": ("a = YES or f(x)", "a = True"),
    "a value that is left": ("a = NO or ((x < y) & z)", "a = (x < y) & z"),
    "the last of a chain is its value": ("a = x and YES", "a = x and True"),
    "a switch in a sum": ("a = x & NO", "a = x & False"),
    "a size stays": ("a = x * TWO", "a = x * TWO"),
    "a condition that has no value stays": ("if TWO // 0 and x:\n    a = 1", "if TWO // 0 and x:\n    a = 1"),
    "comments in a condition": (
        "if (\n    x  # first\n    and YES\n    and y  # third\n    and YES\n):\n    a = 1",
        "if (\n    x  # first\n    and y  # third\n):\n    a = 1",
    ),
    "comments in a choice": (
        "a = (\n    x  # first\n    if YES\n    else y\n)",
        "a = (\n    x  # first\n)",
    ),
    "a comment before what closes": ("a = (x  # c\n    if YES else y)", "a = (x  # c\n    )"),
    "a comment before what closes a chain": (
        "if (x  # c\n    and YES):\n    a = 1",
        "if (x  # c\n    ):\n    a = 1",
    ),
    "the middle and the ends": (
        "if YES and x and YES and (y) and YES:\n    a = 1",
        "if x and (y):\n    a = 1",
    ),
    "letters of several bytes": ("a = 'µµ', x if YES else y  # µs", "a = 'µµ', x  # µs"),
    "layout": (
        "a = f(\n    x,  # first\n    y if YES else z,  # second\n)",
        "a = f(\n    x,  # first\n    y,  # second\n)",
    ),
}


@pytest.mark.parametrize("case", FOLDED)
def test_text_is_folded_and_otherwise_left_as_it_is(case):
    before, after = (f"def f():\n{textwrap.indent(text, '    ')}\n" for text in FOLDED[case])
    assert fold(before, {"YES": True, "NO": False, "TWO": 2, "WORD": "strips"}) == after


def test_blank_lines_do_not_pile_up_where_branches_were():
    text = "def f():\n    a = 1\n\n    if NO:\n        b = 1\n\n    if YES:\n\n        c = 1\n\n    d = 1\n"
    assert fold(text, {"YES": True, "NO": False}) == "def f():\n    a = 1\n\n    c = 1\n\n    d = 1\n"
