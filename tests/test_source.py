"""A kernel's text with its toggles resolved: it runs, and to the same bits."""

import ast
import linecache
import textwrap
from dataclasses import replace
from functools import partial
from inspect import getclosurevars
from pathlib import Path

import numba
import numpy as np
import pytest
from evidence import MAKE, MASKED, PLAIN, SAMPLED
from lattice import depth, problem, sampled

from sparsekern import LADDERS, Types, sddmm, spmm
from sparsekern.kernels import sddmm as sddmm_page
from sparsekern.kernels import spmm as spmm_page
from sparsekern.machine.launch import make_kernel
from sparsekern.study import branches
from sparsekern.study.branches import fold
from sparsekern.study.codegen import sass
from sparsekern.study.diff import sass_lines
from sparsekern.study.source import source

PAGES = {"spmm": spmm_page, "sddmm": sddmm_page}
STEPS = LADDERS["spmm"] + LADDERS["sddmm"]
RUN = [STEPS[i][1] for i in (0, 4, 8, 14, 15, 18, 19, 24, 31)] + [replace(MASKED, faithful=True)]


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
    page = Path(make_kernel(MAKE[variant.op], variant, Types()).__code__.co_filename).read_text()
    page = [line.strip() for line in page.splitlines()]
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


def factory(text):
    """`make` of the text of a notebook cell."""
    name = f"<ipython-input-{hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope = {"numba": numba, "njit": numba.njit}
    exec(compile(text, name, "exec"), scope)
    return scope["make"]


def made(body, before, page=""):
    """`make` of a page: its kernel, or the body of it, stands after the lines `before`."""
    body = body if body.startswith("def") else f"def kernel(out):\n{textwrap.indent(body, '    ')}"
    lines = f"{before}\n\n{body}\nreturn kernel"
    return factory(f"{page}\ndef make(variant, types):\n{textwrap.indent(lines, '    ')}\n")


def ran(text, **scope):
    """What kernel(out) of a resolved text leaves in out[0]."""
    out = [None]
    exec(text, scope)
    scope["kernel"](out)
    return out[0]


def test_a_factory_from_a_notebook_cell_can_be_resolved():
    text = source(factory(CELL), MASKED)
    assert text == "VECTOR = 4\n\n\ndef kernel(out):\n    # New: vector\n    out[0] = VECTOR  # wide\n"


