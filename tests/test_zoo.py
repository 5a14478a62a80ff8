"""The zoo: each specimen is what its name says."""

import numpy as np
import pytest
from margins import cov, lengths_of

from sparsekern.formats import Csr
from sparsekern.zoo import ZOO

MATRICES = {name: specimen.make() for name, specimen in ZOO.items()}


def assert_same(a, b):
    """Equal to the last bit: structure from offset 0 on, values, dtypes."""
    assert a.shape == b.shape
    left, right = a.to_scipy(), b.to_scipy()
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(left, part), getattr(right, part), strict=True)


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
