"""Files, generators, look-alikes and the zoo."""

import gzip
import os

import numpy as np
import pytest
import scipy.io

from sparsekern import datasets
from sparsekern.datasets import dlmc, layers, look_alike, read_matrix_market, read_smtx, write_smtx
from sparsekern.formats import Csr
from sparsekern.generators import banded, like_dlmc, power_law, uniform, with_row_lengths
from sparsekern.zoo import ZOO

LAYERS = {facts.path: facts for facts in layers()}
MATRICES = {name: specimen.make() for name, specimen in ZOO.items()}


def lengths_of(a):
    return np.diff(a.topology.offsets)


def counts_of(a):
    kept = slice(a.topology.offsets[0], a.topology.offsets[-1])
    return np.bincount(a.topology.columns[kept], minlength=a.shape[1])


def cov(margin):
    return np.std(margin) / np.mean(margin)


def assert_same(a, b):
    """Equal to the last bit: structure from offset 0 on, values, dtypes."""
    assert a.shape == b.shape
    left, right = a.to_scipy(), b.to_scipy()
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(left, part), getattr(right, part), strict=True)


# .smtx


def write(folder, text):
    path = folder / "layer.smtx"
    path.write_bytes(text.encode())
    return path


def test_smtx_text_becomes_the_matrix_it_describes(tmp_path):
    a = read_smtx(write(tmp_path, "2, 5, 3\n0 1 3 \n4 0 2 \n"))
    assert a.shape == (2, 5)
    assert a.topology.offsets.tolist() == [0, 1, 3]
    assert a.topology.columns.tolist() == [4, 0, 2]
    assert a.topology.offsets.dtype == a.topology.columns.dtype == np.int32
    assert a.values.dtype == np.float32


@pytest.mark.parametrize("ending", ["", "\n", "\n\n", "\n \n", "\r\n"])
def test_smtx_without_nonzeros_may_end_after_the_offsets(tmp_path, ending):
    assert read_smtx(write(tmp_path, "2, 5, 0\n0 0 0" + ending)).nnz == 0


def test_smtx_values_are_standard_normal_and_follow_the_seed(tmp_path):
    path = tmp_path / "layer.smtx"
    write_smtx(path, uniform(100, 100, 0.0))
    a, again, other = read_smtx(path, seed=1), read_smtx(path, seed=1), read_smtx(path, seed=2)
    assert_same(a, again)
    assert not np.array_equal(a.values, other.values)
    assert abs(a.values.mean()) < 0.05 and abs(a.values.std() - 1) < 0.05


def test_written_smtx_is_what_dlmc_writes(tmp_path):
    path = tmp_path / "layer.smtx"
    write_smtx(path, with_row_lengths([2, 0, 3], 3).topology)
    offsets_line, columns_line = "0 2 2 5 ", path.read_text().splitlines()[2]
    assert path.read_text() == f"3, 3, 5\n{offsets_line}\n{columns_line}\n"
    assert columns_line.endswith("0 1 2 ")


@pytest.mark.parametrize("name", ZOO)
def test_structure_round_trips_through_smtx(tmp_path, name):
    a, path = MATRICES[name], tmp_path / "layer.smtx"
    write_smtx(path, a)
    kept = slice(a.topology.offsets[0], a.topology.offsets[-1])
    back = read_smtx(path).topology
    assert back.shape == a.shape
    np.testing.assert_array_equal(back.offsets, a.topology.offsets - a.topology.offsets[0])
    np.testing.assert_array_equal(back.columns, a.topology.columns[kept])
    text = path.read_bytes()
    write_smtx(path, back)
    assert path.read_bytes() == text


