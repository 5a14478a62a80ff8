"""Where each toggle can be seen: in the PTX, in shared memory, or, if it acts on the host, in the launch."""

import re
from dataclasses import replace
from functools import cache

from lattice import depth, problem, sampled

from sparsekern import SddmmVariant, SpmmVariant, make_sddmm, make_spmm, plan_sddmm, plan_spmm
from sparsekern.study.codegen import ptx

MAKE = {"spmm": make_spmm, "sddmm": make_sddmm}
LOCAL = r"ld\.local|st\.local"
LIST = r"ld\.global\.v2\.u64"  # an entry of a list of work
PRODUCT = r"(?:mul|mad)\.lo\.s32\s+%r\d+, %r\d+, %r\d+[;,]"  # 32 bits wide, of two registers


@cache
def text(variant):
    return ptx(MAKE[variant.op], variant)


def count(pattern, variant):
    """Occurrences of a pattern in the PTX of a variant."""
    return len(re.findall(pattern, text(variant)))


def shared_bytes(variant):
    return sum(int(size) for size in re.findall(r"\.shared .*\[(\d+)\];", text(variant)))


def plan(variant):
    """The plan of a variant for the problem of its lattice."""
    if variant.op == "spmm":
        return plan_spmm(*problem(), variant, backend="emulator")
    return plan_sddmm(*sampled(variant.tile_nnz, depth(variant)), variant, backend="emulator")


def order(variant):
    return plan(variant).structure[0].tolist()


def block(variant):
    return variant.block


def grid(variant):
    return plan(variant).grid


def appears(off, on):
    return off == 0 < on


def disappears(off, on):
    return on == 0 < off


def twice(off, on):
    return off == 0 and on == 2


def once_more(off, on):
    return on == off + 1


def four_times(off, on):
    return on == 4 * off


def in_ptx(base, pattern, holds, **toggles):
    return base, replace(base, **toggles), pattern, holds


PLAIN = SpmmVariant(rows_per_block=4)
STAGED = replace(PLAIN, stage=True)
VECTORS = replace(STAGED, vector=4, sparse_vector=4, subwarp=8)
MASKED = replace(VECTORS, roma=True, unroll_residue=True)
SAMPLED = SddmmVariant(rows_per_block=4)
TILED = replace(SAMPLED, tile_nnz=32)
SPLIT = replace(SAMPLED, split=4)
LISTED = replace(TILED, work="strips")
IN_ORDER = replace(SAMPLED, rows_per_block=2)  # several whole blocks of rows, to put in order

TURNED = replace(VECTORS, vector=4, prescale=True, uniform_trip=True)
FLYING = replace(TURNED, in_flight=8)
FOUR_OF_B = r"ld\.global\.v4\.f32"

