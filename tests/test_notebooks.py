"""Notebooks agree with their sources, run, and say what they are stored as saying."""

import json
import re
import shutil

import numpy as np
import pytest

for module in "jupytext", "nbclient", "ipykernel", "matplotlib", "nbmake":
    pytest.importorskip(module)

import nbformat  # noqa: E402
from IPython.core.magics.code import extract_symbols  # noqa: E402
from nbformat.v4 import new_code_cell, new_notebook, new_output  # noqa: E402
from notebook_runs import assert_as_stored, executed  # noqa: E402

from sparsekern import SpmmVariant, make_spmm, spmm  # noqa: E402
from sparsekern.generators import uniform  # noqa: E402
from sparsekern.study import notebooks  # noqa: E402
from sparsekern.study.codegen import ptx  # noqa: E402

NAMES = notebooks.names()
each_notebook = pytest.mark.parametrize("name", NAMES)

ABSOLUTE = re.compile(r"(?<![\w.:/~<-])/[\w.-]+/[\w.-]|\b[A-Z]:\\\\\w")


def test_there_are_notebooks():
    assert {"00_start_here", "solutions/00_start_here"} <= set(NAMES)


@each_notebook
def test_the_two_halves_agree_and_the_outputs_are_of_this_code(name):
    assert notebooks.faults(name) == []


@each_notebook
def test_outputs_are_stored_without_errors(name):
    cells = [cell for cell in notebooks.stored(name).cells if cell.cell_type == "code"]
    assert sum(bool(cell.outputs) for cell in cells) > len(cells) / 2
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]


@each_notebook
def test_no_machine_is_named(name):
    notebook = notebooks.stored(name)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "data" in output:
                output.data = {k: v for k, v in output.data.items() if not k.startswith("image/")}
    assert not ABSOLUTE.search(json.dumps(notebook))


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(notebooks.SOLUTIONS)])
def test_a_chapter_runs_and_says_what_is_stored(name, monkeypatch):
    assert_as_stored(name, executed(notebooks.output_half(name), monkeypatch).cells)


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
    assert "prose or the tags of the two halves differ" in notebooks.faults(NAMES[0])[0]


def test_edited_tags_are_seen(copied):
    text, _ = copied
    text.write_text(text.read_text().replace(' tags=["exercise"]', "", 1))
    assert "prose or the tags of the two halves differ" in notebooks.faults(NAMES[0])[0]


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


def test_a_solution_runs_in_its_folder_and_is_written_there(tmp_path, monkeypatch):
    (tmp_path / "solutions" / "text").mkdir(parents=True)
    (tmp_path / "solutions" / "text" / "x.py").write_text("# %%\nimport os\n\nprint(os.listdir())\n")
    monkeypatch.setattr(notebooks, "NOTEBOOKS", tmp_path)
    assert notebooks.main(["run", "solutions/x"]) == 0
    (cell,) = notebooks.stored("solutions/x").cells
    assert cell.outputs[0].text == "['text']\n"


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
    scope = {}
    notebooks.exercises("00_start_here", scope)
    exec(found, scope)
    a, b = uniform(8, 8, 0.5), np.ones((8, 4), np.float32)
    variant = SpmmVariant(rows_per_block=4, stage=True)
    edited, ours = (
        spmm(a, b, variant, make=make, backend="emulator") for make in (scope["make_spmm"], make_spmm)
    )
    assert scope["make_spmm"] is not make_spmm and np.array_equal(edited, ours)


def test_the_edited_kernel_compiles_for_a_gpu_with_vector_access():
    scope = {}
    notebooks.exercises("00_start_here", scope)
    code = ptx(scope["make_relu"], SpmmVariant(vector=4, subwarp=8, rows_per_block=4))
    assert "ld.global.v4.f32" in code and "st.global.v4.f32" in code