MALFORMED = {
    "empty": ("", "lacks line 1; it must have 3"),
    "header only": ("2, 5, 3\n", "lacks line 2; it must have 3"),
    "two sizes": ("2, 5\n0 0 0\n\n", "line 1 has 2 integers"),
    "four sizes": ("2, 5, 0, 0\n0 0 0\n\n", "line 1 has 4 integers"),
    "size is a word": ("2, five, 3\n0 1 3\n4 0 2\n", "line 1 holds 'five'"),
    "size is negative": ("-2, 5, 3\n0 1 3\n4 0 2\n", "line 1 holds '-2'"),
    "one offset too few": ("2, 5, 3\n0 3\n4 0 2\n", "line 2 has 2 offsets; 2 rows need 3"),
    "one offset too many": ("2, 5, 3\n0 1 2 3\n4 0 2\n", "line 2 has 4 offsets; 2 rows need 3"),
    "no offsets": ("2, 5, 0\n\n\n", "line 2 has 0 offsets"),
    "offsets are not integers": ("2, 5, 3\n0 1.5 3\n4 0 2\n", "line 2 holds '1.5'"),
    "offsets do not start at 0": ("2, 5, 3\n1 1 3\n4 0 2\n", "line 2 runs from 1 to 3"),
    "offsets do not end at nnz": ("2, 5, 3\n0 1 2\n4 0 2\n", "line 2 runs from 0 to 2"),
    "offsets decrease": ("3, 5, 3\n0 2 1 3\n4 0 2\n", "offsets decreases from 2 to 1 at row 1"),
    "columns are missing": ("2, 5, 3\n0 1 3\n", "line 3 has 0 columns; line 1 says that nnz is 3"),
    "one column too few": ("2, 5, 3\n0 1 3\n4 0\n", "line 3 has 2 columns"),
    "columns but nnz is 0": ("2, 5, 0\n0 0 0\n1\n", "line 3 has 1 columns; line 1 says that nnz is 0"),
    "columns are words": ("2, 5, 3\n0 1 3\n4 x 2\n", "line 3 holds 'x'"),
    "column is negative": ("2, 5, 3\n0 1 3\n4 -1 2\n", "line 3 holds '-1'"),
    "column is k": ("2, 5, 3\n0 1 3\n4 5 2\n", r"columns\[1\] is 5; it must be in \[0, 5\)"),
    "column passes int32": ("2, 5, 3\n0 1 3\n4 4294967296 2\n", "line 3 holds 4294967296"),
    "fourth line": ("2, 5, 3\n0 1 3\n4 0 2\n1.0 2.0 3.0\n", "line 4 is '1.0 2.0 3.0'"),
    "bytes that are no text": ("\x00\x01", "lacks line 2"),
}


