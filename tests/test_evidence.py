"""Each toggle can be seen: in the PTX, or, if it acts on the host, in the launch."""

import inspect
import re
from dataclasses import fields, replace
from math import prod

import numpy as np
import pytest
from evidence import (
    IN_LAUNCH,
    IN_PTX,
    LOCAL,
    MAKE,
    PLAIN,
    PRODUCT,
    SAMPLED,
    SHARED,
    STAGED,
    count,
    grid,
    plan,
    shared_bytes,
    text,
)  # fmt: skip
from lattice import pairwise_cover, problem
from planted import planted

from sparsekern import LADDERS, Types, VariantError, make_spmm, without
from sparsekern.kernels import sddmm as sddmm_page
from sparsekern.kernels import spmm, spmm_in_flight
from sparsekern.study.codegen import ptx
from sparsekern.variants import KINDS


def entries(table):
    return [(op, toggle) for op in table for toggle in table[op]]


@pytest.mark.parametrize("op, toggle", entries(IN_PTX))
def test_a_toggle_is_visible_in_the_ptx(op, toggle):
    off, on, pattern, holds = IN_PTX[op][toggle]
    assert holds(count(pattern, off), count(pattern, on))


@pytest.mark.parametrize("op, toggle", entries(SHARED))
def test_a_toggle_is_visible_in_shared_memory_and_its_size_is_as_told(op, toggle):
    off, on = SHARED[op][toggle]
    assert (shared_bytes(off), shared_bytes(on)) == (off.shared_bytes, on.shared_bytes)
    assert off.shared_bytes != on.shared_bytes


@pytest.mark.parametrize("op, toggle", entries(IN_LAUNCH))
def test_a_toggle_of_the_host_is_visible_in_the_launch(op, toggle):
    off, on, seen = IN_LAUNCH[op][toggle]
    assert seen(off) != seen(on)


@pytest.mark.parametrize("op", KINDS)
def test_every_toggle_has_its_evidence(op):
    shown = {name.split()[0] for table in (IN_PTX, SHARED, IN_LAUNCH) for name in table[op]}
    assert {field.name for field in fields(KINDS[op])} == shown


@pytest.mark.parametrize("step, variant", LADDERS["spmm"] + LADDERS["sddmm"])
def test_no_step_of_the_ladder_keeps_an_array_in_local_memory(step, variant):
    assert count(LOCAL, variant) == 0


@pytest.mark.parametrize("chunk", range(8))
@pytest.mark.parametrize("op", KINDS)
def test_no_pair_of_toggles_keeps_an_array_in_local_memory(op, chunk):
    assert [str(v) for v in pairwise_cover(op)[chunk::8] if count(LOCAL, v)] == []


@pytest.mark.parametrize("op", KINDS)
def test_the_kernel_is_compiled_without_fastmath(op):
    best = text(LADDERS[op][-1][1])
    assert "fma.rn.f32" in best and ".ftz" not in best


def test_positions_in_b_are_64_bits_wide():
    """No 32-bit product of two registers is left in a kernel that does not prescale."""
    assert count(PRODUCT, PLAIN) == 0 < count(PRODUCT, replace(STAGED, prescale=True))


@pytest.mark.parametrize("variant", [SAMPLED, replace(LADDERS["sddmm"][-1][1], prescale=False)], ids=str)
def test_positions_in_rhs_are_64_bits_wide(variant):
    narrow = planted(sddmm_page, "rows[j] * ld_rhs", "int32(rows[j] * ld_rhs)")
    assert count(PRODUCT, variant) == 0 < len(re.findall(PRODUCT, ptx(narrow, variant)))


@pytest.mark.parametrize("subwarp, tile_nnz", [(2, 8), (8, 64), (32, 32)])
def test_halving_exchanges_as_few_sums_as_can_be_and_the_butterfly_each_at_every_step(subwarp, tile_nnz):
    halving = replace(SAMPLED, subwarp=subwarp, tile_nnz=tile_nnz, rows_per_block=16, reduction="halving")
    assert count(r"shfl\.sync", halving) == tile_nnz // subwarp * (subwarp - 1)
    steps = subwarp.bit_length() - 1
    assert count(r"shfl\.sync", replace(halving, reduction="butterfly")) == tile_nnz * steps


