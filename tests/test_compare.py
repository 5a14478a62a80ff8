"""What is said of records, against means computed by hand."""

import io

import pytest
from rich.console import Console
from timings import PROVENANCE, row

from sparsekern.__main__ import main
from sparsekern.study.compare import FASTEST, against, best, between, mean, report, same_variants
from sparsekern.study.records import Record, write

RIVALS = {"cusparse_us": 40.0, "sputnik_us": 30.0, "dense_fp32_us": 20.0, "dense_tf32_us": 5.0}
ROWS = [
    row(10, "a", "vector=4", **RIVALS),
    row(16, "a", "plain", **RIVALS),
    row(40, "b", "plain", nnz=5000, cusparse_us=20.0, dense_fp32_us=80.0),
    row(4, "c", "plain", n=2048, nnz=200, cusparse_us=9.0),
]


def times(ratios):
    return {ratio.row.matrix: ratio.times for ratio in ratios}


def printed(*arguments, **options):
    file = io.StringIO()
    report(Console(file=file, width=150), *arguments, **options)
    return file.getvalue()


def test_the_best_variant_of_each_problem_is_the_fastest():
    assert {problem[1]: found.variant for problem, found in best(ROWS).items()} == {
        "a": "vector=4",
        "b": "plain",
        "c": "plain",
    }


def test_warm_and_flushed_are_two_problems():
    assert len(best([row(1), row(2, l2="flushed")])) == 2


def test_ratios_to_a_rival_are_over_the_problems_in_which_it_was_timed():
    assert times(against(ROWS, "cusparse_us")) == {"a": 4, "b": 0.5, "c": 2.25}
    assert times(against(ROWS, "dense_tf32_us")) == {"a": 0.5}
    assert against(ROWS, "dense_fp16_us") == []


def test_the_fastest_fp32_rival_is_another_one_in_each_problem_and_never_tf32():
    assert times(against(ROWS, FASTEST)) == {"a": 2, "b": 0.5, "c": 2.25}


def test_the_mean_is_geometric():
    assert mean(against(ROWS, "cusparse_us")) == pytest.approx((4 * 0.5 * 2.25) ** (1 / 3))
    assert mean(against(ROWS, FASTEST)) == pytest.approx(1.5 * (2 / 3) ** (1 / 3))


def test_one_record_against_another_takes_the_best_of_both_and_what_both_have():
    after = [row(20, "a", "stage=True"), row(10, "b"), row(1, "d")]
    assert times(between(ROWS, after)) == {"a": 0.5, "b": 4}


def test_a_variant_is_compared_with_itself():
    after = [row(8, "a"), row(10, "b"), row(5, "a", "vector=4"), row(1, "a", "stage=True")]
    found = same_variants(ROWS, after)
    assert {variant: times(ratios) for variant, ratios in found.items()} == {
        "plain": {"a": 2, "b": 4},
        "vector=4": {"a": 2},
    }


@pytest.mark.parametrize(
    "nnz, band",
    [(5000, "below 60%"), (3000, "60 to 75%"), (2500, "75 to 85%"), (1000, "85 to 92.5%"),
     (500, "92.5 to 96.5%"), (200, "96.5% up"), (0, "96.5% up")],
)  # fmt: skip
def test_each_sparsity_that_dlmc_aims_at_has_its_band_and_75_percent_is_an_edge(nnz, band):
    (ratio,) = against([row(1, nnz=nnz, cusparse_us=1.0)], "cusparse_us")
    assert ratio.band == band


def test_the_report_has_means_by_sparsity_and_by_n_and_names_wins_and_losses():
    text = printed("name", Record(PROVENANCE, ROWS))
    lines = {line.split("  ")[0]: line.split() for line in reversed(text.splitlines()) if line.strip()}
    assert lines["cusparse"][1:] == "1.65 (3) 0.50 (1) 4.00 (1) 2.25 (1)".split()
    by_n = text[text.index("by n") :]
    assert "fastest fp32 1.31 (3) 1.00 (2) 2.25 (1)" in " ".join(by_n.split())
    losses, wins = text[text.index("1 losses") :].split("2 wins")
    assert "0.50  n=256   b  plain" in losses
    assert "2.00  n=256   a  vector=4" in wins and "2.25  n=2048  c  plain" in wins
    assert "dense fp16" not in text


def test_operations_and_states_of_the_cache_are_never_averaged_together():
    rows = [
        row(1, cusparse_us=2.0),
        row(1, cusparse_us=8.0, l2="flushed"),
        row(1, op="sddmm", cusparse_us=4.0),
    ]
    text = printed("name", Record(PROVENANCE, rows))
    assert [
        text.count(f"{op}, L2 {l2}") for op, l2 in (("spmm", "warm"), ("spmm", "flushed"), ("sddmm", "warm"))
    ] == [
        1,
        1,
        1,
    ]
    assert "(2)" not in text


def test_the_command_compares_two_files_and_says_in_what_their_provenance_differs(tmp_path, capsys):
    paths = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    write(paths[0], PROVENANCE, ROWS)
    write(paths[1], {**PROVENANCE, "numba": "0.69"}, [row(5, "a"), row(10, "b", nnz=5000)])
    assert main(["bench", "--compare", *paths]) == 0
    text = capsys.readouterr().out
    assert "best variant  2.83 (2)" in text
    assert "numba: 0.68, then 0.69" in text
    assert "against its rivals, a.csv" in text and "against its rivals, b.csv" not in text


def test_only_the_clearest_wins_and_losses_are_named_unless_all_are_asked_for(tmp_path, capsys):
    path = str(tmp_path / "a.csv")
    rows = [row(us, f"layer {us}", cusparse_us=30.0) for us in range(1, 51)]
    write(path, PROVENANCE, rows)
    assert main(["bench", "--compare", path]) == 0
    short = capsys.readouterr().out
    losses, wins = short.split("wins over")
    assert "layer 50 " in losses and "layer 43 " in losses and "layer 42 " not in short
    assert "... and 12 more: --all names them" in losses
    assert "layer 1 " in wins and "layer 8 " in wins and "layer 9 " not in short
    assert main(["bench", "--compare", path, "--all"]) == 0
    text = capsys.readouterr().out
    assert all(f"layer {us} " in text for us in range(1, 51) if us != 30) and "more" not in text


def test_nothing_to_compare_is_an_error(tmp_path, capsys):
    paths = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    write(paths[0], PROVENANCE, [row(1, "a")])
    write(paths[1], PROVENANCE, [row(1, "b")])
    assert main(["bench", "--compare", *paths]) == 2
    assert "no problem in common" in capsys.readouterr().err
    assert main(["bench", "--compare", paths[0]]) == 2
    assert "no rival times" in capsys.readouterr().err
    assert main(["bench", "--compare", *paths, paths[0]]) == 2
    assert "it takes one or two" in capsys.readouterr().err