# toggle -> (variants without and with it, what is counted in their PTX, what must hold of the two counts)
IN_PTX = {
    "spmm": {
        "vector 2": in_ptx(PLAIN, r"ld\.global\.v2\.f32", appears, vector=2),
        "vector 4": in_ptx(PLAIN, r"ld\.global\.v4\.f32", appears, vector=4),
        "vector of C": in_ptx(PLAIN, r"st\.global\.v4\.f32", appears, vector=4),
        "items": in_ptx(PLAIN, r"st\.global\.f32", four_times, items=4),
        "stage": in_ptx(PLAIN, r"st\.shared", appears, stage=True),
        "stage and barriers": in_ptx(PLAIN, r"bar\.warp\.sync", twice, stage=True),
        "sparse_vector 2": in_ptx(STAGED, r"ld\.shared\.v2", appears, sparse_vector=2),
        "sparse_vector 4": in_ptx(STAGED, r"ld\.shared\.v4", appears, sparse_vector=4),
        "roma": in_ptx(VECTORS, r"ld\.global\.v4\.u32", appears, roma=True),
        "roma of values": in_ptx(replace(VECTORS, vector=1), r"ld\.global\.v4\.f32", appears, roma=True),
        "prescale": in_ptx(STAGED, r"mul\.lo\.s64", lambda off, on: on < off / 2, prescale=True),
        "unroll_residue": in_ptx(VECTORS, r"ld\.shared\.f32", disappears, unroll_residue=True),
        "bundle": in_ptx(PLAIN, LIST, appears, bundle=True),
        "bin": in_ptx(PLAIN, LIST, appears, bin=True),
        "uniform_trip": in_ptx(VECTORS, r"shfl\.sync", twice, uniform_trip=True),
        "uniform_trip and its mask": in_ptx(VECTORS, r"bar\.warp\.sync\s+-1", twice, uniform_trip=True),
        "uniform_branch": in_ptx(VECTORS, r"shfl\.sync", appears, uniform_branch=True),
        "split": in_ptx(PLAIN, r"bar\.sync", once_more, split=2),
        "in_flight": in_ptx(TURNED, FOUR_OF_B, lambda off, on: off != on == 8, in_flight=8),
        "in_flight 16": in_ptx(FLYING, FOUR_OF_B, lambda off, on: (off, on) == (8, 16), in_flight=16),
        "prefetch": in_ptx(FLYING, r"ld\.global\.f32", lambda off, on: on == 2 * off, prefetch=True),
        "faithful": in_ptx(MASKED, r"st\.shared\.u32", lambda off, on: on > off, faithful=True),
    },
    "sddmm": {
        "vector 2": in_ptx(SAMPLED, r"ld\.global\.v2\.f32", appears, vector=2),
        "vector 4": in_ptx(SAMPLED, r"ld\.global\.v4\.f32", appears, vector=4),
        "subwarp": in_ptx(SAMPLED, r"shfl\.sync", lambda off, on: (off, on) == (5, 3), subwarp=8),
        "tile_nnz": in_ptx(SAMPLED, r"ld\.shared\.v4\.u32", appears, tile_nnz=32),
        "tile_nnz and lhs": in_ptx(SAMPLED, r"ld\.global\.f32", lambda off, on: on < 32 * off, tile_nnz=32),
        "bundle": in_ptx(SAMPLED, LIST, appears, bundle=True),
        "bin": in_ptx(SAMPLED, LIST, appears, bin=True),
        "work of a list": in_ptx(SAMPLED, r"ctaid\.y", disappears, work="strips"),
        "reduction": in_ptx(
            TILED, r"shfl\.sync", lambda off, on: (off, on) == (160, 31), reduction="halving"
        ),
        "split": in_ptx(SAMPLED, r"bar\.sync", once_more, split=2),
        "prescale": in_ptx(TILED, r"mul\.lo\.s64", lambda off, on: on < off / 2, prescale=True),
        "split and its sums": in_ptx(SAMPLED, r"st\.shared\.f32", appears, split=2),
    },
}

SHARED = {
    "spmm": {
        "tile_k": (STAGED, replace(STAGED, tile_k=64)),
        "stage_pad": (STAGED, replace(STAGED, stage_pad=4)),
        "rows_per_block": (STAGED, replace(STAGED, rows_per_block=8)),
        "split": (PLAIN, replace(PLAIN, split=4)),
        "prefetch": (FLYING, replace(FLYING, prefetch=True)),
    },
    "sddmm": {
        "tile_nnz": (SAMPLED, TILED),
        "rows_per_block": (TILED, replace(TILED, rows_per_block=8)),
        "split": (SAMPLED, SPLIT),
        "subwarp": (replace(SPLIT, tile_nnz=8), replace(SPLIT, tile_nnz=8, subwarp=8)),
    },
}

# toggles that act on the host -> what of the launch shows them
IN_LAUNCH = {
    "spmm": {
        "subwarp": (PLAIN, replace(PLAIN, subwarp=8), block),
        "rows_per_block": (PLAIN, replace(PLAIN, rows_per_block=8), block),
        "n_first": (PLAIN, replace(PLAIN, n_first=True), grid),
        "n_first and in_flight": (FLYING, replace(FLYING, n_first=True), grid),
        "bundle alone": (replace(PLAIN, bin=True), replace(PLAIN, bundle=True), order),
        "bundle and bin": (replace(PLAIN, bundle=True), replace(PLAIN, bundle=True, bin=True), order),
    },
    "sddmm": {
        "subwarp": (SAMPLED, replace(SAMPLED, subwarp=8), block),
        "rows_per_block": (SAMPLED, replace(SAMPLED, rows_per_block=8), block),
        "bundle": (replace(IN_ORDER, bin=True), replace(IN_ORDER, bundle=True), order),
        "bundle and bin": (replace(IN_ORDER, bundle=True), replace(IN_ORDER, bundle=True, bin=True), order),
        "bundle of strips": (
            replace(TILED, work="strips"),
            replace(TILED, work="strips", bundle=True),
            order,
        ),
        "by_column": (LISTED, replace(LISTED, by_column=True), order),
        "work bounded": (SAMPLED, replace(SAMPLED, work="bounded"), grid),
        "work of a list": (replace(SAMPLED, work="bounded"), replace(SAMPLED, work="strips"), grid),
    },
}
