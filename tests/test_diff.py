"""Two variants side by side."""

from dataclasses import replace

import pytest
from evidence import PLAIN, SAMPLED, STAGED

from sparsekern.study import diff as page
from sparsekern.study.diff import Diff, diff, ptx_lines, sass_lines

SWIZZLED = replace(PLAIN, bundle=True)


@pytest.fixture(scope="module")
def of_vector():
    return diff(PLAIN, replace(PLAIN, vector=4))


def test_switching_vector_shows_wide_loads_of_b_and_counts_them(of_vector):
    assert of_vector.titles == ("vector=1", "vector=4")
    assert any("LDG.E.128 R, desc" in line for line in of_vector.only_right)
    assert not any("LDG.E.128" in line for line in of_vector.only_left)
    assert "LDG.E.128 0 → " in of_vector.summary and "multiply-adds " in of_vector.summary


def test_it_prints_side_by_side_in_plain_text_where_there_is_no_terminal(of_vector, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    lines = str(of_vector).splitlines()
    assert lines[0].split() == ["vector=1", "vector=4"]
    assert any(len(line.split("EXIT")) == 3 for line in lines)
    assert "\x1b" not in str(of_vector)


def test_a_terminal_gets_colours(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    text = str(Diff(("off", "on"), (("MOV R", None), ("same", "same")), ""))
    assert "\x1b[31mMOV R" in text and "\x1b[31msame" not in text


def test_a_notebook_gets_a_table_with_what_differs_shaded():
    drawn = Diff(("off", "on"), (("a < b", "c"), ("same", "same"), (None, "new")), "1 more")._repr_html_()
    assert f"{page.SHADES[0]}'>a &lt; b</td>" in drawn and f"{page.SHADES[1]}'>new</td>" in drawn
    assert "none'>same</td>" in drawn and "<p>1 more</p>" in drawn


def test_the_text_of_two_variants_differs_where_a_toggle_acts():
    found = diff(STAGED, replace(STAGED, prescale=True), what="source")
    assert "    start = shift + index * ldb" in found.only_left
    assert any(line.strip() == "indices = lanes.scale(indices, ldb)" for line in found.only_right)
    assert found.rows.count((None, None)) >= 2  # most of the kernel is left out
    assert found.summary == f"{len(found.only_left)} lines only left, {len(found.only_right)} only right"


@pytest.mark.parametrize("what", ["sass", "ptx", "source"])
def test_a_toggle_of_the_host_changes_nothing(what):
    found = diff(SWIZZLED, replace(PLAIN, bin=True), what=what)
    assert (found.rows, found.summary) == ((), "no difference")


def test_instructions_that_differ_in_numbers_alone_are_alike():
    first = "/*0010*/  @!P0 IMAD R4, R5.reuse, UR6, RZ ;\n.L_x_1:\n/*0020*/  BSSY B0, `(.L_x_1) ;"
    second = "/*0030*/  @!P3 IMAD R14, R7, UR1, RZ ;\n.L_x_2:\n/*0050*/  BSSY B2, `(.L_x_2) ;"
    assert sass_lines(first) == sass_lines(second) == ["@!P IMAD R, R, UR, RZ", "BSSY B, label"]


@pytest.mark.parametrize("other", ["@P0 LDG.E R4, [R2.64]", "@!P0 LDG.E.64 R4, [R2.64]", "LDG.E R4, [R2.64]"])
def test_instructions_that_do_something_else_are_not(other):
    assert sass_lines(f"/*0010*/ {other} ;") != sass_lines("/*0010*/ @!P0 LDG.E R4, [R2.64] ;")


def test_offsets_and_constants_tell_instructions_apart():
    assert sass_lines("/*0010*/ LDS R4, [R2+0x4] ;") != sass_lines("/*0010*/ LDS R4, [R2+0x8] ;")


def test_ptx_that_differs_in_numbers_alone_is_alike():
    first = "\tld.param.u64 %rd3, [_Z4spmm_param_2];\n// comment\n$L__BB0_3:\n.reg .b32 %r<7>;"
    second = "ld.param.u64 %rd5, [_Z5spmm2_param_2];\n$L__BB0_9:\n.reg .b32 %r<8>;"
    assert ptx_lines(first) == ptx_lines(second)
    assert ptx_lines(first)[0] == "ld.param.u64 %rd, [kernel_param_2];"
    assert ptx_lines(first) != ptx_lines(second.replace("param_2", "param_3"))


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="what is 'llvm'; it must be one of sass, ptx, source"):
        diff(PLAIN, STAGED, what="llvm")
    with pytest.raises(ValueError, match="left is a variant of spmm, right of sddmm"):
        diff(PLAIN, SAMPLED)
