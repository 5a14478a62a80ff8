"""Trees made from costs and records: a planted rule is found, sizes are chosen, scores are held out."""

import json
import os

import numpy as np
import pytest
from timings import PROVENANCE, row

from sparsekern.datasets import ROOT_VARIABLE, dlmc
from sparsekern.naming import format_variant
from sparsekern.problem import RowStats
from sparsekern.selection.candidates import MOST, candidates
from sparsekern.selection.tree import PATH, leaves, trees, written
from sparsekern.study import choose
from sparsekern.study.growing import (
    FEWEST,
    LEAVES,
    LEEWAY,
    Table,
    costs_by_size,
    costs_of,
    grow,
    held_out_costs,
    right_size,
    round_between,
)
from sparsekern.study.records import Record, RecordError, load, read, write
from sparsekern.study.row_lengths import read_row_lengths, row_lengths

H200 = {**PROVENANCE, "gpu": "NVIDIA H200", "sms": "132"}


def planted(count=60, noise=0.0, seed=0):
    """A table of three features and three candidates, each of which is best in one region and half as fast in
    others: by the first feature, and by the second where the first is large. The third says nothing.
    """
    rng = np.random.default_rng(seed)
    values = rng.uniform(0, 1, (count, 3))
    best = np.where(values[:, 0] < 0.4, 0, np.where(values[:, 1] < 0.7, 1, 2))
    costs = np.where(np.arange(3) == best[:, None], 0.0, np.log(2)) + rng.uniform(0, noise, (count, 3))
    return Table(values, costs, np.arange(count) // 2)


def test_a_planted_rule_is_found_with_its_thresholds_and_nothing_else():
    table = planted()
    root = grow(table)
    assert costs_of(root, table, LEAVES).max() == 0
    assert (root.feature, root.above.feature) == (0, 1)
    assert root.threshold == pytest.approx(0.4, abs=0.05) and root.above.threshold == pytest.approx(
        0.7, abs=0.05
    )
    assert root.grown == 2 and root.above.grown == 3 and not root.below.grown
    assert [node.choice for node in (root.below, root.above.below, root.above.above)] == [0, 1, 2]


def meaningless():
    """A table whose features say nothing of which candidate is best."""
    rng = np.random.default_rng(0)
    costs = np.where(rng.permuted(np.tile([0, 1, 2], (60, 1)), axis=1) == 0, 0.0, np.log(2))
    return Table(rng.uniform(0, 1, (60, 3)), costs, np.arange(60) // 6)


def test_a_planted_rule_is_found_in_noise():
    table = planted(noise=0.05)
    assert right_size(table) >= 3
    assert np.exp(-held_out_costs(table, table.matrices).mean()) > 0.95


def test_a_tree_has_no_more_leaves_than_help_on_what_is_unseen():
    table = meaningless()
    sizes = np.zeros(LEAVES)
    for matrix in range(10):
        seen, unseen = (table.part(which) for which in (table.matrices != matrix, table.matrices == matrix))
        sizes += costs_by_size(grow(seen), unseen).sum(0) / len(table)
    size = right_size(table)
    assert sizes[size - 1] <= sizes.min() + LEEWAY < min(sizes[size:])


def test_where_features_say_nothing_a_tree_may_fit_what_it_has_seen_but_held_out_scores_show_it():
    table = meaningless()
    seen = np.exp(-costs_of(grow(table), table, LEAVES).mean())
    unseen = np.exp(-held_out_costs(table, table.matrices).mean())
    assert unseen < 0.7 < 0.75 < seen


def test_a_tree_of_fewer_leaves_is_the_one_that_would_have_been_grown_to_them():
    table = planted(noise=0.5)
    root = grow(table)
    for size in range(1, LEAVES + 1):
        assert costs_of(root, table, size).tolist() == costs_of(grow(table, size), table, LEAVES).tolist()
    sums = [costs_of(root, table, size).sum() for size in range(1, LEAVES + 1)]
    assert sums == sorted(sums, reverse=True)


def test_no_leaf_holds_fewer_problems_than_it_must():
    table = planted(noise=2.0)

    def sizes(node):
        return [*sizes(node.below), *sizes(node.above)] if node.grown else [len(node.rows)]

    assert sum(sizes(grow(table))) == len(table) and min(sizes(grow(table))) >= FEWEST
    few = table.part(np.arange(len(table)) < 2 * FEWEST - 1)
    assert grow(few).grown is None


def test_what_is_held_out_has_no_part_in_the_tree_that_is_judged_on_it():
    """Of two groups, each of which has a best candidate of its own, a tree knows the other one's only."""
    costs = np.repeat([[0.0, 1.0], [1.0, 0.0]], 6, axis=0)
    table = Table(np.repeat([0.0, 1.0], 6)[:, None], costs, np.arange(12))
    groups = np.repeat([0, 1], 6)
    assert held_out_costs(table, groups).tolist() == [1.0] * 12
    assert held_out_costs(table, table.matrices).max() == 0


def test_equal_values_are_never_parted():
    table = Table(np.ones((12, 1)), np.repeat([[0.0, 1.0], [1.0, 0.0]], 6, axis=0), np.arange(12))
    assert grow(table).grown is None


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (0.12, 0.24, 0.2),
        (46, 72, 60),
        (0.0, 1.0, 0.5),
        (1.231, 1.239, 1.235),
        (512, 513, 512.5),
    ],
)
def test_thresholds_are_round_numbers_between(low, high, expected):
    assert round_between(low, high) == expected


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