@pytest.mark.parametrize("variant", [v for _, v in LADDERS["sddmm"] if v.work == "strips"], ids=str)
def test_a_list_of_strips_launches_none_that_is_empty(variant):
    work, offsets, _ = plan(variant).structure
    rows, lengths = work[1::2] & 0xFFFFFFFF, work[1::2] >> 32
    assert lengths.min() >= 1 and lengths.sum() == offsets[-1] - offsets[0]
    assert grid(variant) == (-(-len(rows) // variant.rows_per_block), 1, 1)


@pytest.mark.parametrize("tile_nnz", SAMPLED.__dataclass_fields__["tile_nnz"].metadata["choices"])
def test_a_bounded_grid_has_fewer_blocks_and_a_list_fewer_still(tile_nnz):
    blocks = [prod(grid(replace(SAMPLED, tile_nnz=tile_nnz, work=w))) for w in ("grid", "bounded", "strips")]
    assert blocks == sorted(set(blocks), reverse=True)


@pytest.mark.parametrize("op, unmarked", [("spmm", {"tile_k"}), ("sddmm", set())])
def test_a_toggle_that_is_in_the_kernel_has_its_line_marked_there(op, unmarked):
    pages = [sddmm_page] if op == "sddmm" else [spmm, spmm_in_flight]
    marks = re.findall(r"# New:(.*)", "".join(map(inspect.getsource, pages)))
    marked = set(re.findall(r"\w+", " ".join(marks)))
    # a size is on no line of its own
    assert {field.name for field in fields(KINDS[op])} - marked == unmarked


def test_another_architecture_can_be_asked_for():
    assert ".target sm_80" in ptx(make_spmm, PLAIN, arch=(8, 0))


@pytest.mark.parametrize("arch", [90, "sm_90", (9,)])
def test_an_architecture_that_is_none_is_refused(arch):
    with pytest.raises(TypeError, match="compute capability such as"):
        ptx(make_spmm, PLAIN, arch=arch)


@pytest.mark.parametrize("variant", [PLAIN, SAMPLED], ids=str)
def test_int64_offsets_are_loaded_as_such(variant):
    assert re.search(r"ld\.global\.u64", ptx(MAKE[variant.op], variant, types=Types(offset="int64")))
    assert "ld.global.u64" not in text(variant)


@pytest.mark.parametrize("bundle, bin", [(False, False), (True, False), (False, True), (True, True)])
def test_row_order_is_a_permutation_that_does_what_its_halves_say(bundle, bin):
    a, _ = problem()
    lengths = a.topology.row_lengths
    order = a.topology.row_order(bundle, bin, 3)
    assert sorted(order) == list(range(len(lengths)))
    blocks = [lengths[order[i : i + 3]] for i in range(0, len(order), 3)]
    if bin:
        work = [block.max() for block in blocks if len(block) == 3]
        assert work == sorted(work, reverse=True)
    if bundle:
        alone = sorted(lengths, reverse=True)
        chunks = [sorted(alone[i : i + 3]) for i in range(0, len(alone), 3)]
        assert sorted(map(sorted, map(np.ndarray.tolist, blocks))) == sorted(chunks)


@pytest.mark.parametrize(
    "op, toggle, moves",
    [
        ("spmm", "stage", {"in_flight", "prefetch", "prescale", "sparse_vector"}),
        ("sddmm", "tile_nnz", {"reduction"}),
    ],
)
def test_without_names_what_had_to_move(op, toggle, moves):
    best = LADDERS[op][-1][1]
    for field in fields(best):
        nearest, moved = without(best, field.name)
        assert getattr(nearest, field.name) == field.default
        changed = {f.name for f in fields(best) if getattr(best, f.name) != getattr(nearest, f.name)}
        assert changed - {field.name} == set(moved)
    assert moves <= set(without(best, toggle)[1])
    with pytest.raises(VariantError, match="'speed' is no toggle"):
        without(best, "speed")


@pytest.mark.parametrize("op", KINDS)
def test_any_toggle_of_any_variant_can_be_done_without(op):
    for variant in pairwise_cover(op):
        assert [getattr(without(variant, f.name)[0], f.name) for f in fields(variant)] == [
            f.default for f in fields(variant)
        ]
