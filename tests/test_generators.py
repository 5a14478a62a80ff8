"""Generated matrices, look-alikes of real layers among them."""

import numpy as np
import pytest
from margins import counts_of, cov, lengths_of

from sparsekern.datasets import layers, look_alike
from sparsekern.generators import banded, like_dlmc, power_law, uniform, with_row_lengths

LAYERS = {facts.path: facts for facts in layers()}


def assert_same(a, b):
    """Equal to the last bit: structure from offset 0 on, values, dtypes."""
    assert a.shape == b.shape
    left, right = a.to_scipy(), b.to_scipy()
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(left, part), getattr(right, part), strict=True)


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
