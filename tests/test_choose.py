"""Tables made from records: what is planted between problems is found, and scores are held out."""

import json
import os

import numpy as np
import pytest
from timings import PROVENANCE, row

from sparsekern.datasets import ROOT_VARIABLE, dlmc
from sparsekern.naming import format_variant
from sparsekern.problem import RowStats
from sparsekern.select import H200_WARPS
from sparsekern.selection.candidates import MOST, candidates
from sparsekern.selection.features import features
from sparsekern.selection.table import PATH, Table, tables
from sparsekern.study import choose
from sparsekern.study.choose import costs_of_chosen, few, held_out_costs
from sparsekern.study.records import Record, RecordError, load, path_of, read, write
from sparsekern.study.row_lengths import problem_of, read_row_lengths, row_lengths

H200 = {**PROVENANCE, "gpu": "NVIDIA H200", "sms": "132"}


def made_of(values, costs):
    """A table of problems with numbers for names."""
    return Table(
        tuple(map(str, range(len(values)))), (None,) * len(costs[0]), np.array(values), np.array(costs)
    )


def planted(count=60, noise=0.0, seed=0):
    """A table of two features and three candidates, each the best in one region and by up to twice as slow
    elsewhere: by the product of the features, so that no question of one of them tells.
    """
    rng = np.random.default_rng(seed)
    values = 2.0 ** rng.uniform(-3, 3, (count, 2))
    along = np.log2(values).sum(1)[:, None]
    costs = np.abs(along - [-3, 0, 3]) / 6
    costs = np.minimum(costs - costs.min(1, keepdims=True), np.log(2))
    return made_of(values, costs + rng.uniform(0, noise, costs.shape))


