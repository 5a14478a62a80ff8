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


def appears(off, on):
    return off == 0 < on


def twice(off, on):
    return off == 0 and on == 2


def once_more(off, on):
    return on == off + 1


def in_ptx(base, pattern, holds, **toggles):
    return base, replace(base, **toggles), pattern, holds


MASKED = replace(VECTORS, roma=True, unroll_residue=True)
LOAD = r"ld\.global\.\w32"

# toggle -> (variants without and with it, what is counted in their PTX, what must hold of the two counts)
IN_PTX = {
    "vector 2": in_ptx(PLAIN, r"ld\.global\.v2\.f32", appears, vector=2),
    "vector 4": in_ptx(PLAIN, r"ld\.global\.v4\.f32", appears, vector=4),
    "vector of C": in_ptx(PLAIN, r"st\.global\.v4\.f32", appears, vector=4),
    "items": in_ptx(PLAIN, r"st\.global\.f32", lambda off, on: on == 4 * off, items=4),
    "stage": in_ptx(PLAIN, r"st\.shared", appears, stage=True),
    "stage and barriers": in_ptx(PLAIN, r"bar\.warp\.sync", twice, stage=True),
    "sparse_vector 2": in_ptx(STAGED, r"ld\.shared\.v2", appears, sparse_vector=2),
    "sparse_vector 4": in_ptx(STAGED, r"ld\.shared\.v4", appears, sparse_vector=4),
    "roma": in_ptx(VECTORS, r"ld\.global\.v4\.u32", appears, roma=True),
    "roma of values": in_ptx(replace(VECTORS, vector=1), r"ld\.global\.v4\.f32", appears, roma=True),
    "prescale": in_ptx(STAGED, r"mul\.lo\.s64", lambda off, on: on < off / 2, prescale=True),
    "unroll_residue": in_ptx(VECTORS, r"ld\.shared\.f32", lambda off, on: on == 0 < off, unroll_residue=True),
    "bundle": in_ptx(PLAIN, LOAD, once_more, bundle=True),
    "bin": in_ptx(PLAIN, LOAD, once_more, bin=True),
    "uniform_trip": in_ptx(VECTORS, r"shfl\.sync", twice, uniform_trip=True),
    "uniform_trip and its mask": in_ptx(VECTORS, r"bar\.warp\.sync\s+-1", twice, uniform_trip=True),
    "uniform_branch": in_ptx(VECTORS, r"shfl\.sync", appears, uniform_branch=True),
    "split": in_ptx(PLAIN, r"bar\.sync", once_more, split=2),
    "faithful": in_ptx(MASKED, r"st\.shared\.u32", lambda off, on: on > off, faithful=True),
}

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
    """No 32-bit product of two registers is left in a kernel that does not prescale."""
    assert not re.findall(r"mul\.lo\.s32\s+%r\d+, %r\d+, %r\d+;", ptx(make_spmm, PLAIN))
    prescaled = ptx(make_spmm, replace(STAGED, prescale=True))
    assert re.findall(r"mul\.lo\.s32\s+%r\d+, %r\d+, %r\d+;", prescaled)


def test_a_toggle_that_is_in_the_kernel_has_its_line_marked_there():
    import inspect

    marked = set(re.findall(r"\w+", " ".join(re.findall(r"# New:(.*)", inspect.getsource(make_spmm)))))
    assert {field.name for field in fields(SpmmVariant)} - marked == {
        "tile_k"
    }  # a size, on no line of its own


def test_another_architecture_can_be_asked_for():
    assert ".target sm_80" in ptx(make_spmm, PLAIN, arch=(8, 0))


@pytest.mark.parametrize("arch", [90, "sm_90", (9,)])
def test_an_architecture_that_is_none_is_refused(arch):
    with pytest.raises(TypeError, match="compute capability such as"):
        ptx(make_spmm, PLAIN, arch=arch)


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
