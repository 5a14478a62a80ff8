"""Notebooks agree with their sources, run, and say what they are stored as saying."""

import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

for module in "jupytext", "nbclient", "ipykernel", "matplotlib":
    pytest.importorskip(module)

import nbformat  # noqa: E402
from IPython.core.magics.code import extract_symbols  # noqa: E402
from nbformat.v4 import new_code_cell, new_notebook, new_output  # noqa: E402

from sparsekern import SpmmVariant, make_spmm, spmm  # noqa: E402
from sparsekern.generators import uniform  # noqa: E402
from sparsekern.machine.backends import device_backend  # noqa: E402
from sparsekern.study import notebooks  # noqa: E402
from sparsekern.study.codegen import ptx  # noqa: E402

NAMES = notebooks.names()
each_notebook = pytest.mark.parametrize("name", NAMES)

ABSOLUTE = re.compile(r"(?<![\w.:/~<-])/[\w.-]+/[\w.-]|\b[A-Z]:\\\\\w")

BY_VECTORS = """
def make_by_vectors(variant, types):
    VECTOR, SUBWARP, ROWS = variant.vector, variant.subwarp, variant.rows_per_block

    def spmm(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
        column = (cuda.blockIdx.y * SUBWARP + cuda.threadIdx.x) * VECTOR
        if row < m and column < n:
            acc = cuda.local.array(VECTOR, float32)
            for v in range(VECTOR):
                acc[v] = float32(0)
            for p in range(offsets[row], offsets[row + 1]):
                start = int64(columns[p]) * ldb + column
                lanes.axpy(values[p], lanes.load(B, start, VECTOR), acc, 0)
            at = int64(row) * ldc + column
            if column + VECTOR <= n:
                lanes.store(C, at, lanes.take(acc, 0, VECTOR))
            else:
                for v in range(VECTOR):
                    if column + v < n:
                        lanes.store(C, at + v, lanes.take(acc, v, 1))

    return spmm


check_2(make_by_vectors)
"""

SOLUTIONS = {  # exercise by exercise, what to run at the end of a notebook
    "00_start_here": [
        """
answer_1 = sk.SpmmVariant(
    vector=4, subwarp=4, rows_per_block=8, stage=True, tile_k=8, sparse_vector=4, roma=True
)
check_1(answer_1)
""",
        """
def make_wider(variant, types):
    VECTOR, SUBWARP, ROWS, ITEMS = variant.vector, variant.subwarp, variant.rows_per_block, variant.items
    STRIDE = SUBWARP * VECTOR
    SUMS = ITEMS * VECTOR

    def spmm(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
        column = cuda.blockIdx.y * STRIDE * ITEMS + cuda.threadIdx.x * VECTOR
        if row < m:
            acc = cuda.local.array(SUMS, float32)
            for v in range(SUMS):
                acc[v] = float32(0)
            for p in range(offsets[row], offsets[row + 1]):
                value, start = values[p], int64(columns[p]) * ldb + column
                for i in range(ITEMS):
                    x = lanes.load_if(column + i * STRIDE < n, B, start + i * STRIDE, VECTOR)
                    lanes.axpy(value, x, acc, i * VECTOR)
            for v in range(SUMS):
                acc[v] = max(acc[v], float32(0))
            for i in range(ITEMS):
                if column + i * STRIDE < n:
                    at = int64(row) * ldc + column + i * STRIDE
                    lanes.store(C, at, lanes.take(acc, i * VECTOR, VECTOR))

    return spmm


check_2(make_wider)
""",
    ],
    "03_vector_memory_access": [
        "check_1(sk.SpmmVariant(vector=2, subwarp=16, items=2, rows_per_block=4))",
        BY_VECTORS,
    ],
}

