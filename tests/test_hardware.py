"""The emulator's counts against ncu's: the record of an H200, and how the two are compared."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sparsekern import LADDERS, SpmmVariant, make_spmm
from sparsekern.study import codegen, fit, hardware
from sparsekern.study.counters import count
from sparsekern.study.sass import classes, loops
from sparsekern.zoo import ZOO

RECORD = Path(__file__).parents[1] / "data" / "results" / "nvidia-h200" / "counters.csv"
VARIANTS = {op: dict(ladder) for op, ladder in LADDERS.items()}


def rows():
    with open(RECORD, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def numbers(row):
    return tuple(int(row[name]) for name in ("emulator", "emulator_max", "hardware"))


def test_the_record_has_every_step_of_both_ladders():
    steps = {(op, step) for op, ladder in LADDERS.items() for step, _ in ladder}
    assert {(row["op"], row["variant"]) for row in rows()} == steps


def test_the_record_has_enough_runs_and_real_layers_among_them():
    runs = {(row["op"], row["matrix"], row["variant"]) for row in rows()}
    assert len(runs) >= 48
    matrices = {matrix for _, matrix, _ in runs}
    assert len(matrices) >= 4 and sum(matrix.endswith(".smtx") for matrix in matrices) >= 2
    assert {row["counter"] for row in rows()} == {*hardware.METRICS, *hardware.OPCODES}


def test_every_count_of_the_hardware_is_equal_in_range_or_explained():
    for row in rows():
        low, high, seen = numbers(row)
        assert low <= seen <= high or row["explained"], row
        variant = VARIANTS[row["op"]][row["variant"]]
        assert row["explained"] == hardware.explain(row["counter"], low, high, seen, variant), row


def test_counts_that_no_order_can_change_are_equal():
    for row in rows():
        if row["counter"] == "multiply-adds by lanes":
            assert len(set(numbers(row))) == 1, row


def test_warps_that_take_one_path_make_the_requests_and_sectors_that_hardware_makes():
    uniform = [row for row in rows() if row["counter"] in ("global load requests", "global load sectors")]
    one_path = [row for row in uniform if row["emulator"] == row["emulator_max"] and not row["explained"]]
    assert len(one_path) > 100
    for row in one_path:
        low, high, seen = numbers(row)
        assert low == high == seen


@pytest.mark.parametrize(
    "op, step",
    [
        ("spmm", "subwarp=16"),
        ("spmm", "split=4"),
        ("sddmm", "prescale=True"),
        ("sddmm", "split=2"),
    ],
)
def test_the_record_is_of_this_emulator(op, step):
    counts = count(op, ZOO["misaligned_rows"].make(), hardware.WIDTH, VARIANTS[op][step])
    mine = [row for row in rows() if (row["op"], row["variant"]) == (op, step)]
    mine = [row for row in mine if row["matrix"] == "misaligned_rows"]
    assert len(mine) == len(hardware.METRICS) + len(hardware.OPCODES)
    for row in mine:
        assert tuple(counts[row["counter"]]) == numbers(row)[:2], row["counter"]


@pytest.mark.parametrize(
    "counter, low, high, seen, variant, reason",
    [
        ("global load requests", 10, 12, 10, SpmmVariant(), ""),
        ("global load requests", 100, 120, 121, SpmmVariant(), hardware.UNROLLED),
        ("global load requests", 100, 120, 131, SpmmVariant(), ""),
        ("global load requests", 100, 120, 99, SpmmVariant(), ""),
        ("global load sectors", 100, 120, 99, SpmmVariant(), hardware.OTHER_TRIPS),
        ("global load requests", 100, 120, 121, SpmmVariant(stage=True, unroll_residue=True), ""),
        ("shuffles", 100, 100, 150, SpmmVariant(stage=True, uniform_branch=True, unroll_residue=True), ""),
    ],
)
def test_what_is_out_of_range_is_explained_only_where_the_reason_is_known(
    counter, low, high, seen, variant, reason
):
    assert hardware.explain(counter, low, high, seen, variant) == reason


def test_the_smallest_over_a_warp_is_one_shuffle_for_each_step_too():
    plain = SpmmVariant(subwarp=16, rows_per_block=2, stage=True)
    shuffles = [
        codegen.ptx(make_spmm, replace(plain, **toggle)).count("shfl.sync.bfly")
        for toggle in ({"uniform_trip": True}, {"uniform_branch": True})
    ]
    assert shuffles == [1, 2]  # warp_max; and warp_max and warp_min


def test_the_compiler_unrolls_the_loop_over_nonzeros():
    text = codegen.sass(make_spmm, SpmmVariant(subwarp=1, rows_per_block=32))
    adds = sorted(classes(loop)["multiply-adds"] for loop in loops(text))
    assert adds[0] == 1 and adds[-1] >= 4  # what is left over, and several nonzeros in a trip


def test_the_opcodes_of_ncu_are_read_by_name():
    assert hardware._instances("1,060 (FFMA: 1,024; SHFL: 36)") == {"FFMA": 1024, "SHFL": 36}
    with pytest.raises(ValueError, match="names no opcode in '1,060'"):
        hardware._instances("1,060")


def test_without_ncu_the_error_says_where_it_comes_from(monkeypatch, tmp_path):
    monkeypatch.setattr(hardware.shutil, "which", lambda _: None)
    with pytest.raises(FileNotFoundError, match="ncu is not on PATH"):
        hardware.measure(None, tmp_path / "raw.csv")


@pytest.fixture
def tree(tmp_path):
    """A DLMC tree of one layer, which is none that the study runs on."""
    path = tmp_path / "tree/rn50/random_pruning/0.9/other.smtx"
    path.parent.mkdir(parents=True)
    path.write_text("1, 1, 0\n0 0\n\n")
    return str(tmp_path / "tree")


@pytest.mark.parametrize("command", [hardware.main, fit.main], ids=["hardware", "fit"])
def test_a_tree_without_the_layers_of_a_study_is_said(command, tree, capsys):
    words = ["run"] if command is hardware.main else []
    assert command([*words, "--dlmc", tree]) == 2
    assert re.search(r"lacks \d+ of \d+ layers, among them \S+\.smtx", capsys.readouterr().err)


@pytest.mark.parametrize(
    "text, message",
    [
        (None, "there is no file of that name"),
        (
            "op,matrix\nspmm,a\n",
            "has columns ['op', 'matrix']; they must be op,matrix,variant,counter,hardware",
        ),
        (
            "op,matrix,variant,counter,hardware\nspmm,a,plain,loads,3\n",
            "has counter 'loads', which is none",
        ),
        (
            "op,matrix,variant,counter,hardware\nspmm,a,plain,shuffles,many\n",
            "has 'many' for hardware; it must be a whole number",
        ),
        (
            "op,matrix,variant,counter,hardware\nspmm,a,plain,shuffles\n",
            "has None for hardware; it must be a whole number",
        ),
    ],
    ids=["no file", "other columns", "another counter", "no number", "a short row"],
)
def test_a_file_that_measure_did_not_write_is_not_compared(text, message, tree, tmp_path, capsys):
    raw, out = tmp_path / "raw.csv", tmp_path / "out.csv"
    if text is not None:
        raw.write_text(text)
    assert hardware.main(["compare", "--dlmc", tree, "--raw", str(raw), "--out", str(out)]) == 2
    assert str(raw) in (said := capsys.readouterr().err) and message in said
    assert not out.exists()


def test_a_step_that_measure_does_not_run_is_not_left_out_in_silence(tmp_path, monkeypatch):
    raw, out = tmp_path / "raw.csv", tmp_path / "out.csv"
    raw.write_text("op,matrix,variant,counter,hardware\nspmm,one_giant_row,gone=1,shuffles,3\n")
    monkeypatch.setattr(hardware, "cases", lambda tree: iter(()))
    with pytest.raises(ValueError, match="has gone=1 of spmm on one_giant_row; measure runs no such step"):
        hardware.compare(raw, None, out)
    assert not out.exists()


def test_a_file_that_a_command_needs_must_be_named(capsys):
    with pytest.raises(SystemExit):
        hardware.main(["compare", "--out", "x.csv"])
    assert "compare needs --raw" in capsys.readouterr().err
