"""python -m sparsekern show, on matrices small enough to be counted at once."""

import re

import pytest

from sparsekern import LADDERS
from sparsekern.__main__ import main
from sparsekern.datasets import write_smtx
from sparsekern.generators import uniform
from sparsekern.naming import format_variant
from sparsekern.study.counters import count
from sparsekern.study.show import variant_of
from sparsekern.toggles import VariantError
from sparsekern.variants import SddmmVariant, SpmmVariant

OPS = ["spmm", "sddmm"]
WIDTHS = {"spmm": "n", "sddmm": "k"}  # what --n is of
STEP = 2  # of either ladder, compiled once for all tests here


@pytest.fixture
def matrix(tmp_path):
    path = tmp_path / "layer.smtx"
    write_smtx(path, uniform(20, 24, 0.8))
    return str(path)


@pytest.fixture
def shown(matrix, capsys):
    """show(op, *options): what is printed."""

    def show(op, *options):
        words = ["show", "--op", op, "--matrix", matrix, "--n", "8", "--variant", str(STEP), *options]
        assert main(words) == 0
        return capsys.readouterr().out

    return show


@pytest.mark.parametrize("op", OPS)
def test_registers_and_occupancy_of_a_step_of_the_ladder_come_first(op, shown, matrix):
    text = shown(op)
    variant = LADDERS[op][STEP][1]
    assert text.startswith(f"{matrix}\n{op}, {format_variant(variant)}, {WIDTHS[op]} = 8\n")
    registers, shared, threads, spilled = re.search(
        r"(\d+) registers a thread, ([\d,]+) bytes of shared memory a block of (\d+) threads, (\d+) bytes sp",
        text,
    ).groups()
    assert 16 <= int(registers) <= 255 and spilled == "0"
    assert int(shared.replace(",", "")) == variant.shared_bytes and int(threads) == variant.threads
    assert re.search(r"H200: an SM holds \d+ blocks?", text)
    for absent in ("multiply-adds", "at least", "LDG", "ld.global", "def "):
        assert absent not in text


@pytest.mark.parametrize("op", OPS)
def test_bound_and_counts_are_tables(op, shown):
    text = shown(op, "--bound", "--counts")
    nnz = uniform(20, 24, 0.8).nnz
    lanes = count_of(op, LADDERS[op][STEP][1])["multiply-adds by lanes"]
    assert f"{op} on H200: {2 * nnz * 8:,} flops" in text
    assert re.search(r"^launch +0\.80 +100%", text, re.M)
    assert re.search(r"bound 0\.80 µs, by launch; predicted \d+\.\d\d µs", text)
    assert re.search(rf"^multiply-adds by lanes +{lanes} ", text, re.M)
    for name in ("global load sectors", "shared load bank conflicts", "active lanes"):
        assert re.search(rf"^{name} +\d", text, re.M), name
    assert re.search(rf"^{'B' if op == 'spmm' else 'rhs'} +load +\d", text, re.M)


@pytest.mark.parametrize("op", OPS)
def test_the_bound_is_that_of_the_gpu_that_is_named(op, matrix, capsys):
    assert (
        main(
            ["show", "--op", op, "--matrix", matrix, "--variant", "2", "--n", "8", "--bound", "--gpu", "a100"]
        )
        == 0
    )
    text = capsys.readouterr().out
    assert f"{op} on A100" in text and "A100-SXM4-40GB: an SM holds" in text


@pytest.mark.parametrize("op", OPS)
def test_sass_is_labels_and_instructions_and_nothing_else(op, shown):
    lines = shown(op, "--sass").splitlines()
    code = lines[next(i for i, line in enumerate(lines) if re.match(r"\s*/\*0000\*/", line)) :]
    assert sum("FFMA" in line for line in code) >= 1 and any("LDG" in line for line in code)
    assert any("EXIT" in line for line in code)
    for line in filter(str.strip, code):
        assert re.match(r"\s*/\*[0-9a-f]{4}\*/|\.L", line), line


