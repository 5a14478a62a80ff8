"""The command line."""

import re

import numpy as np
import pytest

from sparsekern import LADDERS
from sparsekern.__main__ import LAYER, main
from sparsekern.datasets import ROOT_VARIABLE, write_smtx
from sparsekern.generators import uniform


@pytest.fixture
def tree(tmp_path):
    """A DLMC tree of one small layer, under the name that the demo prefers."""
    path = tmp_path / LAYER
    path.parent.mkdir(parents=True)
    write_smtx(path, uniform(20, 24, 0.8))
    return tmp_path


def test_the_demo_names_the_real_layer_and_prints_every_step(tree, capsys, monkeypatch):
    monkeypatch.setenv(ROOT_VARIABLE, str(tree))
    assert main(["demo", "--n", "4"]) == 0
    text = capsys.readouterr().out
    assert LAYER in text
    for op, title in (("spmm", "SpMM: "), ("sddmm", "SDDMM: ")):
        table = text[text.index(title) :]
        for number, (step, _) in enumerate(LADDERS[op]):
            assert re.search(rf"{number:2} {re.escape(step)} .*\d\.\de[-+]\d\d", table), step
        assert f"{len(LADDERS[op])} steps, all agree" in table


def test_the_demo_fails_when_a_step_disagrees(tree, capsys, monkeypatch):
    from sparsekern.study import ladder

    monkeypatch.setattr(ladder, "error", lambda *_: np.inf)
    assert main(["demo", "--n", "4", "--dlmc", str(tree)]) == 1
    assert "DISAGREE" in capsys.readouterr().out


def test_a_tree_that_is_not_there_is_an_error_not_a_look_alike(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "gone"))
    assert main(["demo"]) == 2
    assert f"{ROOT_VARIABLE} is" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["demo", "check"])
@pytest.mark.parametrize("n", ["0", "-4", "many", "²", "3000000000"])
def test_a_size_that_is_none_is_refused(n, command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--n", n])
    assert "is not a whole number from 1 to 65536" in capsys.readouterr().err


def test_the_demo_wants_whole_vectors(capsys):
    with pytest.raises(SystemExit):
        main(["demo", "--n", "30"])
    assert "30 is not a multiple of 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    "op, variant", [("spmm", "vector=4, stage=True"), ("sddmm", "work=strips,vector=2"), ("spmm", "3")]
)
def test_a_variant_can_be_checked_on_a_matrix_of_the_zoo_or_of_a_file(op, variant, tree, capsys):
    file = str(tree / LAYER)
    options = ["--op", op, "--variant", variant, "--matrix", "one_giant_row", "--matrix", file, "--n", "9"]
    assert main(["check", *options]) == 0
    assert "2 agree with float64" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, message",
    [
        (["--variant", "vector=3"], "vector is '3'; it must be one of 1, 2, 4"),
        (["--variant", "vectors=4"], "vectors"),
        (["--variant", "roma"], "toggle=value"),
        (["--variant", "99"], "has steps 0 to"),
        (["--matrix", "giant"], "one_giant_row"),
        (["--matrix", "gone.smtx"], "gone.smtx"),
    ],
)
def test_what_cannot_be_checked_is_said(options, message, capsys):
    assert main(["check", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["demo", "check", "show", "bench"])
def test_every_command_says_that_n_is_the_inner_dimension_of_sddmm(command, capsys):
    with pytest.raises(SystemExit) as exit:
        main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert exit.value.code == 0
    assert "columns of the dense operands: n of SpMM, the inner dimension k of SDDMM" in text