WRONG = {  # answers that look like ones, and what an exercise says of each
    "03_vector_memory_access": [
        ("check_1(sk.SpmmVariant(vector=4, subwarp=16, rows_per_block=4))", "needs ldb"),
        ("check_1(sk.SpmmVariant(vector=2, subwarp=8, items=4, rows_per_block=4))", "8 warps"),
        ("check_1(sk.SpmmVariant(vector=2, subwarp=32, rows_per_block=4))", "cost 5.31"),
        ("check_2(make_side_by_side)", "cost 52.0"),
        (BY_VECTORS.replace("column + VECTOR <= n", "column < n"), "beside the result"),
        (BY_VECTORS.replace("load(B, start, VECTOR)", "load(B, start - start % 8, VECTOR)"), "C is wrong"),
        (BY_VECTORS.replace("lanes.store(C, at + v", "v or lanes.store(C, at + v"), "never written"),
    ],
}


def said(cells):
    """What cells printed or returned, as text; figures left out."""
    texts = []
    for cell in cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stdout":
                texts.append(output.text)
            elif output.output_type == "execute_result":
                texts.append(output.data["text/plain"])
    return texts


def namespace(name, *marks):
    """What the first code cell of a notebook and those that contain one of `marks` define."""
    first, *others = notebooks.code(notebooks.source(name))
    scope = {}
    for cell in [first, *(cell for cell in others if any(mark in cell for mark in marks))]:
        exec(cell, scope)
    return SimpleNamespace(**scope)


def test_there_are_notebooks():
    assert "00_start_here" in NAMES


@each_notebook
def test_the_two_halves_agree_and_the_outputs_are_of_this_code(name):
    assert notebooks.faults(name) == []


@each_notebook
def test_outputs_are_stored_without_errors(name):
    cells = [cell for cell in notebooks.stored(name).cells if cell.cell_type == "code"]
    assert sum(bool(cell.outputs) for cell in cells) > len(cells) / 2
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]


@pytest.mark.parametrize("name", SOLUTIONS)
def test_exercises_are_stored_unsolved(name):
    answers = said(notebooks.stored(name).cells)[-len(SOLUTIONS[name]) :]
    assert answers and all("not yet" in text for text in answers)


@each_notebook
def test_no_machine_is_named(name):
    notebook = notebooks.stored(name)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "data" in output:
                output.data = {k: v for k, v in output.data.items() if not k.startswith("image/")}
    assert not ABSOLUTE.search(json.dumps(notebook))


@each_notebook
def test_it_runs_says_what_is_stored_and_its_exercises_tell_solutions_from_other_answers(name):
    notebook = notebooks.source(name)
    solutions = [new_code_cell(code) for code in SOLUTIONS.get(name, [])]
    wrong = [new_code_cell(code) for code, _ in WRONG.get(name, [])]
    notebook.cells += solutions + wrong
    notebooks.clean(notebooks.execute(notebook))
    own = notebook.cells[: len(notebook.cells) - len(solutions) - len(wrong)]
    if device_backend() == "emulator":
        stored = said(notebooks.stored(name).cells)
        assert said(own) == stored, f"run: python -m sparsekern.study.notebooks run {name}"
    for cell in solutions:
        assert "solved" in said([cell])[-1]
    for cell, (_, reason) in zip(wrong, WRONG.get(name, []), strict=True):
        assert "not yet" in said([cell])[-1] and reason in said([cell])[-1]


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """(text path, output path) of a copy of the first notebook that may be spoilt."""
    (tmp_path / "text").mkdir()
    name = NAMES[0]
    for half in f"text/{name}.py", f"{name}.ipynb":
        shutil.copy(notebooks.NOTEBOOKS / half, tmp_path / half)
    monkeypatch.setattr(notebooks, "NOTEBOOKS", tmp_path)
    return tmp_path / "text" / f"{name}.py", tmp_path / f"{name}.ipynb"


def test_edited_code_is_seen(copied):
    text, _ = copied
    text.write_text(text.read_text().replace("default_rng(0)", "default_rng(1)"))
    assert "code of the two halves differs" in notebooks.faults(NAMES[0])[0]


def test_edited_prose_is_seen(copied):
    text, _ = copied
    text.write_text(text.read_text().replace("# # Start here", "# # Start there"))
    assert "prose of the two halves differs" in notebooks.faults(NAMES[0])[0]


