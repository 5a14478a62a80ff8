"""What holds of any matrix: laws of the two products, and that every variant obeys them."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from lattice import ALL_VALUES, drawn
from operands import check
from protocols import check_products

from sparsekern import Csr, Topology, sddmm, spmm

REALS = st.floats(-100, 100, width=32)
WHOLE = st.integers(-9, 9).map(np.float32)  # sums of products of few are exact, in whichever order
SIZES = st.integers(1, 7)


@st.composite
def structures(draw):
    """A `Topology` of few rows: some are empty, and columns repeat, in any order."""
    n = draw(SIZES)
    rows = draw(st.lists(st.lists(st.integers(0, n - 1), max_size=11), max_size=6))
    offsets = np.cumsum([0, *map(len, rows)]).astype(draw(st.sampled_from([np.int32, np.int64])))
    return Topology(offsets, np.array([j for row in rows for j in row], np.int32), (len(rows), n))


def dense(draw, rows, columns, elements):
    """A float32 array of that shape; its rows are padded to vectors of 4 with NaN."""
    padded = np.full((rows, -(-columns // 4) * 4), np.nan, np.float32)
    padded[:, :columns] = draw(arrays(np.float32, (rows, columns), elements=elements))
    return padded[:, :columns]


@st.composite
def products(draw, elements=WHOLE):
    """(a, b) for SpMM."""
    t = draw(structures())
    values = draw(arrays(np.float32, t.stored, elements=elements))
    return Csr(t, values), dense(draw, t.shape[1], draw(SIZES), elements)


@st.composite
def samples(draw, elements=WHOLE, deepest=9):
    """(topology, lhs, rhs) for SDDMM."""
    t, k = draw(structures()), draw(st.integers(0, deepest))
    return t, *(dense(draw, rows, k, elements) for rows in t.shape)


def multiply(a, b):
    return spmm(a, b, backend="emulator")


def sample(topology, lhs, rhs):
    return sddmm(topology, lhs, rhs, backend="emulator").values


def rows_of(topology):
    """The positions of each row."""
    return np.split(np.arange(topology.stored), topology.offsets[1:-1])


@settings(max_examples=60)
@given(products(), st.randoms())
def test_permuting_the_rows_of_a_permutes_those_of_c(operands, random):
    a, b = operands
    order = random.sample(range(a.shape[0]), a.shape[0])
    positions = np.concatenate([np.arange(0)] + [rows_of(a.topology)[i] for i in order])
    offsets = np.cumsum([0, *a.topology.row_lengths[order]], dtype=np.int32)
    permuted = Csr(Topology(offsets, a.topology.columns[positions], a.shape), a.values[positions])
    assert np.array_equal(multiply(permuted, b), multiply(a, b)[order])


@settings(max_examples=50)
@given(products(), st.data())
def test_spmm_is_linear_in_b_and_in_the_values_of_a(operands, data):
    a, b = operands
    c, factor = multiply(a, b), data.draw(WHOLE)
    other_b = dense(data.draw, *b.shape, WHOLE)
    assert np.array_equal(multiply(a, b + factor * other_b), c + factor * multiply(a, other_b))
    other_a = a.with_values(data.draw(arrays(np.float32, a.topology.stored, elements=WHOLE)))
    sum_a = a.with_values(a.values + factor * other_a.values)
    assert np.array_equal(multiply(sum_a, b), c + factor * multiply(other_a, b))


@given(samples())
def test_sampling_at_the_transposed_structure_with_operands_swapped_gives_the_same_values(operands):
    t, lhs, rhs = operands
    numbered = sp.csr_array((np.arange(t.stored), t.columns, t.offsets), shape=t.shape).T.tocsr()
    transposed = Topology(numbered.indptr, numbered.indices.astype(np.int32), numbered.shape)
    assert np.array_equal(sample(transposed, rhs, lhs), sample(t, lhs, rhs)[numbered.data])


@settings(max_examples=60)
@given(products(REALS), st.sampled_from(drawn("spmm")))
def test_any_variant_of_spmm_agrees_with_float64(operands, variant):
    a, b = operands
    padded = np.full((a.shape[0], -(-b.shape[1] // 4) * 4), np.nan, np.float32)
    check(a, b, spmm(a, b, variant, out=padded[:, : b.shape[1]], backend="emulator"))


@settings(max_examples=60)
@given(samples(REALS, deepest=40), st.sampled_from(drawn("sddmm")))
def test_any_variant_of_sddmm_agrees_with_float64(operands, variant):
    t, lhs, rhs = operands
    out = np.full(t.stored, np.nan, np.float32)
    check_products(t, lhs, rhs, sddmm(t, lhs, rhs, variant, out=out, backend="emulator"))


@pytest.mark.parametrize("op", ["spmm", "sddmm"])
def test_what_is_drawn_holds_every_value_of_every_toggle(op):
    for name, choices in ALL_VALUES[op].items():
        assert {getattr(variant, name) for variant in drawn(op)} == set(choices)
