"""What is known of an array without reading it: where it lies, how, and what else lies there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operands import dense

from sparsekern.libraries import view

X = dense(6, 8)
VIEWS = {
    "whole": X,
    "rows": X[2:5],
    "left columns": X[:, :3],
    "inner columns": X[1:3, 2:6],
    "transposed": X.T,
    "column-major": np.asfortranarray(X),
    "every other column": X[:, ::2],
    "every other row": X[::2],
    "rows upside down": X[::-1],
    "columns mirrored": X[:, ::-1],
    "zero row stride": np.broadcast_to(X[:1], X.shape),
    "zero column stride": np.broadcast_to(X[:, :1], X.shape),
    "one row": X[3:4],
    "part of one row": X[3:4, 1:4],
    "one row, from far away": np.lib.stride_tricks.as_strided(X, (1, 4), (4, 4)),
    "one row, from between two elements": np.lib.stride_tricks.as_strided(X, (1, 4), (3, 4)),
    "one column": X[:, 3:4],
    "one column, its elements far apart": np.lib.stride_tricks.as_strided(X, (3, 1), (32, 400)),
    "one column, its elements between two": np.lib.stride_tricks.as_strided(X, (3, 1), (32, 3)),
    "one element": X[5:, 7:],
    "no rows": X[:0],
    "no columns": X[:, :0],
    "nothing, backwards": X[3:3, ::-1],
    "nothing of its own": np.empty((0, 5), np.float32),
    "a row": X[2],
    "a column": X[:, 2],
    "a row mirrored": X[2, ::-1],
    "a scalar": X[2, 2, ...],
    "int64": np.arange(12).reshape(3, 4),
    "unaligned": np.frombuffer(b"x" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(X.shape),
}
ROW_MAJOR = {
    "whole", "rows", "left columns", "inner columns", "every other row", "one row", "part of one row",
    "one row, from far away", "one row, from between two elements", "one column", "int64",
    "one column, its elements far apart", "one column, its elements between two", "one element", "no rows",
    "no columns", "nothing, backwards", "nothing of its own",
}  # fmt: skip


def read_by(seen, ld, x):
    """The elements that a kernel finds which takes row i to start at i * ld."""
    flat, found = seen.flat(seen.reach(ld)), np.zeros(x.shape, x.dtype)
    for i, j in np.ndindex(x.shape):
        found[i, j] = flat[i * ld + j]
    return found


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_knows_how_its_array_lies(name):
    x, seen = VIEWS[name], view("x", VIEWS[name])
    assert (seen.shape, seen.size, seen.dtype) == (x.shape, x.size, x.dtype.name)
    assert seen.aligned == x.flags.aligned
    assert seen.contiguous == (x.flags.c_contiguous and x.flags.aligned)
    assert seen.writeable == x.flags.writeable
    assert seen.place == "host memory"
    assert seen.address % seen.alignment() == 0 and seen.alignment() <= 16


@pytest.mark.parametrize("name", [name for name in VIEWS if VIEWS[name].ndim == 2])
def test_a_view_has_a_leading_dimension_if_rows_can_be_read_with_one(name):
    x, seen = VIEWS[name], view("x", VIEWS[name])
    ld = seen.leading_dimension()
    assert (ld is not None) == (name in ROW_MAJOR)
    if ld is not None:
        assert ld >= max(x.shape[1], 1)
        assert np.array_equal(read_by(seen, ld, x), x)
        assert seen.address + seen.reach(ld) * seen.itemsize <= seen.end or x.size == 0


def test_a_view_of_a_wider_array_may_read_its_padding_up_to_the_end_of_its_memory():
    padded = np.zeros((6, 8), np.float32)
    assert view("x", padded[:, :5]).reach(8) == 48
    assert view("x", padded[:, 3:]).reach(8) == 45  # the last row ends where memory does
    assert view("x", padded[:4, :5]).reach(8) == 32
    own = padded[:, :5].copy()
    assert view("x", own).reach(5) == 30
    assert view("x", np.lib.stride_tricks.as_strided(padded, (6, 8), (32, 4))).reach(8) == 48


PARTS_OF_BOTH = {  # what NumPy and PyTorch say in the same words
    "whole": lambda x: x,
    "rows": lambda x: x[2:5],
    "left columns": lambda x: x[:, :3],
    "inner columns": lambda x: x[1:3, 2:6],
    "transposed": lambda x: x.T,
    "every other row": lambda x: x[::2],
    "one row": lambda x: x[3:4],
    "part of one row": lambda x: x[3:4, 1:4],
    "one column": lambda x: x[:, 3:4],
    "one element": lambda x: x[5:, 7:],
    "no rows": lambda x: x[:0],
    "no columns": lambda x: x[:, :0],
    "a row": lambda x: x[2],
    "part of a row": lambda x: x[2, 3:],
    "a column": lambda x: x[:, 2],
    "a scalar": lambda x: x[2, 2, ...],
}


@pytest.mark.parametrize("name", PARTS_OF_BOTH)
def test_a_plan_reads_of_a_tensor_what_it_reads_of_an_array(name, torch):
    part, x = PARTS_OF_BOTH[name], dense(6, 8)
    array, tensor = view("x", part(x)), view("x", part(torch.from_numpy(x)))
    assert tensor.fingerprint[1:] == array.fingerprint[1:] or not array.size  # but for the library
    if len(array.shape) == 2:
        assert readable(tensor) == readable(array)


def test_a_tensor_that_is_part_of_another_may_read_its_padding_too(torch):
    padded = torch.zeros(6, 8)
    assert view("x", padded[:, :5]).reach(8) == 48
    assert view("x", padded[:, 3:]).reach(8) == 45


def test_a_vector_is_a_matrix_of_one_column():
    for x in (X[2], X[:, 2], X[2, ::2]):
        seen = view("x", x).as_columns()
        assert seen.shape == (len(x), 1)
        assert np.array_equal(read_by(seen, seen.leading_dimension(), x[:, None]), x[:, None])
    assert view("x", X[2, ::-1]).as_columns().leading_dimension() is None


def test_views_overlap_where_their_arrays_share_memory():
    for x in VIEWS.values():
        for y in VIEWS.values():
            assert view("x", x).overlaps(view("y", y)) == np.shares_memory(x, y)


PARTS = st.tuples(st.slices(6), st.slices(8))


@given(one=PARTS, other=PARTS, turned=st.booleans())
def test_any_slices_overlap_where_they_share_memory(one, other, turned):
    x, y = X[one].T if turned else X[one], X[other]
    assert view("x", x).overlaps(view("y", y)) == np.shares_memory(x, y)
    seen = view("x", x)
    assert (seen.contiguous, seen.aligned) == (x.flags.c_contiguous, True)
    ld = seen.leading_dimension()
    assert ld is None or np.array_equal(read_by(seen, ld, x), x)


def readable(seen):
    """All that a plan needs to know of a view."""
    ld = seen.leading_dimension()
    return seen.shape, seen.aligned, ld, ld and seen.reach(ld), seen.alignment(), seen.writeable, seen.dtype


@given(one=PARTS, other=PARTS)
def test_arrays_that_agree_in_their_fingerprints_can_stand_for_each_other(one, other):
    x, y = view("x", X[one]), view("y", X[other])
    if x.fingerprint == y.fingerprint:
        assert readable(x) == readable(y)
    assert view("x", X[one]).fingerprint == x.fingerprint


def test_arrays_that_a_plan_would_tell_apart_differ_in_their_fingerprints():
    views = [view("x", x) for x in VIEWS.values() if x.ndim == 2]
    for x in views:
        for y in views:
            assert x.fingerprint != y.fingerprint or readable(x) == readable(y)
    assert len({x.fingerprint for x in views}) > len(views) / 2


def test_tensors_and_arrays_of_the_same_memory_overlap(torch):
    x = dense(6, 8)
    tensor = torch.from_numpy(x)
    assert view("x", x).overlaps(view("t", tensor[2:3]))
    assert not view("x", x[:, :3]).overlaps(view("t", tensor[:, 3:]))
    assert not view("x", x).overlaps(view("t", tensor.clone()))