def test_outputs_of_other_code_are_seen(copied):
    """As when both halves are edited and nobody runs them."""
    for half in copied:
        half.write_text(half.read_text().replace("default_rng(0)", "default_rng(1)"))
    assert notebooks.faults(NAMES[0]) == [f"{NAMES[0]}: the outputs are not of this code"]


@pytest.mark.parametrize("half, word", [(0, "text"), (1, "output")])
def test_a_missing_half_is_seen(copied, half, word, capsys):
    copied[half].unlink()
    assert f"has no {word} half" in notebooks.faults(NAMES[0])[0]
    assert notebooks.main(["check"]) == 1
    assert f"run {NAMES[0]}" in capsys.readouterr().out


def test_an_unknown_name_is_refused_with_those_there_are(capsys):
    with pytest.raises(SystemExit):
        notebooks.main(["check", "99_nothing"])
    assert NAMES[0] in capsys.readouterr().err


def cleaned(*outputs):
    notebook = new_notebook(
        cells=[new_code_cell("1", outputs=list(outputs), metadata={"execution": {"t": "now"}})]
    )
    notebook.metadata = nbformat.from_dict({"language_info": {"name": "python", "version": "3.11.7"}})
    return notebooks.clean(notebook)


def test_what_differs_between_runs_is_dropped():
    first, second = cleaned(), cleaned()
    assert first == second
    assert first.metadata.language_info == {"name": "python"}
    assert not first.cells[0].metadata


def test_how_output_came_in_pieces_does_not_matter():
    pieces = [
        new_output("stream", name=n, text=t)
        for n, t in (("stdout", "a\n"), ("stderr", ""), ("stdout", "b\n"))
    ]
    whole = [new_output("stream", name="stdout", text="a\nb\n")]
    assert cleaned(*pieces) == cleaned(*whole)


@pytest.mark.parametrize(
    "text, kept",
    [
        (f"{notebooks.ROOT}/sparsekern/ops.py", "sparsekern/ops.py"),
        ("at /tmp/ipykernel_41/123.py:7, block 0", "at cell:7, block 0"),
        ("<function f at 0x7f00a1b2c3d4>", "<function f>"),
        ("mask 0xffffffff at 3", "mask 0xffffffff at 3"),
    ],
)
def test_output_is_scrubbed_of_places(text, kept):
    (output,) = cleaned(new_output("stream", name="stdout", text=text)).cells[0].outputs
    assert output.text == kept
    (output,) = cleaned(new_output("execute_result", data={"text/plain": text})).cells[0].outputs
    assert output.data["text/plain"] == kept


def test_warnings_are_kept_without_the_place_that_gave_them():
    text = "/somewhere/launch.py:41: RuntimeWarning: no GPU\n  warnings.warn(\nbuilding the font cache\n"
    (output,) = cleaned(new_output("stream", name="stderr", text=text)).cells[0].outputs
    assert output.text == "RuntimeWarning: no GPU\n"


def test_the_kernel_that_load_fetches_runs_after_the_cell_of_imports():
    """`%load -s make_spmm` takes what `extract_symbols` finds."""
    source = (notebooks.ROOT / "sparsekern" / "kernels" / "spmm.py").read_text()
    (found,), missing = extract_symbols(source, "make_spmm")
    assert not missing
    scope = vars(namespace("00_start_here")).copy()
    exec(found, scope)
    a, b = uniform(8, 8, 0.5), np.ones((8, 4), np.float32)
    variant = SpmmVariant(rows_per_block=4, stage=True)
    edited, ours = (
        spmm(a, b, variant, make=make, backend="emulator") for make in (scope["make_spmm"], make_spmm)
    )
    assert scope["make_spmm"] is not make_spmm and np.array_equal(edited, ours)


def test_the_edited_kernel_compiles_for_a_gpu_with_vector_access():
    cell = namespace("00_start_here", "def make_relu")
    code = ptx(cell.make_relu, SpmmVariant(vector=4, subwarp=8, rows_per_block=4))
    assert "ld.global.v4.f32" in code and "st.global.v4.f32" in code