@pytest.mark.parametrize("text, message", MALFORMED.values(), ids=MALFORMED)
def test_malformed_smtx_is_an_error_that_names_file_and_place(tmp_path, text, message):
    with pytest.raises(ValueError, match=r"layer\.smtx.*" + message):
        read_smtx(write(tmp_path, text))


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = write(tmp_path, "the old file")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(datasets.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_smtx(path, uniform(3, 3, 0.5))
    assert path.read_text() == "the old file"
    assert [p.name for p in tmp_path.iterdir()] == ["layer.smtx"]


def test_writing_something_that_is_no_matrix_is_a_type_error(tmp_path):
    with pytest.raises(TypeError, match="a is a ndarray"):
        write_smtx(tmp_path / "layer.smtx", np.eye(3))
    assert not list(tmp_path.iterdir())


# Matrix Market


@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz"])
def test_matrix_market_reads_what_scipy_wrote(tmp_path, suffix):
    a = uniform(20, 30, 0.8).to_scipy()
    scipy.io.mmwrite(tmp_path / "a.mtx", a, precision=9)
    path = tmp_path / ("a" + suffix)
    if suffix == ".mtx.gz":
        path.write_bytes(gzip.compress((tmp_path / "a.mtx").read_bytes()))
    b = read_matrix_market(path)
    assert b.values.dtype == np.float32 and b.topology.offsets.dtype == np.int32
    np.testing.assert_array_equal(b.to_scipy().toarray(), a.toarray())


def market(folder, kind, *lines):
    path = folder / "a.mtx"
    path.write_text("\n".join([f"%%MatrixMarket matrix {kind}", *lines]) + "\n")
    return path


def test_matrix_market_pattern_gets_ones_and_symmetry_is_expanded(tmp_path):
    a = read_matrix_market(market(tmp_path, "coordinate pattern symmetric", "3 3 2", "2 1", "3 3"))
    assert a.to_scipy().toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_matrix_market_integers_duplicates_and_zeros_keep_their_meaning(tmp_path):
    lines = ["2 3 4", "1 3 5", "1 3 2", "1 1 -1", "2 2 0"]
    a = read_matrix_market(market(tmp_path, "coordinate integer general", *lines))
    assert a.topology.columns.tolist() == [0, 2, 1]
    assert a.values.tolist() == [-1, 7, 0]


def test_matrix_market_array_files_lose_their_zeros(tmp_path):
    a = read_matrix_market(market(tmp_path, "array real general", "2 2", "1.5", "0", "0", "2"))
    assert a.nnz == 2 and a.to_scipy().toarray().tolist() == [[1.5, 0], [0, 2]]


def test_matrix_market_complex_entries_are_refused(tmp_path):
    path = market(tmp_path, "coordinate complex general", "1 1 1", "1 1 2.0 3.0")
    with pytest.raises(ValueError, match=r"a\.mtx holds complex entries.*float32"):
        read_matrix_market(path)


def test_malformed_matrix_market_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(ValueError, match=r"a\.mtx: .*"):
        read_matrix_market(market(tmp_path, "coordinate real general", "2 2 1", "3 1 1.0"))


# A DLMC tree


def plant(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_smtx(root / name, uniform(4, 6, 0.5))


def test_dlmc_lists_the_layers_of_a_tree_by_name(tmp_path):
    plant(tmp_path, "rn50/random_pruning/0.95/b.smtx", "rn50/random_pruning/0.5/z.smtx", "a/m/0.5/x.smtx")
    (tmp_path / "README.md").write_text("not a layer")
    found = dlmc(tmp_path)
    assert [layer.name for layer in found] == [
        "a/m/0.5/x.smtx",
        "rn50/random_pruning/0.5/z.smtx",
        "rn50/random_pruning/0.95/b.smtx",
    ]
    last = found[-1]
    assert (last.model, last.method, last.sparsity) == ("rn50", "random_pruning", 0.95)
    assert last.load().shape == (4, 6)
    assert_same(last.load(seed=3), read_smtx(last.path, seed=3))


def test_dlmc_takes_its_root_from_the_environment_unless_told(tmp_path, monkeypatch):
    plant(tmp_path / "one", "a/m/0.5/x.smtx")
    plant(tmp_path / "two", "a/m/0.5/y.smtx")
    monkeypatch.setenv("SPARSEKERN_DLMC", str(tmp_path / "one"))
    assert [layer.name for layer in dlmc()] == ["a/m/0.5/x.smtx"]
    assert [layer.name for layer in dlmc(str(tmp_path / "two"))] == ["a/m/0.5/y.smtx"]


@pytest.mark.parametrize("value", [None, ""])
def test_dlmc_without_a_root_says_both_ways_to_give_one(monkeypatch, value):
    monkeypatch.delenv("SPARSEKERN_DLMC", raising=False)
    if value is not None:
        monkeypatch.setenv("SPARSEKERN_DLMC", value)
    with pytest.raises(FileNotFoundError, match=r"dlmc\(root\).*SPARSEKERN_DLMC"):
        dlmc()


def test_dlmc_says_when_the_root_is_missing_or_empty(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="root is .*absent; it must be a folder that exists"):
        dlmc(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"must hold \.smtx files"):
        dlmc(tmp_path)
    monkeypatch.setenv("SPARSEKERN_DLMC", str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError, match="SPARSEKERN_DLMC is .*absent"):
        dlmc()


@pytest.mark.parametrize("name", ["x.smtx", "dlmc/a/m/0.5/x.smtx", "a/m/half/x.smtx"])
def test_dlmc_refuses_a_tree_of_another_depth(tmp_path, name):
    plant(tmp_path, name)
    with pytest.raises(ValueError, match=f"holds {name}; each file must be <model>"):
        dlmc(tmp_path)


def test_every_dlmc_file_parses_and_agrees_with_the_recorded_facts():
    if not os.environ.get("SPARSEKERN_DLMC"):
        pytest.skip("SPARSEKERN_DLMC is not set, so there are no DLMC files to compare with the facts")
    compared = 0
    for layer in dlmc():
        a = layer.load()
        if layer.name in LAYERS:
            facts = LAYERS[layer.name]
            compared += 1
            assert (*a.shape, a.nnz) == (facts.rows, facts.cols, facts.nnz), layer.name
            assert cov(lengths_of(a)) == pytest.approx(facts.cov_row, abs=1e-5), layer.name
            assert cov(counts_of(a)) == pytest.approx(facts.cov_col, abs=1e-5), layer.name
    assert compared, "the tree holds none of the layers in layers.csv"


# Look-alikes


def test_there_are_facts_for_one_layer_of_each_model_method_and_sparsity():
    assert len(LAYERS) == 49
    assert len({path.rsplit("/", 1)[0] for path in LAYERS}) == 49
    for facts in LAYERS.values():
        assert 0 < facts.nnz < facts.rows * facts.cols
        assert facts.cov_row > 0 and facts.cov_col > 0 and facts.N_small >= 1


def assert_like(a, rows, cols, nnz, cov_row, cov_col):
    assert (*a.shape, a.nnz, len(a.values)) == (rows, cols, nnz, nnz)
    assert a.to_scipy().has_canonical_format  # sorted columns, none twice
    assert cov(lengths_of(a)) == pytest.approx(cov_row, rel=0.1, abs=1e-4)
    assert cov(counts_of(a)) == pytest.approx(cov_col, rel=0.1, abs=1e-4)


@pytest.mark.parametrize("path", LAYERS)
def test_look_alike_has_the_shape_count_and_covs_of_the_layer(path):
    facts = LAYERS[path]
    assert_like(look_alike(path), facts.rows, facts.cols, facts.nnz, facts.cov_row, facts.cov_col)


SKEWED = {  # of real layers, or of a 0/1 matrix that exists
    "six nonzeros in one column": (512, 512, 6, 9.18332, 22.60531),
    "a row of 32 of 39 nonzeros": (512, 512, 39, 18.60258, 5.56587),
    "both margins skewed, 20 nonzeros": (512, 512, 20, 10.92337, 12.86079),
    "the most skewed rows": (2048, 512, 159, 28.3433, 2.20294),
    "the most skewed columns": (512, 2048, 274, 1.35033, 28.3617),
    "half dense with even columns": (512, 128, 32768, 0.3, 0.005),
    "a permutation": (50, 50, 50, 0.0, 0.0),
    "full": (20, 30, 600, 0.0, 0.0),
    "full but for one": (20, 30, 599, cov([29] + [30] * 19), cov([19] + [20] * 29)),
    "one full row": (40, 30, 30, cov([30] + [0] * 39), 0.0),
    "one full column": (40, 30, 40, 0.0, cov([40] + [0] * 29)),
    "a full row crosses a full column": (20, 30, 49, cov([30] + [1] * 19), cov([20] + [1] * 29)),
    "one nonzero": (7, 9, 1, 6**0.5, 8**0.5),
    "one by one": (1, 1, 1, 0.0, 0.0),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("facts", SKEWED.values(), ids=SKEWED)
def test_look_alikes_reach_extreme_skew_and_none_at_all(facts, seed):
    assert_like(like_dlmc(*facts, seed=seed), *facts)


def test_any_random_01_matrix_has_a_look_alike():
    rng = np.random.default_rng(0)
    for seed in range(100):
        m, k = rng.integers(8, 60, 2)
        weight = np.outer(rng.gamma(0.5, size=m), rng.gamma(2.0, size=k))
        a = rng.random((m, k)) < 0.3 * weight / weight.mean()
        facts = (int(m), int(k), int(a.sum()), cov(a.sum(axis=1)), cov(a.sum(axis=0)))
        assert_like(like_dlmc(*facts, seed=seed), *facts)


def test_a_look_alike_of_random_pruning_looks_random():
    """The number of columns that two rows share is spread as for independent entries, Binomial(k, p^2)."""
    m, k, p = 256, 512, 0.2
    covs = np.sqrt((1 - p) / (k * p)), np.sqrt((1 - p) / (m * p))
    pattern = (like_dlmc(m, k, round(p * m * k), *covs).to_scipy() != 0).toarray().astype(float)
    shared = (pattern @ pattern.T)[np.triu_indices(m, 1)]
    assert shared.mean() == pytest.approx(k * p**2, rel=0.02)
    assert shared.std() == pytest.approx(np.sqrt(k * p**2 * (1 - p**2)), rel=0.05)
    assert (pattern[:, 1:] * pattern[:, :-1]).mean() == pytest.approx(p**2, rel=0.05)


def test_a_look_alike_without_nonzeros_is_empty_whatever_the_covs():
    a = like_dlmc(5, 7, 0, float("nan"), 3.0)
    assert a.shape == (5, 7) and a.nnz == 0


@pytest.mark.parametrize(
    "facts, message",
    [
        ((4, 5, 21, 0.1, 0.1), r"nnz is 21; .* \(4, 5\) has room for 20"),
        ((4, 5, -1, 0.1, 0.1), "nnz is -1; it must not be negative"),
        ((-4, 5, 1, 0.1, 0.1), "rows is -4; it must not be negative"),
        ((4, 5, 5, 0.0, 0.0), r"cov_row is 0.0; it must be in \[0.34641, 1.73205\]"),
        ((4, 5, 5, 1.8, 0.0), r"cov_row is 1.8; it must be in \[0.34641, 1.73205\]"),
        ((5, 4, 5, 0.0, 1.8), r"cov_col is 1.8; it must be in \[0.34641, 1.73205\]"),
        ((4, 5, 20, 0.1, 0.0), r"cov_row is 0.1; it must be in \[0.00000, 0.00000\]"),
        ((4, 5, 5, float("nan"), 0.0), "cov_row is nan; it must be in"),
        ((4, 4, 4, 3**0.5, 3**0.5), "of 25 .* none came within 10% of both"),
    ],
)
def test_impossible_look_alikes_are_errors_that_say_the_bound(facts, message):
    with pytest.raises(ValueError, match=message):
        like_dlmc(*facts)


def test_the_bounds_of_a_cov_are_those_of_all_integer_margins():
    """Over every margin of 4 integers in [0, 3] that add up to 7."""
    margins = [x for x in np.ndindex(4, 4, 4, 4) if sum(x) == 7]
    low, high = min(map(cov, margins)), max(map(cov, margins))
    with pytest.raises(ValueError, match=rf"\[{low:.5f}, {high:.5f}\]"):
        like_dlmc(4, 3, 7, 9.0, 0.2)


def test_an_unknown_layer_is_an_error_that_lists_names_like_it():
    name = "rn50/random_pruning/0.5/bottleneck_3_block_group3_2_1.smtx"
    with pytest.raises(KeyError, match=name):
        look_alike(name.replace("0.5", "0.55"))


# Generators

SEEDED = {
    "uniform": lambda seed: uniform(30, 40, 0.7, seed),
    "with_row_lengths": lambda seed: with_row_lengths([3, 0, 9, 40], 40, seed),
    "power_law": lambda seed: power_law(30, 40, 300, seed=seed),
    "like_dlmc": lambda seed: like_dlmc(30, 40, 300, 0.5, 0.4, seed),
}


@pytest.mark.parametrize("make", SEEDED.values(), ids=SEEDED)
def test_the_seed_and_nothing_else_decides_what_is_generated(make):
    np.random.seed(1)
    a = make(0)
    np.random.seed(2)
    assert_same(a, make(0))
    other = make(1)
    assert not np.array_equal(a.topology.columns, other.topology.columns)
    assert not np.array_equal(a.values, other.values)
    assert a.to_scipy().has_canonical_format
    assert a.topology.offsets.dtype == a.topology.columns.dtype == np.int32


@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9, 0.999, 1.0])
def test_uniform_has_exactly_the_nonzeros_that_sparsity_leaves(sparsity):
    a = uniform(37, 53, sparsity)
    assert a.shape == (37, 53) and a.nnz == round((1 - sparsity) * 37 * 53)


def test_uniform_favours_no_position():
    hits = sum((uniform(6, 7, 0.5, seed).to_scipy() != 0).toarray().astype(int) for seed in range(400))
    assert hits.min() > 150 and hits.max() < 250  # 200 expected, standard deviation 10


def test_rows_get_the_lengths_asked_for():
    assert lengths_of(with_row_lengths([3, 0, 9, 9], 9)).tolist() == [3, 0, 9, 9]


def test_power_law_rows_fall_off_with_the_exponent():
    a = power_law(2000, 5000, 20000, exponent=2.5)
    lengths = np.sort(lengths_of(a))[::-1]
    assert a.nnz == 20000
    slope = np.polyfit(np.log(np.arange(1, 101)), np.log(lengths[:100]), 1)[0]
    assert slope == pytest.approx(-1 / 1.5, rel=0.05)


def test_power_law_rows_stop_at_the_number_of_columns():
    a = power_law(50, 20, 600, exponent=1.5)
    assert a.nnz == 600 and lengths_of(a).max() == 20


@pytest.mark.parametrize(
    "m, k, bandwidth", [(6, 6, 0), (6, 6, 2), (9, 4, 1), (4, 9, 1), (3, 3, 10), (0, 3, 1)]
)
def test_banded_is_the_band_and_nothing_else(m, k, bandwidth):
    inside = np.abs(np.arange(m)[:, None] - np.arange(k)) <= bandwidth
    a = banded(m, k, bandwidth)
    assert a.nnz == inside.sum()
    np.testing.assert_array_equal(a.to_scipy().toarray() != 0, inside)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: uniform(3, 4, 1.5), ValueError, "sparsity is 1.5; it must be in"),
        (lambda: uniform(3, -4, 0.5), ValueError, "k is -4; it must not be negative"),
        (lambda: uniform(3.0, 4, 0.5), TypeError, "m is 3.0; it must be an integer"),
        (lambda: with_row_lengths([2, 5], 4), ValueError, r"lengths\[1\] is 5; it must be in \[0, 4\]"),
        (lambda: with_row_lengths([2, -1], 4), ValueError, "lengths is -1; it must not be negative"),
        (lambda: power_law(3, 4, 13), ValueError, "nnz is 13; .* has room for 12"),
        (lambda: power_law(3, 4, 5, exponent=1), ValueError, "exponent is 1; it must be above 1"),
        (lambda: banded(3, 4, -1), ValueError, "bandwidth is -1; it must not be negative"),
    ],
)
def test_wrong_arguments_are_errors_that_name_argument_value_and_rule(make, error, message):
    with pytest.raises(error, match=message):
        make()