CONSTANTS = {"YES": True, "NO": False, "TWO": 2, "WORD": "strips", "PAIR": (2, 3), "NOTHING": None}
FOLDED = {
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
    "part of a condition in parentheses": ("if YES and (x or y):\n    a = 1", "if (x or y):\n    a = 1"),
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
    "a condition over lines of which a part goes": (
        "if (\n    x\n    and YES\n    and y  # why\n    and YES\n):\n    a = 1",
        "if (\n    x and y\n):\n    a = 1",
    ),
    "a choice over lines": ("a = (\n    x\n    if YES\n    else y\n)", "a = (\n    x\n)"),
    "a looser part of a choice": ("a = (YES and (x if y else z)) or w", "a = ((x if y else z)) or w"),
    "a chain in a chain": ("a = x and (NO or y or z) and w", "a = x and (y or z) and w"),
    "the middle and the ends": (
        "if YES and x and YES and (y) and YES:\n    a = 1",
        "if x and y:\n    a = 1",
    ),
    "letters of several bytes": ("a = 'µµ', x if YES else y  # µs", "a = 'µµ', x  # µs"),
    "layout": (
        "a = f(\n    x,  # first\n    y if YES else z,  # second\n)",
        "a = f(\n    x,  # first\n    y,  # second\n)",
    ),
    "a comment before the else that goes": ("if YES:\n    a = 1\n# or\nelse:\n    b = 1", "a = 1"),
    "a comment before the else that stays": (
        "if NO:\n    a = 1\n# or\nelse:\n    for i in x:\n        b = 1",
        "# or\nfor i in x:\n    b = 1",
    ),
    "a comment before an elif, after a block": (
        "for i in x:\n    b = 1\nif YES:\n    a = 1\n# or\nelif y:\n    c = 1",
        "for i in x:\n    b = 1\na = 1",
    ),
    "a comment before an elif that goes": (
        "if x:\n    a = 1\n# or\nelif NO:\n    b = 1\nelse:\n    c = 1",
        "if x:\n    a = 1\nelse:\n    c = 1",
    ),
    "lines left of their block": (
        "if YES:\n    a = f(\n  x,\n        y)\n# c\n    b = 1",
        "a = f(\nx,\n    y)\n# c\nb = 1",
    ),
    "a string over lines": (
        "if YES:\n    a = '''\n        deep  \n\n\n    # no comment\n    '''\n    b = 1",
        "a = '''\n        deep  \n\n\n    # no comment\n    '''\nb = 1",
    ),
    "a string that ends like a comment": (
        "a = '''\n# x'''\nif NO:\n    b = 1\nc = 1",
        "a = '''\n# x'''\nc = 1",
    ),
    "a form feed in a comment": ("if YES:\n    a = 1  # x\fy\nb = 1", "a = 1  # x\fy\nb = 1"),
    "an f-string": ("a = f'{x if YES else y}'",) * 2,
    "a finally of its own": (
        "try:\n    a = 1\nfinally:\n    if NO:\n        b = 1",
        "try:\n    a = 1\nfinally:\n    pass",
    ),
    "a case of its own": (
        "match x:\n    case 1:\n        if NO:\n            b = 1",
        "match x:\n    case 1:\n        pass",
    ),
    "a walrus": ("if (y := x) and NO:\n    a = y", "if (y := x) and False:\n    a = y"),
    "a walrus that is left": ("if YES and (y := x):\n    a = y", "if (y := x):\n    a = y"),
    "a parameter of a lambda": ("a = lambda YES: 1 if YES else 2",) * 2,
    "a variable of a comprehension": ("a = [1 if YES else 2 for YES in x]",) * 2,
    "a local": ("YES = x\nif YES:\n    a = 1",) * 2,
    "a global that is assigned": ("global YES\nYES = x\nif YES:\n    a = 1",) * 2,
    "an attribute": ("if x.YES and YES:\n    a = x.NO", "if x.YES:\n    a = x.NO"),
    "a tuple is no list": ("if (TWO,) == [2] or x in (TWO,):\n    a = 1", "if x in (TWO,):\n    a = 1"),
    "a tuple": ("if PAIR == (2, 3) and 3 in PAIR:\n    a = 1", "a = 1"),
    "nothing": ("if NOTHING is None:\n    a = 1", "a = 1"),
    "a shift that has no value": ("if 1 << -TWO:\n    a = 1",) * 2,
}


@pytest.mark.parametrize("case", FOLDED)
def test_text_is_folded_and_otherwise_left_as_it_is(case):
    before, after = (f"def f():\n{textwrap.indent(text, '    ')}\n" for text in FOLDED[case])
    assert fold(before, CONSTANTS) == after


def test_blank_lines_do_not_pile_up_where_branches_were():
    text = "def f():\n    a = 1\n\n    if NO:\n        b = 1\n\n    if YES:\n\n        c = 1\n\n    d = 1\n"
    assert fold(text, {"YES": True, "NO": False}) == "def f():\n    a = 1\n\n    c = 1\n\n    d = 1\n"


WRONG = ["def f():\n    a = 2\n", "def f():\na = 1\n"]


@pytest.mark.parametrize("wrong", WRONG, ids=["another program", "no program"])
def test_where_lines_do_not_come_out_right_the_folded_tree_is_written(wrong, monkeypatch):
    monkeypatch.setattr(branches, "_tidied", lambda text: wrong)
    text = "def f():\n    if YES:\n        a = 1  # one\n    elif x:\n        a = 2\n"
    assert fold(text, CONSTANTS) == "def f():\n    a = 1\n"


