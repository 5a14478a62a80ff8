"""Matrices from files: .smtx, Matrix Market, a DLMC tree."""

import gzip
import os

import numpy as np
import pytest
import scipy.io
from margins import counts_of, cov, lengths_of

from sparsekern import datasets
from sparsekern.datasets import dlmc, layers, read_matrix_market, read_smtx, write_smtx
from sparsekern.generators import uniform, with_row_lengths
from sparsekern.zoo import ZOO

LAYERS = {facts.path: facts for facts in layers()}
MATRICES = {name: specimen.make() for name, specimen in ZOO.items()}


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