@pytest.mark.parametrize("op", OPS)
def test_ptx_and_source_are_of_this_variant(op, shown):
    text = shown(op, "--ptx", "--source")
    assert ".visible .entry" in text and "ld.global" in text and "fma.rn.f32" in text
    name = "spmm" if op == "spmm" else "sddmm"
    assert f"def {name}(" in text
    assert not re.search(r"\b(UNIFORM_TRIP|HALVING|STRIPS|STAGE)\b", text)  # toggles are resolved


@pytest.mark.parametrize(
    "op, other", [("spmm", "rows_per_block=8,subwarp=8"), ("sddmm", "rows_per_block=4,subwarp=8,tile_nnz=8")]
)
def test_two_variants_side_by_side_by_counts_and_code(op, other, shown):
    text = shown(op, "--counts", "--source", "--diff", other)
    assert all(word in text for word in ("this", "other", "difference"))
    mine = count_of(op, variant_of(op, str(STEP)))["global load instructions"]
    difference = mine - count_of(op, variant_of(op, other))["global load instructions"]
    assert re.search(rf"^global load instructions +{mine} .* {difference}$", text, re.M)
    assert re.search(r"[1-9]\d* lines only left, [1-9]\d* only right", text)


def count_of(op, variant):
    return count(op, uniform(20, 24, 0.8), 8, variant)


@pytest.mark.parametrize("op", OPS)
def test_a_variant_is_a_number_of_a_step_or_toggles_or_the_last_step(op):
    for number, (_, variant) in enumerate(LADDERS[op]):
        assert variant_of(op, str(number)) == variant
    assert variant_of(op, None) == LADDERS[op][-1][1]
    kind = SpmmVariant if op == "spmm" else SddmmVariant
    assert variant_of(op, "vector=2, subwarp=16,rows_per_block=2") == kind(
        vector=2, subwarp=16, rows_per_block=2
    )
    assert variant_of(op, "plain") == kind()
    last = len(LADDERS[op]) - 1
    with pytest.raises(
        VariantError, match=f"variant is {last + 1}; the ladder of {op} has steps 0 to {last}"
    ):
        variant_of(op, str(last + 1))


@pytest.mark.parametrize(
    "options, message",
    [
        (["--variant", "99"], "variant is 99; the ladder of spmm has steps 0 to 19"),
        (["--op", "sddmm", "--variant", "14"], "variant is 14; the ladder of sddmm has steps 0 to 13"),
        (["--variant", "-1"], "variant is '-1'; it must be plain, or toggle=value"),
        (["--variant", "²"], "variant is '²'; it must be plain, or toggle=value"),
        (["--variant", ""], "variant is ''; it must be plain, or toggle=value"),
        (["--variant", "roma"], "variant is 'roma'; it must be plain, or toggle=value"),
        (["--variant", "vector=3"], "vector is '3'; it must be one of 1, 2, 4"),
        (["--variant", "vectors=4"], "'vectors' is no toggle of SpmmVariant, but vector is"),
        (["--variant", "roma=true"], "needs sparse_vector to be 2 or 4"),
        (["--op", "sddmm", "--variant", "stage=true"], "'stage' is no toggle of SddmmVariant"),
        (["--diff", "99"], "variant is 99"),
        (["--matrix", "gone.smtx"], "gone.smtx"),
        (["--matrix", "giant"], "matrix is 'giant'; it must be a .smtx or .mtx file, or one of"),
        (["--variant", "vector=4", "--n", "9", "--bound"], "vector=4 needs ldb"),
        (["--variant", "vector=4", "--n", "9", "--counts"], "vector=4 needs ldb"),
    ],
)
def test_what_cannot_be_shown_is_said_with_status_2(options, message, matrix, capsys):
    words = ["show", *(["--matrix", matrix] if "--matrix" not in options else []), *options]
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--n", "0"], ["--n", "many"], ["--gpu", "b200"], ["--op", "spmv"]])
def test_options_that_are_none_exit_with_status_2(options, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["show", *options])
    assert exit.value.code == 2 and options[1] in capsys.readouterr().err