VALUES = ((2, 3), (2,), (), ((1.5, "a"), None), float("inf"), float("-inf"), 1.5, -7, "a'b", b"a", None)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_that_is_still_named_is_written_so_that_it_is_the_same(value):
    def make(variant, types):
        NO_MASK = value

        def kernel(out):
            out[0] = NO_MASK

        return kernel

    found = ran(source(make, MASKED))
    assert found == value and type(found) is type(value)


def test_types_and_scalars_bring_their_module_along_where_the_page_lacks_it():
    before = "SUM, ZERO, NAN = numba.int32, np.int32(4), float('nan')"
    text = source(made("out[0] = (SUM, ZERO, NAN)", before, "import numpy as np"), MASKED)
    assert "import numpy\n" in text and "import numba\n" not in text
    kind, zero, nan = ran(text, numba=numba)
    assert kind is numba.int32 and type(zero) is np.int32 and zero == 4 and nan != nan


HELPERS = """
def make_add(WIDE, W):
    @njit(inline="always")
    def add(x):
        return x + (100 if WIDE else 1){use}
    return add
"""
PAIR = "add2, add4 = make_add(True, 2), make_add(False, 4)"


def test_helpers_of_one_maker_stand_under_the_names_they_are_called_by():
    text = source(made("out[0] = add2(add4(0))", PAIR, HELPERS.format(use="")), MASKED)
    assert "def add2(x):" in text and "def add4(x):" in text and "def add(" not in text
    assert ran(text, njit=numba.njit) == 101


def test_helpers_that_mean_two_things_by_one_name_are_refused_with_the_line():
    make = made("out[0] = add2(add4(0))", PAIR, HELPERS.format(use=" * W"))
    with pytest.raises(ValueError, match=r"line 5 of <ipython.*: W is [24] in add[24] and [24] in the rest"):
        source(make, MASKED)


REFUSED = {
    "an array": ("out[0] = table[0]", "table = np.zeros(3)", "line 6 .*: table is array.* as text"),
    "no value": ("out[0] = W", "if variant is None:\n    W = 1", "line 7 .*: W has no value"),
    "a default": ("def kernel(out, w=W):\n    out[0] = w", "W = 3", "line 5 .*: W has no value"),
    "a helper made by a call": (
        "out[0] = add(1)",
        "def plain(x):\n    return x\nadd = njit(inline='always')(plain)",
        "line 3 .*: add is not made by a def",
    ),
    "a helper that is a lambda": (
        "out[0] = add(1)",
        "add = lambda x: x",
        "line 3 .*: add is not made by a def",
    ),
    "a nonlocal": ("nonlocal W\nW = 2\nout[0] = W", "W = 1", "line 5 .*: kernel cannot stand as a text"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_text_cannot_say_is_refused_with_its_line(case):
    body, before, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        source(made(body, before, "import numpy as np"), MASKED)


@pytest.mark.parametrize(
    "kernel", [lambda out: 1, len, partial(print, 1)], ids=["lambda", "builtin", "partial"]
)
def test_what_no_def_makes_is_no_kernel(kernel):
    with pytest.raises(TypeError, match="a function that a def makes"):
        source(lambda variant, types: kernel, MASKED)


def test_what_stands_at_the_margin_of_a_nested_kernel_stays_there():
    text = (
        "def make(variant, types):\n    FAST, SIZE = True, 3\n\n    def kernel(out):\n"
        '        """Sets it.\n\nAt the margin.\n        """\n# out[0] = 4\n        if FAST:\n'
        "#           out[0] = 5\n            out[0] = SIZE\n    return kernel\n"
    )
    found = source(factory(text), MASKED)
    assert "\n# out[0] = 4\n#           out[0] = 5\n    out[0] = SIZE\n" in found
    assert ran(found) == 3
