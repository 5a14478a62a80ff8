"""How `select` chooses: candidates, features, tables of what those cost by these, and what fits operands."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from test_lattice import disagreement
from timings import row

from sparsekern import SddmmVariant, SpmmVariant, VariantError
from sparsekern.datasets import layers
from sparsekern.naming import format_variant, parse_variant
from sparsekern.problem import Layout, RowStats, SddmmProblem, SpmmProblem
from sparsekern.select import H200_WARPS, select
from sparsekern.selection.candidates import MOST, candidates, read_variants
from sparsekern.selection.features import FEATURES, features
from sparsekern.selection.fitting import fitted
from sparsekern.selection.table import NUGGET, PATH, Table, in_words, tables
from sparsekern.study import bench_command
from sparsekern.study.cases import cases
from sparsekern.study.row_lengths import problem_of, read_row_lengths

OPS = list(FEATURES)
LENGTHS = read_row_lengths()


def contiguous(rows, columns):
    return Layout(ld=columns, reach=rows * columns)


def spmm(m=512, k=512, n=256, mean=50.0, longest=80, cov=0.2, ld=None, align=16, reach=None):
    b, c = (replace(contiguous(rows, ld or n), align=align) for rows in (k, m))
    rows = RowStats(longest, mean, cov, 0, (int(m * mean),) * 5)
    b = replace(b, reach=reach or b.reach)
    return SpmmProblem(m=m, k=k, n=n, nnz=int(m * mean), rows=rows, b=b, c=c)


def sddmm(m=512, n=512, k=256, strips=2000, ld=None, align=16):
    lhs, rhs = (replace(contiguous(rows, ld or k), align=align) for rows in (m, n))
    rows = RowStats(60, 50.0, 0.2, 0, (50 * m, 2 * strips, strips, strips // 2, m))
    return SddmmProblem(m=m, k=k, n=n, nnz=50 * m, rows=rows, lhs=lhs, rhs=rhs)


class PaperLayer:
    """What `cases` asks of a layer."""

    def __init__(self, name):
        self.name, self.model = name, name.split("/")[0]


def papers_problems(op):
    """The problems that the records are of: each layer at the widths of the paper."""
    for facts in layers():
        for case in cases(op, [PaperLayer(facts.path)]):
            sizes = dict(k=facts.cols, n=case.width) if op == "spmm" else dict(k=case.width, n=facts.cols)
            yield problem_of(row(op=op, m=facts.rows, nnz=facts.nnz, **sizes), LENGTHS[facts.path])


@pytest.mark.parametrize("op", OPS)
def test_candidates_are_few_and_no_two_are_the_same(op):
    listed = candidates(op)
    assert 20 <= len(listed) <= MOST == 64
    assert len(set(listed)) == len(listed) and all(variant.op == op for variant in listed)


@pytest.mark.parametrize("op", OPS)
def test_every_candidate_runs_a_problem_of_the_paper(op):
    problems = list(papers_problems(op))
    assert len(problems) == {"spmm": 77, "sddmm": 147}[op]
    assert [format_variant(v) for v in candidates(op) if any(v.check(p) for p in problems)] == []


@pytest.mark.parametrize("op", OPS)
def test_bench_knows_the_candidates_by_that_name(op):
    assert bench_command.read_variants(op, "candidates") == list(candidates(op))


def test_a_line_that_is_no_variant_is_refused_by_number(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("# first\n\nvector=4\nvector=3\n")
    with pytest.raises(VariantError, match="line 4: vector is '3'"):
        read_variants("spmm", path)
    path.write_text("# none\n")
    with pytest.raises(ValueError, match="names no variant"):
        read_variants("spmm", path)
    path.write_text("vector=4\n vector = 4\n")
    assert read_variants("spmm", path) == [SpmmVariant(vector=4)]


@pytest.mark.parametrize("op", OPS)
def test_a_table_is_small_and_of_candidates(op):
    table = tables()[op]
    assert 2 <= len(table.variants) <= 20 and set(table.variants) <= set(candidates(op))
    assert table.values.shape == (len(table.problems), len(FEATURES[op])) and table.values.min() > 0
    assert table.costs.shape == (len(table.problems), len(table.variants)) and table.costs.min() >= 0


@pytest.mark.parametrize("op", OPS)
def test_the_table_that_is_kept_says_what_it_holds_and_is_of_the_features_that_are_asked_for(op):
    kept = json.loads(PATH.read_text())
    scores = kept[op]["scores"]
    assert kept[op]["features"] == list(FEATURES[op]) and kept["made"]["gpu"] == "NVIDIA H200"
    assert len(set(tables()[op].problems)) == scores["problems"]
    assert len(tables()[op].variants) == scores["candidates_kept"]


@pytest.mark.parametrize("op", OPS)
def test_select_takes_what_the_table_says_on_the_problems_of_the_paper_and_is_seldom_far_off(op):
    table, costs = tables()[op], []
    rows = {tuple(values): row for values, row in zip(table.values, table.costs, strict=True)}
    for problem in papers_problems(op):
        values = [float(f"{value:.6g}") for value in features(problem, H200_WARPS).values()]
        choice = table.choice(table.weights(list(features(problem, H200_WARPS).values())))
        variant, _ = select(problem, H200_WARPS)
        assert variant == fitted(table.variants[choice], problem) and variant.check(problem) is None
        costs.append(rows[tuple(values)][choice])
    assert len(costs) == {"spmm": 77, "sddmm": 147}[op] and np.exp(-np.mean(costs)) > 0.97


def small(values, costs):
    return Table(tuple("abcdef"[: len(values)]), (None,) * len(costs[0]), np.array(values), np.array(costs))


def test_weights_sum_to_one_and_are_largest_for_the_nearest_problem():
    table = small([[1.0, 1.0], [8.0, 1.0], [1.0, 8.0], [8.0, 8.0]], [[0.0]] * 4)
    weights = table.weights([1.2, 1.1])
    assert weights.sum() == pytest.approx(1) and weights.argmax() == 0
    assert table.weights([8**0.5, 8**0.5]) == pytest.approx([0.25] * 4)


def test_between_two_problems_costs_go_along_the_distance_in_doublings():
    """With two problems kriging is by hand: weights (1 +- t) / 2, t of which the nugget takes its share."""
    table, apart = small([[1.0], [16.0]], [[0.0], [1.0]]), 4
    for doublings in (0, 1, 2, 3, 4):
        weight = (1 - (doublings - apart / 2) / (apart + NUGGET) * 2) / 2
        assert table.weights([2.0**doublings]) == pytest.approx([weight, 1 - weight])


def test_problems_of_the_same_features_count_alike():
    table = small([[1.0], [1.0], [16.0]], [[0.0], [0.2], [1.0]])
    first, second, _ = table.weights([1.0])
    assert first == pytest.approx(second) and first + second > 0.95


def test_beyond_what_is_recorded_its_edge_counts():
    table = small([[1.0], [4.0], [16.0]], [[0.0]] * 3)
    assert table.weights([0]).tolist() == table.weights([1.0]).tolist()
    assert table.weights([1e9]).tolist() == table.weights([16.0]).tolist()


def test_of_candidates_that_should_cost_the_same_the_first_is_chosen():
    table = small([[1.0], [4.0]], [[0.3, 0.1, 0.1 + 1e-12, 0.1], [0.3, 0.1, 0.1, 0.1 - 1e-12]])
    assert table.choice(table.weights([2.0])) == 1


def test_the_features_are_those_that_are_described():
    for problem in (spmm(), sddmm()):
        assert list(features(problem, H200_WARPS)) == list(FEATURES[problem.op])


@pytest.mark.parametrize(
    "n, warps", [(1, 128), (32, 128), (33, 256), (64, 256), (65, 512), (128, 512), (129, 1024), (256, 1024)]
)
def test_the_warps_of_a_result_are_of_128_columns_or_of_several_narrower_rows(n, warps):
    assert features(spmm(m=512, n=n), 1)["warps"] == warps
    assert features(spmm(m=512, n=n), 256)["warps"] == warps / 256


def test_a_matrix_without_rows_or_nonzeros_has_features_and_a_choice():
    for m, mean in ((0, 0.0), (9, 0.0)):
        problem = spmm(m=m, mean=mean, longest=0, cov=0.0)
        assert select(problem, H200_WARPS)[0].check(problem) is None


@pytest.mark.parametrize("problem", [spmm(), sddmm()], ids=OPS)
def test_select_says_how_wide_vectors_are_what_the_features_were_and_which_problem_counted_most(problem):
    _, reason = select(problem, H200_WARPS)
    values, table = features(problem, H200_WARPS), tables()[problem.op]
    weights = table.weights(list(values.values()))
    assert reason.startswith("vector=4: the widest that ")
    assert reason.endswith(in_words(problem.op, values, table, weights))
    assert all(f"{values[name]:.3g} {what}" in reason for name, what in FEATURES[problem.op].items())
    assert f"{table.problems[weights.argmax()]} counts most, {weights.max():.0%}" in reason


def test_select_says_which_candidate_it_made_fit_narrow_operands():
    narrow = spmm(n=31)
    chosen, reason = select(narrow, H200_WARPS)
    assert chosen not in tables()["spmm"].variants
    named = reason.removesuffix(", fitted to these operands").rpartition("; ")[2]
    assert fitted(parse_variant("spmm", named), narrow) == chosen


def test_rows_that_hardly_differ_count_as_even():
    assert features(spmm(cov=0.0), 1)["cov"] == features(spmm(cov=0.1), 1)["cov"] == 0.1
    assert features(spmm(cov=0.5), 1)["cov"] == 0.5


@pytest.mark.parametrize("problem", [spmm(), sddmm()], ids=OPS)
def test_the_emulator_gets_few_lanes_and_is_told_so(problem):
    variant, reason = select(problem, 0)
    assert variant.subwarp <= 8 and "few lanes" in reason


def test_a_kernel_of_one_s_own_gets_the_paper_s_variant():
    variant, reason = select(spmm(), H200_WARPS, own_kernel=True)
    assert not variant.in_flight and "a kernel of one's own" in reason


WIDE = SpmmVariant(
    vector=4, items=2, rows_per_block=8, stage=True, sparse_vector=4, prescale=True, uniform_trip=True,
    in_flight=8, prefetch=True, n_first=True,
)  # fmt: skip


def changes(variant, problem):
    """{toggle: new value} of what fitting to `problem` changes."""
    new = fitted(variant, problem)
    assert new.check(problem) is None
    return {
        f.name: getattr(new, f.name) for f in fields(new) if getattr(new, f.name) != getattr(variant, f.name)
    }


@pytest.mark.parametrize(
    "problem, expected",
    [
        (spmm(n=2048), {}),
        (spmm(n=257), {"vector": 1, "items": 8}),
        (spmm(n=514), {"vector": 2, "items": 4}),
        (spmm(n=516, align=8), {"vector": 2, "items": 4}),
        (spmm(n=128), {"items": 1}),
        (spmm(n=132), {}),
        (spmm(n=64), {"items": 1, "subwarp": 16, "rows_per_block": 16, "stage_pad": 4}),
        (spmm(n=4), {"items": 1, "subwarp": 8, "rows_per_block": 32, "stage_pad": 4}),
        (spmm(n=1), {"vector": 1, "items": 1}),
        (spmm(m=8 * 65_536, n=2048), {"n_first": False}),
    ],
    ids=[
        "it fits as it is", "odd rows", "rows of pairs", "aligned to pairs", "one narrow tile", "one tile",
        "half a warp", "the narrowest tile", "one column", "more blocks of rows than a grid has on y",
    ],
)  # fmt: skip
def test_a_candidate_of_spmm_is_made_to_fit(problem, expected):
    assert changes(WIDE, problem) == expected


def test_more_tiles_of_columns_than_a_grid_has_on_y_are_launched_first():
    variant = replace(WIDE, n_first=False)
    assert changes(variant, spmm(m=4, k=1, n=256 * 65_536)) == {"n_first": True}


def test_what_no_fitting_makes_legal_is_refused_and_select_takes_another():
    problem = spmm(k=2**20, n=4096)
    with pytest.raises(VariantError, match="below 2\\*\\*31"):
        fitted(WIDE, problem)
    variant, reason = select(problem, H200_WARPS)
    assert variant.check(problem) is None and not variant.prescale and "below 2**31" in reason


STRIPS = SddmmVariant(
    vector=4, subwarp=16, tile_nnz=16, rows_per_block=1, split=8, work="strips", reduction="halving",
    prescale=True,
)  # fmt: skip


@pytest.mark.parametrize(
    "problem, expected",
    [
        (sddmm(k=1024), {}),
        (sddmm(k=256), {"split": 4, "rows_per_block": 2}),
        (sddmm(k=64), {"split": 1, "rows_per_block": 8}),
        (sddmm(k=1), {"vector": 1, "split": 1, "rows_per_block": 8}),
        (sddmm(k=1026), {"vector": 2}),
        (sddmm(k=1024, align=4), {"vector": 1}),
        (sddmm(k=1024, n=2**21 + 1), {"prescale": False}),
    ],
    ids=[
        "it fits as it is", "parts of a vector a lane", "no parts", "one product", "rows of pairs",
        "unaligned", "positions beyond int32",
    ],
)  # fmt: skip
def test_a_candidate_of_sddmm_is_made_to_fit(problem, expected):
    assert changes(STRIPS, problem) == expected


@pytest.mark.parametrize("chunk", range(4))
@pytest.mark.parametrize("op", OPS)
def test_every_candidate_agrees_with_float64(op, chunk):
    assert [str(v) for v in candidates(op)[chunk::4] if not disagreement(v) <= 1] == []


@pytest.mark.parametrize("op", OPS)
def test_every_candidate_can_be_fitted_to_any_width(op):
    make, width = {"spmm": (spmm, "n"), "sddmm": (sddmm, "k")}[op]
    for size in (1, 2, 3, 4, 7, 31, 32, 49, 64, 100, 128, 300, 1024, 4096):
        problem = make(**{width: size})
        for variant in candidates(op):
            assert fitted(variant, problem).check(problem) is None


@pytest.mark.parametrize("subwarp, split", [(16, 2), (8, 4), (4, 8)])
def test_a_block_that_has_one_row_gets_more_threads_where_vectors_are_narrower(subwarp, split):
    """257 columns are no vectors of four: four times as many lanes then, or vectors of each."""
    few = dict(rows_per_block=1, stage=True, prescale=True, uniform_trip=True, in_flight=8)
    variant = SpmmVariant(vector=4, subwarp=subwarp, split=split, **few)
    problem = spmm(n=257)
    found = fitted(variant, problem)
    assert (found.vector, found.rows_per_block, found.check(problem)) == (1, 1, None)


@pytest.mark.parametrize("n", [257, 1001, 4095])
def test_an_odd_width_takes_no_wide_tile_out_of_the_choice(n):
    wide = [variant for variant in candidates("spmm") if variant.items == 4]
    assert wide
    for variant in wide:
        found = fitted(variant, spmm(n=n))
        assert (found.vector, found.items, found.in_flight) == (1, 8, variant.in_flight)