def test_what_is_held_out_is_chosen_well_where_costs_change_smoothly_with_features():
    for noise, least in ((0.0, 0.99), (0.05, 0.96)):
        table = planted(noise=noise)
        assert np.exp(-held_out_costs(table, np.arange(60) // 2).mean()) > least
    one_for_all = planted().costs.mean(0).min()
    assert np.exp(-one_for_all) < 0.85


def test_where_features_say_nothing_held_out_scores_are_no_better_than_chance():
    rng = np.random.default_rng(0)
    costs = np.where(rng.permuted(np.tile([0, 1, 2], (60, 1)), axis=1) == 0, 0.0, np.log(2))
    table, everything = made_of(rng.uniform(1, 2, (60, 3)), costs), np.ones(60, bool)
    seen = np.exp(-costs_of_chosen(table, everything, everything).mean())
    unseen = np.exp(-held_out_costs(table, np.arange(60) // 6).mean())
    assert unseen < 0.7 < seen


def test_what_is_held_out_has_no_part_in_the_choice_that_is_judged_on_it():
    """Of two groups, each of which has a best candidate of its own, a table knows the other one's only."""
    table = made_of(np.repeat([1.0, 2.0], 6)[:, None], np.repeat([[0.0, 1.0], [1.0, 0.0]], 6, axis=0))
    assert held_out_costs(table, np.repeat([0, 1], 6)).tolist() == [1.0] * 12
    assert held_out_costs(table, np.arange(12)).max() == 0


def test_the_candidates_kept_are_those_that_do_most_together():
    costs = np.array([[0.0, 1.0, 0.4, 0.0], [1.0, 0.0, 0.4, 1.0], [1.0, 0.1, 0.4, 1.0]])
    assert few(costs, 1) == [1]
    assert few(costs, 2) == few(costs) == [0, 1]
    assert few(costs[:, 2:], 9) == [0, 1]


WIDTHS = range(64, 64 * 17, 64)
NARROW, BROAD = candidates("spmm")[0], candidates("spmm")[10]
MATRICES = [f"transformer/random_pruning/0.9/layer_{number}.smtx" for number in range(6)]
LENGTHS = {matrix: RowStats(12 + number, 10.0, 0.1, 0, (1000,) * 5) for number, matrix in enumerate(MATRICES)}


def sweep(op="spmm", lacking=()):
    """Rows of 6 matrices at 16 widths: BROAD takes half as long from n = 513 on, and twice as long below."""
    rows = []
    for matrix in MATRICES:
        for n in WIDTHS:
            for variant, us in ((NARROW, 10.0), (BROAD, 5.0 if n > 512 else 20.0)):
                if (variant, n) not in lacking:
                    rows.append(row(us, matrix, format_variant(variant), op=op, n=n))
    return rows


def test_a_rule_planted_in_a_record_is_followed_and_scores_are_perfect():
    made = choose.study("spmm", Record(H200, sweep()), LENGTHS)
    scores = made.scores
    assert [made.table.variants[column] for column in made.kept] == sorted(
        (NARROW, BROAD), key=format_variant
    )
    assert scores["problems"] == 96 and scores["matrices"] == scores["layers"] == 6
    assert scores["held_out_layer"] == scores["held_out_matrix"] == scores["seen"] == 1
    assert scores["one_candidate_for_all"] == pytest.approx(0.7071, abs=1e-4)


def test_times_with_a_flushed_cache_do_not_count():
    flushed = [row(0.1, MATRICES[0], format_variant(NARROW), n=2048, l2="flushed")]
    made = choose.study("spmm", Record(H200, sweep() + flushed), LENGTHS)
    assert made.scores["problems"] == 96


def test_a_candidate_that_was_not_timed_on_a_problem_counts_as_the_slowest_there():
    lacking = [(NARROW, 64), (BROAD, 1024)]
    made = choose.study("spmm", Record(H200, sweep(lacking=lacking)), LENGTHS)
    at = dict(zip(made.table.problems, made.table.costs, strict=True))
    one = {v: made.table.variants.index(v) for v in (NARROW, BROAD)}
    assert at[f"{MATRICES[0]} at n=64"][one[NARROW]] == 0  # the only one timed
    assert at[f"{MATRICES[0]} at n=1024"][one[BROAD]] == 0
    assert at[f"{MATRICES[0]} at n=128"][one[BROAD]] == pytest.approx(np.log(2))


def test_layers_of_one_name_and_shape_are_held_out_together():
    def of(method):
        return {matrix.replace("random_pruning", method): stats for matrix, stats in LENGTHS.items()}

    lengths = LENGTHS | of("magnitude_pruning")
    rows = [row(10.0, matrix, "vector=4", n=64) for matrix in lengths]
    scores = choose.study("spmm", Record(H200, rows), lengths).scores
    assert (scores["matrices"], scores["layers"]) == (12, 6)


@pytest.mark.parametrize(
    "rows, provenance, message",
    [
        ([], H200, "has 0 variants of spmm; it must have 1 to 64"),
        (
            [row(matrix="transformer/a/0.5/b.smtx")],
            H200,
            "row lengths of transformer/a/0.5/b.smtx are not known",
        ),
        ([row(matrix=MATRICES[0])], PROVENANCE, "its provenance lacks sms"),
        ([row(matrix=MATRICES[0])], H200, "has one layer of spmm; it must have 2 at least"),
        ([row(matrix=MATRICES[0], nnz=0)], H200, "problems of spmm without a nonzero"),
    ],
)
def test_a_record_that_will_not_do_is_refused(rows, provenance, message):
    with pytest.raises(RecordError, match=message):
        choose.study("spmm", Record(provenance, rows), LENGTHS)


def test_more_candidates_than_may_be_are_refused():
    from sparsekern import SpmmVariant

    variants = [
        SpmmVariant(vector=v, rows_per_block=r, items=i, bundle=b, bin=c)
        for v in (1, 2, 4) for r in (1, 2, 4, 8) for i in (1, 2) for b in (False, True) for c in (False, True)
    ]  # fmt: skip
    rows = [row(10.0, MATRICES[0], format_variant(variant)) for variant in variants[: MOST + 1]]
    with pytest.raises(RecordError, match="has 65 variants of spmm; it must have 1 to 64"):
        choose.study("spmm", Record(H200, rows), LENGTHS)


@pytest.fixture
def record(tmp_path, monkeypatch):
    """The path of a record of both operations."""
    monkeypatch.setattr(choose, "read_row_lengths", lambda: LENGTHS)
    narrow, broad = candidates("sddmm")[:2]
    rows = sweep()
    for number, matrix in enumerate(MATRICES):
        for k in WIDTHS:
            sizes = dict(op="sddmm", k=k, n=100 + number)
            rows.append(row(3.0, matrix, format_variant(narrow), **sizes))
            rows.append(row(2.0 if k > 300 else 4.0, matrix, format_variant(broad), **sizes))
    path = tmp_path / "candidates.csv"
    write(path, H200, rows)
    return path


def test_the_command_writes_tables_that_select_reads_and_says_how_good_they_are(record, tmp_path, capsys):
    out = tmp_path / "tables.json"
    assert choose.main([str(record), "--out", str(out)]) == 0
    made, kept = tables(out), json.loads(out.read_text())
    lengths, narrow, broad = LENGTHS[MATRICES[0]], *candidates("sddmm")[:2]
    for k, expected in ((64, narrow), (224, narrow), (416, broad), (4096, broad)):
        problem = problem_of(row(0.0, op="sddmm", k=k, n=100), lengths)
        at = list(features(problem, H200_WARPS).values())
        assert made["sddmm"].variants[made["sddmm"].choice(made["sddmm"].weights(at))] == expected
    assert kept["made"]["record"] == "candidates.csv" and kept["made"]["gpu"] == "NVIDIA H200"
    said = capsys.readouterr().out
    for op in ("spmm", "sddmm"):
        assert f"held_out_layer: {kept[op]['scores']['held_out_layer']}" in said
    assert str(tmp_path) not in out.read_text()


def test_a_table_that_is_read_is_the_one_that_was_made(record, tmp_path, capsys):
    out = tmp_path / "tables.json"
    assert choose.main([str(record), "--out", str(out)]) == 0
    for op, kept in tables(out).items():
        made = choose.study(op, read(record), LENGTHS)
        assert kept.problems == made.table.problems and (kept.values == made.table.values).all()
        assert kept.variants == tuple(made.table.variants[column] for column in made.kept)
        assert (kept.costs == made.table.costs[:, made.kept]).all()


def test_the_same_times_give_the_same_file_whatever_the_order_of_rows(record, tmp_path, capsys):
    texts, rows = [], read(record).rows
    for order in (1, 1, -1):
        write(record, H200, rows[::order])
        choose.main([str(record), "--out", str(tmp_path / "tables.json")])
        texts.append((tmp_path / "tables.json").read_text())
    assert texts[0] == texts[1] == texts[2]


def test_a_missing_record_is_an_error_in_words(tmp_path, capsys):
    assert choose.main([str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_the_row_lengths_that_are_kept_are_those_of_the_layers():
    from sparsekern.datasets import layers

    kept = read_row_lengths()
    assert set(kept) == {facts.path for facts in layers()}
    for facts in layers():
        stats = kept[facts.path]
        assert stats.mean == facts.nnz / facts.rows and stats.strips_of(1) == facts.nnz
        assert stats.cov == pytest.approx(facts.cov_row, rel=1e-3)
        assert stats.longest >= stats.mean and stats.strips_of(8) >= stats.strips_of(16) >= stats.strips_of(
            64
        )


@pytest.mark.skipif(not os.environ.get(ROOT_VARIABLE), reason=f"{ROOT_VARIABLE} names no DLMC tree")
def test_the_row_lengths_that_are_kept_are_those_of_the_matrices(tmp_path):
    path, kept = tmp_path / "lengths.csv", read_row_lengths()
    some = [layer for layer in dlmc() if layer.name in kept]
    path.write_text(row_lengths(some))
    assert some and read_row_lengths(path) == {layer.name: kept[layer.name] for layer in some}


@pytest.mark.parametrize("op", ["spmm", "sddmm"])
def test_the_tables_and_their_scores_are_made_of_the_committed_record_and_nothing_else(op):
    kept = json.loads(PATH.read_text())[op]
    made = choose.study(op, load("candidates"), read_row_lengths())
    assert made.scores == kept["scores"]
    assert {key: kept[key] for key in made.written} == made.written


def test_the_tables_of_the_library_are_made_of_candidates_only(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(choose, "PATH", tmp_path / "tables.json")
    assert choose.main([str(path_of("ladder")), "--out", str(choose.PATH)]) == 2
    assert "which is no candidate" in capsys.readouterr().err
    assert not choose.PATH.exists()
    nowhere = tmp_path / "no folder" / "tables.json"
    assert choose.main([str(path_of("candidates")), "--out", str(nowhere)]) == 2
    assert "there is no folder" in capsys.readouterr().err
