"""Variants as text, and back."""

import pytest
from lattice import lattice, pairwise_cover

from sparsekern import LADDERS, VariantError
from sparsekern.naming import format_variant, parse_variant
from sparsekern.variants import KINDS, SddmmVariant, SpmmVariant

OPS = list(KINDS)


@pytest.mark.parametrize("op", OPS)
def test_every_variant_of_the_ladder_and_of_the_lattices_survives_being_written(op):
    variants = [v for _, v in LADDERS[op]] + lattice(op) + pairwise_cover(op)
    assert [parse_variant(op, format_variant(v)) for v in variants] == variants


@pytest.mark.parametrize("op", OPS)
def test_no_two_variants_share_a_name(op):
    variants = set(lattice(op)) | set(pairwise_cover(op))
    assert len({format_variant(v) for v in variants}) == len(variants)


def test_the_name_says_what_differs_from_the_defaults_in_the_order_of_the_fields():
    variant = SpmmVariant(rows_per_block=8, vector=4, stage=True)
    assert format_variant(variant) == "vector=4,rows_per_block=8,stage=True"
    assert format_variant(SddmmVariant()) == "plain"


@pytest.mark.parametrize(
    "text", ["stage=true, vector=4", " vector = 4,stage=TRUE", "subwarp=32,vector=4,stage=True"]
)
def test_order_spaces_case_and_spelt_out_defaults_do_not_matter(text):
    assert parse_variant("spmm", text) == SpmmVariant(vector=4, stage=True)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "it must be plain, or toggle=value"),
        ("roma", "it must be plain, or toggle=value"),
        ("vector=4,vector=2", "each toggle once"),
        ("vector=3", "vector is '3'; it must be one of 1, 2, 4"),
        ("vectors=4", "but vector is"),
        ("work=strips", "'work' is no toggle of SpmmVariant"),
        ("roma=True", "needs sparse_vector"),
    ],
)
def test_text_that_names_no_variant_is_refused(text, message):
    with pytest.raises(VariantError, match=message):
        parse_variant("spmm", text)