def test_a_rule_planted_in_a_record_is_found_and_scores_are_perfect():
    made = choose.study("spmm", Record(H200, sweep()), LENGTHS)
    tree, scores = made.tree, made.scores
    assert (tree.feature, tree.then.variant, tree.otherwise.variant) == ("warps", NARROW, BROAD)
    assert scores["problems"] == 96 and scores["matrices"] == scores["layers"] == 6
    assert scores["leaves"] == 2 and [leaf.problems for leaf in leaves(tree)] == [48, 48]
    assert scores["held_out_layer"] == scores["held_out_matrix"] == scores["seen"] == 1
    assert scores["one_candidate_for_all"] == pytest.approx(0.7071, abs=1e-4)


def test_times_with_a_flushed_cache_do_not_count():
    flushed = [row(0.1, MATRICES[0], format_variant(NARROW), n=2048, l2="flushed")]
    made = choose.study("spmm", Record(H200, sweep() + flushed), LENGTHS)
    assert made.scores["problems"] == 96


def test_a_candidate_that_was_not_timed_on_a_problem_counts_as_the_slowest_there():
    lacking = [(NARROW, 64), (BROAD, 1024)]
    made = choose.study("spmm", Record(H200, sweep(lacking=lacking)), LENGTHS)
    at = {problem: costs for problem, costs in zip(made.problems, made.table.costs, strict=True)}
    one = {v: made.variants.index(v) for v in (NARROW, BROAD)}
    assert at[MATRICES[0], 64][one[NARROW]] == 0 == at[MATRICES[0], 1024][one[BROAD]]  # the only one timed
    assert at[MATRICES[0], 128][one[BROAD]] == pytest.approx(np.log(2))


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


def test_the_command_writes_trees_that_select_reads_and_says_how_good_they_are(record, tmp_path, capsys):
    out = tmp_path / "trees.json"
    assert choose.main([str(record), "--out", str(out)]) == 0
    made = trees(out)
    assert made["spmm"].otherwise.variant == BROAD
    assert made["sddmm"].feature == "k" and made["sddmm"].threshold == 300
    said = capsys.readouterr().out
    kept = json.loads(out.read_text())
    assert kept["made"]["record"] == "candidates.csv" and kept["made"]["gpu"] == "NVIDIA H200"
    for op in ("spmm", "sddmm"):
        assert f"held_out_layer: {kept[op]['scores']['held_out_layer']}" in said
    assert str(tmp_path) not in out.read_text()


def test_the_same_times_give_the_same_file_whatever_the_order_of_rows(record, tmp_path, capsys):
    texts, rows = [], read(record).rows
    for order in (1, 1, -1):
        write(record, H200, rows[::order])
        choose.main([str(record), "--out", str(tmp_path / "trees.json")])
        texts.append((tmp_path / "trees.json").read_text())
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
def test_the_trees_and_their_scores_are_made_of_the_committed_record_and_nothing_else(op):
    kept = json.loads(PATH.read_text())[op]
    made = choose.study(op, load("candidates"), read_row_lengths())
    assert written(made.tree) == kept["tree"] and made.scores == kept["scores"]
