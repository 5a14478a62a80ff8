"""Each toggle can be seen: in the PTX, or, if it acts on the host, in the launch."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest
from lattice import pairwise_cover, problem

from sparsekern import LADDERS, SpmmVariant, VariantError, make_spmm, plan_spmm
from sparsekern.study.codegen import ptx

PLAIN = SpmmVariant(rows_per_block=4)
STAGED = replace(PLAIN, stage=True)
VECTORS = replace(STAGED, vector=4, sparse_vector=4, subwarp=8)


def count(pattern, variant):
    """Occurrences of a pattern in the PTX of a variant."""
    return len(re.findall(pattern, ptx(make_spmm, variant)))


def shared_bytes(variant):
    return sum(int(size) for size in re.findall(r"\.shared .*\[(\d+)\];", ptx(make_spmm, variant)))


def order(variant):
    a, b = problem()
    return plan_spmm(a, b, variant, backend="emulator").structure[0].tolist()


# toggle -> (variants without and with it, what is counted, what must hold of the two counts)
LOADS_OF_B = r"ld\.global\.v4\.f32|ld\.global\.f32"
IN_PTX = {
    "vector 2": (PLAIN, replace(PLAIN, vector=2), r"ld\.global\.v2\.f32", lambda off, on: off == 0 < on),
    "vector 4": (PLAIN, replace(PLAIN, vector=4), r"ld\.global\.v4\.f32", lambda off, on: off == 0 < on),
    "vector 4 store": (PLAIN, replace(PLAIN, vector=4), r"st\.global\.v4\.f32", lambda off, on: off == 0 < on),
    "items": (PLAIN, replace(PLAIN, items=4), r"st\.global\.f32", lambda off, on: on == 4 * off),
    "stage": (PLAIN, STAGED, r"st\.shared", lambda off, on: off == 0 < on),
    "stage syncs": (PLAIN, STAGED, r"bar\.warp\.sync", lambda off, on: off == 0 and on == 2),
    "sparse_vector": (STAGED, replace(STAGED, sparse_vector=4), r"ld\.global\.v4\.u32", lambda off, on: off == 0 < on),
    "sparse_vector reads": (STAGED, replace(STAGED, sparse_vector=2), r"ld\.shared\.v2", lambda off, on: off == 0 < on),
    "roma": (VECTORS, replace(VECTORS, roma=True), r"and\.b64\s+\S+ \S+ 3;", lambda off, on: on != off),
    "prescale": (STAGED, replace(STAGED, prescale=True), r"mul\.lo\.s64", lambda off, on: on < off / 2),
    "unroll_residue": (VECTORS, replace(VECTORS, unroll_residue=True), r"ld\.shared\.f32", lambda off, on: on == 0 < off),
    "bundle": (PLAIN, replace(PLAIN, bundle=True), r"ld\.global\.\w32", lambda off, on: on == off + 1),
    "bin": (PLAIN, replace(PLAIN, bin=True), r"ld\.global\.\w32", lambda off, on: on == off + 1),
    "uniform_trip": (VECTORS, replace(VECTORS, uniform_trip=True), r"shfl\.sync", lambda off, on: off == 0 and on == 2),
    "uniform_trip mask": (VECTORS, replace(VECTORS, uniform_trip=True), r"bar\.warp\.sync\s+-1", lambda off, on: off == 0 and on == 2),
    "uniform_branch": (VECTORS, replace(VECTORS, uniform_branch=True), r"shfl\.sync", lambda off, on: off == 0 < on),
    "split": (PLAIN, replace(PLAIN, split=2), r"bar\.sync", lambda off, on: off == 0 and on == 1),
    "faithful": (
        replace(VECTORS, roma=True, unroll_residue=True),
        replace(VECTORS, roma=True, unroll_residue=True, faithful=True),
        r"st\.shared\.u32",
        lambda off, on: on > off,
    ),
}  # fmt: skip

SHARED = {
    "tile_k": (STAGED, replace(STAGED, tile_k=64)),
    "stage_pad": (STAGED, replace(STAGED, stage_pad=4)),
    "rows_per_block": (STAGED, replace(STAGED, rows_per_block=8)),
    "split": (PLAIN, replace(PLAIN, split=4)),
}

# toggles that act on the host -> what of the launch shows them
IN_LAUNCH = {
    "subwarp": (PLAIN, replace(PLAIN, subwarp=8), lambda v: v.block),
    "rows_per_block": (PLAIN, replace(PLAIN, rows_per_block=8), lambda v: v.block),
    "bundle alone": (replace(PLAIN, bin=True), replace(PLAIN, bundle=True), order),
    "bundle and bin": (replace(PLAIN, bundle=True), replace(PLAIN, bundle=True, bin=True), order),
}


@pytest.mark.parametrize("toggle", IN_PTX)
def test_a_toggle_is_visible_in_the_ptx(toggle):
    off, on, pattern, holds = IN_PTX[toggle]
    assert holds(count(pattern, off), count(pattern, on))


@pytest.mark.parametrize("toggle", SHARED)
def test_a_toggle_is_visible_in_shared_memory_and_its_size_is_as_told(toggle):
    off, on = SHARED[toggle]
    assert (shared_bytes(off), shared_bytes(on)) == (off.shared_bytes, on.shared_bytes)
    assert off.shared_bytes != on.shared_bytes


@pytest.mark.parametrize("toggle", IN_LAUNCH)
def test_a_toggle_of_the_host_is_visible_in_the_launch(toggle):
    off, on, seen = IN_LAUNCH[toggle]
    assert seen(off) != seen(on)


def test_every_toggle_has_its_evidence():
    shown = {name.split()[0] for table in (IN_PTX, SHARED, IN_LAUNCH) for name in table}
    assert {field.name for field in fields(SpmmVariant)} == shown


@pytest.mark.parametrize("step, variant", LADDERS["spmm"])
def test_no_step_of_the_ladder_keeps_an_array_in_local_memory(step, variant):
    assert count(r"ld\.local|st\.local", variant) == 0


@pytest.mark.parametrize("chunk", range(8))
def test_no_pair_of_toggles_keeps_an_array_in_local_memory(chunk):
    assert [str(v) for v in pairwise_cover()[chunk::8] if count(r"ld\.local|st\.local", v)] == []


def test_the_kernel_is_compiled_without_fastmath():
    text = ptx(make_spmm, LADDERS["spmm"][-1][1])
    assert "fma.rn.f32" in text and ".ftz" not in text


def test_positions_in_b_are_64_bits_wide():
    """(k - 1) * ldb passes 2**31: the multiplication and what follows must not be in 32 bits."""
    text = ptx(make_spmm, PLAIN)
    assert re.search(r"mul\.(lo\.s64|wide\.s32)", text)
    assert not re.search(r"mul\.lo\.s32\s+%r\d+, %r\d+, %r\d+;\s+// ldb", text)


def test_another_architecture_can_be_asked_for():
    assert ".target sm_80" in ptx(make_spmm, PLAIN, arch=(8, 0))


def test_int64_offsets_are_loaded_as_such():
    from sparsekern import Types

    assert "ld.global.u64" in ptx(make_spmm, PLAIN, types=Types(offset="int64"))


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


def test_without_names_what_had_to_move():
    from sparsekern import without

    best = LADDERS["spmm"][-1][1]
    for field in fields(SpmmVariant):
        nearest, moved = without(best, field.name)
        assert getattr(nearest, field.name) == field.default
        changed = {f.name for f in fields(best) if getattr(best, f.name) != getattr(nearest, f.name)}
        assert changed - {field.name} == set(moved)
    nearest, moved = without(best, "stage")
    assert {"roma", "prescale", "sparse_vector"} <= set(moved)
    with pytest.raises(VariantError, match="'speed' is no toggle"):
        without(best, "speed")
