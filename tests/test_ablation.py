"""What each toggle is worth, of records made up by hand."""

import pytest
from timings import PROVENANCE, row

from sparsekern import LADDERS, VariantError, without
from sparsekern.naming import format_variant, parse_variant
from sparsekern.selection.candidates import candidates
from sparsekern.study import ablation
from sparsekern.study.ablation import ablations, each_off, toggled_off
from sparsekern.study.compare import mean
from sparsekern.study.records import RecordError, write

CHOSEN = "vector=4,rows_per_block=8,stage=True,prescale=True"
FIRST = {"vector": 2.0, "stage": 3.0, "prescale": 0.8, "rows_per_block": 1.5}  # time without / time with


def record(matrix, us, slower):
    """The rows of one problem: the chosen variant, then the nearest without each toggle of `slower`."""
    chosen = parse_variant("spmm", CHOSEN)
    off = {without(chosen, toggle)[0]: us * times for toggle, times in slower.items()}
    return [row(us, matrix, CHOSEN), *(row(t, matrix, format_variant(v)) for v, t in off.items())]


ROWS = [*record("a", 10, FIRST), *record("b", 20, {"vector": 8.0, "stage": 3.0})]


@pytest.mark.parametrize("op", LADDERS)
def test_each_toggle_that_is_on_is_taken_off_and_no_two_lead_to_one_variant(op):
    for variant in [*(variant for _, variant in LADDERS[op]), *candidates(op)]:
        on = {name for name in variant.__dataclass_fields__ if variant.is_on(name)}
        assert set(toggled_off(variant)) == on, variant
        first, *others = each_off(variant)
        assert first == variant and len(set(others)) == len(others) and variant not in others
        assert set(others) == {without(variant, name)[0] for name in on}


def test_nothing_can_be_taken_off_the_plain_variant():
    plain = parse_variant("spmm", "plain")
    assert each_off(plain) == [plain]


def test_ratios_are_time_without_over_time_with_in_the_problems_where_both_ran():
    found = ablations(ROWS)
    assert {name: [ratio.times for ratio in ratios] for name, ratios in found.items()} == {
        "vector": [2, 8],
        "stage": [3, 3],
        "prescale": [0.8],
        "rows_per_block": [1.5],
    }
    assert mean(found["vector"]) == pytest.approx(4)
    assert [ratio.row.matrix for ratio in found["vector"]] == ["a", "b"]


def test_what_had_to_move_and_the_variant_without_are_told():
    (one, _) = ablations(ROWS)["stage"]
    assert one.moved == {"prescale": (True, False)}
    assert (one.row.variant, one.off.variant) == (CHOSEN, "vector=4,rows_per_block=8")


def test_a_row_that_is_no_step_from_the_first_is_refused_by_name():
    with pytest.raises(
        RecordError, match="spmm b at 256 has bundle=True; each variant of an ablation must be"
    ):
        ablations([*ROWS, row(1, "b", "bundle=True")])


def test_the_command_prints_toggles_by_gain_with_the_extremes(tmp_path, capsys):
    path = tmp_path / "ablation.csv"
    write(path, PROVENANCE, [*ROWS, row(5, "a", "vector=4,subwarp=8,tile_nnz=8,rows_per_block=4", op="sddmm"),
                             row(6, "a", "subwarp=8,tile_nnz=8,rows_per_block=4", op="sddmm")])  # fmt: skip
    ablation.main([str(path)])
    spmm, sddmm = capsys.readouterr().out.split("sddmm, L2 warm")
    lines = [line.split() for line in spmm.rstrip().splitlines()[3:]]
    assert lines == [
        "vector 4.00 2.00 8.00 2 0 4.00 2".split(),
        "stage 3.00 3.00 3.00 2 0 prescale".split(),
        "rows_per_block 1.50 1.50 1.50 1 0 1.50 1".split(),
        "prescale 0.80 0.80 0.80 1 1 0.80 1".split(),
    ]
    assert "vector" in sddmm and "1.20" in sddmm


def test_a_record_of_one_variant_a_problem_is_no_ablation(tmp_path, capsys):
    path = tmp_path / "sweep.csv"
    write(path, PROVENANCE, [row(1, "a"), row(1, "b")])
    assert ablation.main([str(path)]) == 2
    assert "no toggle is off" in capsys.readouterr().err


def test_a_variant_that_is_none_is_an_error():
    with pytest.raises(VariantError):
        ablations([row(1, "a", "speed=9")])
