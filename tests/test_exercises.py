"""Exercises start unsolved, solutions pass their checks, and wrong answers are told why they are wrong."""

import inspect
import re
import runpy
from ast import literal_eval
from pathlib import Path

import pytest

for module in "jupytext", "nbclient", "ipykernel", "matplotlib", "nbmake":
    pytest.importorskip(module)

import nbformat  # noqa: E402
import numpy as np  # noqa: E402
from nbformat.v4 import new_code_cell  # noqa: E402
from notebook_runs import assert_as_stored, executed, said  # noqa: E402

from sparsekern import EmulatorError, SpmmVariant, spmm  # noqa: E402
from sparsekern.generators import uniform  # noqa: E402
from sparsekern.study import notebooks  # noqa: E402
from sparsekern.study.counters import count  # noqa: E402

ANSWERS = Path(__file__).parent / "wrong_answers"
SOLUTIONS = notebooks.SOLUTIONS
CHAPTERS = [name for name in notebooks.names() if not name.startswith(SOLUTIONS)]
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS)


def checks(chapter):
    """The names of its checks."""
    return re.findall(r"^def (check_\w+)\(", "\n".join(notebooks.tagged(chapter)), re.M)


def wrong_answers(chapter):
    """[(code, part of what its check says), ...]"""
    return runpy.run_path(str(ANSWERS / f"{chapter}.py"))["WRONG"]


def test_each_chapter_has_a_solution_and_wrong_answers():
    solved = [name.removeprefix(SOLUTIONS) for name in notebooks.names() if name.startswith(SOLUTIONS)]
    assert CHAPTERS == solved == sorted(path.stem for path in ANSWERS.glob("*.py"))


@each_chapter
def test_there_are_two_exercises_and_two_wrong_answers_to_each(chapter):
    assert len(checks(chapter)) >= 2
    last = [re.findall(r"check_\w+(?=\()", code)[-1] for code, _ in wrong_answers(chapter)]
    assert all(last.count(check) >= 2 for check in checks(chapter))


@each_chapter
def test_exercises_are_stored_unsolved(chapter):
    texts = said(notebooks.stored(chapter).cells)
    assert sum("not yet: " in text for text in texts) >= len(checks(chapter))
    assert not any("solved: " in text for text in texts)


@each_chapter
def test_a_solution_holds_every_check_to_its_word(chapter):
    code = "\n".join(notebooks.code(notebooks.source(SOLUTIONS + chapter)))
    assert all(f"{check}(" in code for check in checks(chapter))
    assert code.count('.startswith("solved")') >= len(checks(chapter))


@each_chapter
def test_solutions_run_as_stored_and_wrong_answers_are_told_what_is_wrong(chapter, tmp_path, monkeypatch):
    """In one run: the wrong answers stand at the end of a copy of the solution."""
    notebook, answers = notebooks.stored(SOLUTIONS + chapter), wrong_answers(chapter)
    own = len(notebook.cells)
    notebook.cells += [new_code_cell(code) for code, _ in answers]
    nbformat.write(notebook, tmp_path / "solution.ipynb")
    cells = executed(tmp_path / "solution.ipynb", monkeypatch).cells
    assert_as_stored(SOLUTIONS + chapter, cells[:own])
    for cell, (_, reason) in zip(cells[own:], answers, strict=True):
        verdict = literal_eval(said([cell])[-1])
        assert verdict.startswith("not yet: ") and reason in verdict


CHAPTER = """
# %%
untagged = 1

# %% tags=["exercise"]
from numba import cuda, float32

# %% tags=["exercise"]
def make_planted(variant, types):
    def spmm(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        C[cuda.blockIdx.x * ldc + cuda.threadIdx.x] = B[n * ldb]  # one row of B too far

    return spmm
"""


@pytest.fixture
def chapters(tmp_path, monkeypatch):
    """Writes the text half of a chapter, of which the library then knows."""
    (tmp_path / "text").mkdir()
    monkeypatch.setattr(notebooks, "NOTEBOOKS", tmp_path)
    return lambda name, text: (tmp_path / "text" / f"{name}.py").write_text(text)


def test_exercises_run_the_tagged_cells_alone(chapters):
    chapters("01_x", CHAPTER)
    scope = {}
    notebooks.exercises("01_x", scope)
    assert {"cuda", "make_planted"} <= set(scope) and "untagged" not in scope


def test_the_source_of_an_exercise_is_found_and_its_mistakes_by_line(chapters):
    chapters("01_x", CHAPTER)
    scope = {}
    notebooks.exercises("01_x", scope)
    make, a = scope["make_planted"], uniform(8, 8, 0.5)
    assert "one row of B too far" in inspect.getsource(make)
    with pytest.raises(EmulatorError, match="one row of B too far") as caught:
        spmm(a, np.ones((8, 8), np.float32), SpmmVariant(), make=make, backend="emulator")
    assert (caught.value.file, caught.value.line) == ("<01_x, exercise cell 2>", 3)


def test_a_kernel_of_an_exercise_is_counted():
    """In lockstep, which reads its text."""
    scope = {}
    notebooks.exercises("03_vector_memory_access", scope)
    a, n = uniform(8, 8, 0.5), 32
    counters = count("spmm", a, n, SpmmVariant(rows_per_block=4), make=scope["make_side_by_side"])
    assert counters.of("B")["instructions"] == (a.nnz, a.nnz)


def test_what_a_cell_raises_is_not_kept_quiet(chapters):
    chapters("01_x", '# %% tags=["exercise"]\n1 / 0\n')
    with pytest.raises(ZeroDivisionError):
        notebooks.exercises("01_x", {})


def test_a_chapter_that_is_not_there_or_has_no_exercise_is_refused_by_name(chapters):
    chapters("01_x", "# %%\nuntagged = 1\n")
    with pytest.raises(ValueError, match="name is '02_y'; the chapters are 01_x"):
        notebooks.exercises("02_y", {})
    with pytest.raises(ValueError, match="name is '01_x', a chapter without a cell tagged 'exercise'"):
        notebooks.exercises("01_x", {})