# The zoo


@pytest.mark.parametrize("name", ZOO)
def test_specimens_are_small_explained_and_made_afresh(name):
    specimen, a = ZOO[name], MATRICES[name]
    assert specimen.name == name
    assert specimen.why.endswith(".") and "\n" not in specimen.why
    assert isinstance(a, Csr) and a.shape[0] <= 60 and a.topology.stored <= 1500
    again = specimen.make()
    assert again.topology is not a.topology
    assert_same(a, again)


def repeats_columns(a):
    return any(len(set(row)) < len(row) for row in rows_of(a))


def rows_of(a):
    t = a.topology
    return [t.columns[i:j].tolist() for i, j in zip(t.offsets[:-1], t.offsets[1:], strict=True)]


PROPERTIES = {
    "no_rows": lambda a: a.shape == (0, 5),
    "no_columns": lambda a: a.shape == (5, 0),
    "nothing": lambda a: a.shape == (0, 0),
    "one_by_one": lambda a: a.shape == (1, 1) and a.nnz == 1,
    "single_row": lambda a: a.shape[0] == 1 and a.nnz > 32,
    "single_column": lambda a: a.shape[1] == 1 and a.nnz > 1,
    "last_column_only": lambda a: set(a.topology.columns.tolist()) == {a.shape[1] - 1},
    "no_nonzeros": lambda a: a.nnz == 0 and min(a.shape) > 0,
    "one_row_holds_all": lambda a: np.count_nonzero(lengths_of(a)) == 1 and a.shape[0] > 1,
    "first_and_last_row_empty": lambda a: lengths_of(a)[[0, -1]].tolist() == [0, 0] and a.nnz > 0,
    "one_giant_row": lambda a: sorted(lengths_of(a))[-2:] == [1, 300],
    "long_and_empty_in_turn": lambda a: (np.diff(lengths_of(a) > 0)).all(),
    "whole_tiles": lambda a: set((lengths_of(a) % 32).tolist()) == {0},
    "tiles_plus_and_minus_one": lambda a: set((lengths_of(a) % 32).tolist()) == {31, 0, 1},
    "lengths_0_to_40": lambda a: (
        lengths_of(a).tolist() == list(range(41))
        and set((a.topology.offsets[:-1] % 4).tolist()) == {0, 1, 2, 3}
    ),
    "aligned_rows": lambda a: not (a.topology.offsets % 4).any(),
    "misaligned_rows": lambda a: (a.topology.offsets[1:] % 4).all(),
    "duplicate_columns": repeats_columns,
    "unsorted_columns": lambda a: not repeats_columns(a) and any(row != sorted(row) for row in rows_of(a)),
    "explicit_zeros": lambda a: {str(v) for v in a.values if v == 0} == {"0.0", "-0.0"},
    "extreme_values": lambda a: (
        np.abs(a.values).max() == np.float32(1e30) and 0 < np.abs(a.values).min() < np.finfo(np.float32).tiny
    ),
    "int64_offsets": lambda a: a.topology.offsets.dtype == np.int64,
    "window_of_rows": lambda a: (
        0 < a.topology.offsets[0] < a.topology.offsets[-1] < a.topology.stored
        and np.isfinite(a.to_scipy().data).all()
        and np.isnan(a.values[[0, -1]]).all()
    ),
    "read_only_values": lambda a: not a.values.flags.writeable,
    "strided_values": lambda a: a.values.strides == (8,),
    "zero_stride_values": lambda a: a.values.strides == (0,),
    "thirty_seven_rows": lambda a: a.shape[0] == 37,
    "dense": lambda a: a.nnz == a.shape[0] * a.shape[1] > 0,
    "power_law_rows": lambda a: lengths_of(a).max() == a.shape[1] and np.median(lengths_of(a)) < 10,
    "diagonals": lambda a: (np.abs(np.subtract(*a.to_scipy().nonzero())) <= 3).all(),
    "pruned_layer": lambda a: cov(lengths_of(a)) > 0.4 and 0.79 < 1 - a.nnz / np.prod(a.shape) < 0.81,
}


@pytest.mark.parametrize("name", ZOO)
def test_each_specimen_is_what_its_name_says(name):
    assert PROPERTIES[name](MATRICES[name])
