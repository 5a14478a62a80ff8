"""Counters of launches, and what each toggle is claimed to do to them.

That `prescale` takes multiplications out of the inner loop shows in machine code only: tests/test_codegen.py.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
import scipy.sparse as sp

from sparsekern import LADDERS, make_sddmm, make_spmm
from sparsekern.formats import Csr, Topology
from sparsekern.generators import with_row_lengths
from sparsekern.machine.lockstep import launch
from sparsekern.machine.trace import Cost, Kind, Trace
from sparsekern.study import counters
from sparsekern.study.counters import Counters, Range, count, plan, timeline
from sparsekern.study.gpus import GPUS
from sparsekern.study.work import work_of
from sparsekern.toggles import VariantError
from sparsekern.variants import SddmmVariant, SpmmVariant

OPS = ["spmm", "sddmm"]
UNEVEN = with_row_lengths([5, 0, 33, 12, 1, 40, 7, 16], 48)
FOUR_SMS = replace(GPUS["h200"], sms=4)


# What is counted


@pytest.mark.parametrize("step", [0, 5, 8, 16])
def test_spmm_counts_agree_with_the_lanes_of_the_plain_emulator(step):
    compare("spmm", LADDERS["spmm"][step][1])


@pytest.mark.parametrize("step", [0, 3, 6, 11])
def test_sddmm_counts_agree_with_the_lanes_of_the_plain_emulator(step):
    compare("sddmm", LADDERS["sddmm"][step][1])


def compare(op, variant):
    found = count(op, UNEVEN, 40, variant)
    case, inputs = plan(op, UNEVEN, 40, variant)
    _, lanes = case.count(*inputs)
    for space in ("global", "shared"):
        for verb, asked in zip(("load", "store"), lanes.bytes(space), strict=True):
            assert found[f"{space} {verb} bytes"] == (asked, asked)
    out = np.zeros(case.result_size, np.float32)
    arguments = case.arguments(case.structure, *case.flat(*inputs), out)
    trace = launch(case.function, case.grid, case.block, arguments, (case.output,))
    for costs in (trace.low, trace.high):
        for verb, called in (
            ("multiply-add", lanes.fma),
            ("shuffle", lanes.shuffles),
            ("vote", lanes.votes),
            ("barrier", lanes.barriers),
        ):
            assert sum(c.lanes for kind, c in costs.items() if kind.verb == verb) == called


@pytest.mark.parametrize("op", OPS)
def test_low_is_never_above_high_and_ideal_never_above_what_is(op):
    found = count(op, UNEVEN, 24, replace(LADDERS[op][4][1], rows_per_block=8))
    for name, (low, high) in found.counts.items():
        assert 0 <= low <= high, name
    for access in ("global load sectors", "global store sectors", "shared load wavefronts"):
        space, verb, unit = access.split()
        ideal = found[f"{space} {verb} ideal {unit}"]
        assert ideal.low <= found[access].low and ideal.high <= found[access].high
    assert 0 < found["active lanes"].low <= 32


@pytest.mark.parametrize("op", OPS)
def test_arrays_add_up_to_their_space(op):
    found = count(op, UNEVEN, 24, LADDERS[op][-1][1])
    for verb in ("load", "store"):
        mine = [c for (_, does), c in found.by_array.items() if does == verb]
        for name in ("instructions", "requests", "sectors", "wavefronts"):
            spaces = ["global"] if name == "sectors" else ["shared"] if name == "wavefronts" else []
            spaces = spaces or ["global", "shared"]
            for side in (0, 1):
                assert sum(c[name][side] for c in mine) == sum(
                    found[f"{space} {verb} {name}"][side] for space in spaces
                )


def test_a_launch_by_hand():
    """Two rows of 3 and 1 nonzeros, 32 columns, a warp for each row, a column for each lane."""
    a = Csr(Topology(np.int32([0, 3, 4]), np.int32([0, 2, 5, 1]), (2, 6)), np.ones(4, np.float32))
    found = count("spmm", a, 32, SpmmVariant())
    assert found.of("offsets")["instructions"] == (4, 4)  # two of each warp
    assert found.of("values")["sectors"] == found.of("columns")["sectors"] == (4, 4)  # broadcasts
    assert found.of("B") == {
        "instructions": (4, 4), "requests": (4, 4), "sectors": (16, 16), "ideal sectors": (16, 16),
        "wavefronts": (0, 0), "ideal wavefronts": (16, 16), "ideal": (16, 16), "lanes": (128, 128),
    }  # fmt: skip
    assert found.of("C", "store")["sectors"] == (8, 8)
    assert found["global load instructions"] == (4 + 4 + 4 + 4,) * 2
    assert found["global load bytes"] == (32 * 4 * 16,) * 2
    assert found["multiply-adds"] == (4, 4)
    assert found["active lanes"] == (32, 32)
    # of a warp: 2 offsets, 3 of values, columns, B and multiply-adds for each nonzero, and a store
    assert found.work.tolist() == [[2 + 3 * 4 + 1], [2 + 4 + 1]]
    assert found.makespan(FOUR_SMS) == 15
    assert found.makespan(replace(FOUR_SMS, sms=1)) == 22


def moved(array, by):
    """A copy of an array that starts `by` elements past 256 bytes."""
    memory = counters.aligned(np.zeros(array.size + by, array.dtype))[by:]
    memory[:] = array
    return memory


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("chosen", [False, True], ids=["the last step", "what select chooses"])
def test_counts_do_not_depend_on_where_arrays_lie_on_the_host(op, chosen):
    variant = None if chosen else LADDERS[op][-1][1]
    t = UNEVEN.topology
    results = []
    for by in (0, 1, 3, 8):
        topology = Topology(moved(t.offsets, by), moved(t.columns, by), t.shape)
        results.append(count(op, Csr(topology, moved(UNEVEN.values, by)), 40, variant))
    for other in results[1:]:
        assert other.variant == results[0].variant
        assert other.counts == results[0].counts and other.by_array == results[0].by_array


@pytest.mark.parametrize("op", OPS)
def test_counting_twice_counts_the_same(op):
    variant = LADDERS[op][-1][1]
    first, second = (count(op, UNEVEN, 36, variant) for _ in range(2))
    assert first.counts == second.counts and (first.work == second.work).all()
    assert "no count differs" in str(first - second)


@pytest.mark.parametrize("op", OPS)
def test_offsets_of_64_bits_cost_their_bytes_and_nothing_else(op):
    t = UNEVEN.topology
    wide = Csr(Topology(t.offsets.astype(np.int64), t.columns, t.shape), UNEVEN.values)
    variant = replace(LADDERS[op][4][1], rows_per_block=8)
    difference = count(op, wide, 24, variant) - count(op, UNEVEN, 24, variant)
    lanes = count(op, UNEVEN, 24, variant).of("offsets")["lanes"].low
    assert difference["global load bytes"] == (4 * lanes, 4 * lanes)
    changed = {name for name in difference.counts if difference[name] != (0, 0)}
    assert changed <= {"global load bytes", "global load sectors", "global load ideal sectors"}


def test_any_csr_matrix_will_do_and_of_sddmm_a_topology():
    variant = SddmmVariant(tile_nnz=8, subwarp=8, rows_per_block=4)
    expected = count("sddmm", UNEVEN, 8, variant).counts
    assert count("sddmm", UNEVEN.topology, 8, variant).counts == expected
    assert count("sddmm", sp.csr_matrix(UNEVEN.to_scipy()), 8, variant).counts == expected


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (6, 5)])
def test_a_matrix_with_nothing_in_it_can_be_counted_and_printed(op, shape):
    found = count(op, sp.csr_matrix(shape, dtype=np.float32), 12)
    assert found["multiply-adds"] == (0, 0)
    assert "multiply-adds" in str(found) and "<pre" in found._repr_html_()
    assert found.makespan(FOUR_SMS) == max(found.work.sum(axis=1).tolist(), default=0)
    if op == "spmm" and shape == (6, 5):  # zeros are stored
        assert found["global store bytes"].low == 6 * 12 * 4


def test_a_range_of_conflicts_is_that_of_two_orders_and_not_of_their_extremes():
    """Rows of a warp part: reads of four slices in one bank are 480 wavefronts either way, of which lanes
    together would need 304 and apart 336."""
    found = spmm(DRIFTING, 8, STAGED, unroll_residue=True)
    assert found["shared load wavefronts"] == (480, 480)
    assert found["shared load ideal wavefronts"] == (304, 336)
    assert found["shared load bank conflicts"] == (480 - 336, 480 - 304)


def test_conflicts_of_each_order_are_its_own():
    """An order with few wavefronts may be the one with the higher ideal."""
    case, _ = plan("spmm", UNEVEN, 8, SpmmVariant())
    kind = Kind("load", "staged", "shared", 16)
    trace = Trace(low={kind: Cost(wavefronts=5, ideal=2)}, high={kind: Cost(wavefronts=4, ideal=3)})
    found = counters._counters(case, trace)
    assert found["shared load wavefronts"] == (4, 5)
    assert found["shared load bank conflicts"] == (4 - 3, 5 - 2)


# Results


def test_counters_subtract_print_and_render():
    wide, narrow = (
        count("spmm", UNEVEN, 32, SpmmVariant(vector=v, subwarp=8, rows_per_block=4)) for v in (4, 1)
    )
    difference = wide - narrow
    name = "global load instructions"
    assert difference[name] == (wide[name].low - narrow[name].low, wide[name].high - narrow[name].high)
    assert difference[name].high < 0
    text = str(difference)
    assert name in text and str(difference[name]) in text
    assert "shuffles" not in text  # none in either
    for shown in (wide, difference):
        assert shown._repr_html_().startswith("<pre") and name in shown._repr_html_()
    text = str(wide)
    for name in wide.counts:
        assert name in text
    assert str(wide["global load bytes"]) in text and wide.title.split()[0] in text
    with pytest.raises(TypeError):
        wide - 3


def test_a_range_is_one_number_where_both_ends_agree():
    assert str(Range(1200, 1200)) == "1,200"
    assert str(Range(3, 1200)) == "3 to 1,200"
    assert str(Range(0.5, 2.0)) == "0.50 to 2.00"


def test_a_count_or_an_array_that_is_not_there_is_named_with_those_that_are():
    found = count("spmm", UNEVEN, 8, SpmmVariant())
    with pytest.raises(KeyError, match="name is 'sectors'; the counts are global load instructions"):
        found["sectors"]
    with pytest.raises(KeyError, match="no stores of 'B'; there are .*loads of B"):
        found.of("B", "store")


def test_blocks_go_in_order_to_the_sm_with_the_least_so_far():
    # 5 | 3 | 4, then 2 to the one with 3, 1 to that with 4, and 6 to one of those with 5
    assert sorted(timeline([5, 3, 4, 2, 1, 6], 3)) == [5, 5, 11]
    assert sorted(timeline([1, 1, 1, 9], 2)) == [2, 10]
    assert sorted(timeline([9, 1, 1, 1], 2)) == [3, 9]
    assert timeline([], 2) == [0, 0]
    assert sorted(timeline([7], 3)) == [0, 0, 7]


def test_the_makespan_is_of_blocks_whose_warps_add_up():
    work = np.array([[1, 2], [4, 0], [2, 2], [1, 0]])  # blocks of 3, 4, 4, 1
    found = Counters("", {}, {}, work)
    assert found.makespan(replace(FOUR_SMS, sms=2)) == 7  # 3 + 4 and 4 + 1
    assert found.makespan(FOUR_SMS) == 4


# Refusals and factories


@pytest.mark.parametrize(
    "error, match, arguments",
    [
        (TypeError, "op is 'spmv'; it must be one of spmm, sddmm", ("spmv", UNEVEN, 8)),
        (TypeError, r"op is \['spmm'\]; it must be one of", (["spmm"], UNEVEN, 8)),
        (ValueError, "n is 0; it must be .* at least 1: columns of B", ("spmm", UNEVEN, 0)),
        (ValueError, "n is 0; it must be .* at least 1: the inner dimension k", ("sddmm", UNEVEN, 0)),
        (ValueError, "n is -3; it must be", ("sddmm", UNEVEN, -3)),
        (ValueError, "n is 8.0; it must be a whole number", ("spmm", UNEVEN, 8.0)),
        (ValueError, "n is True; it must be a whole number", ("spmm", UNEVEN, True)),
        (TypeError, "a is a int; it must be a CSR matrix", ("spmm", 3, 8)),
        (TypeError, "a is a Topology, which has no values", ("spmm", UNEVEN.topology, 8)),
        (
            TypeError,
            "variant is a SddmmVariant; it must be an SpmmVariant or None",
            ("spmm", UNEVEN, 8, SddmmVariant()),
        ),
        (
            TypeError,
            "variant is a SpmmVariant; it must be an SddmmVariant",
            ("sddmm", UNEVEN, 8, SpmmVariant()),
        ),
        (VariantError, "vector=4 needs ldb.* ldb is 9", ("spmm", UNEVEN, 9, SpmmVariant(vector=4))),
        (VariantError, "vector=2 needs ld_lhs.* ld_lhs is 9", ("sddmm", UNEVEN, 9, SddmmVariant(vector=2))),
    ],
)
def test_what_cannot_be_counted_is_said_with_argument_value_and_rule(error, match, arguments):
    with pytest.raises(error, match=match):
        count(*arguments)


@pytest.mark.parametrize(
    "match, make",
    [
        ("make is a int; it must be a kernel factory", 3),
        ("make is make_sddmm; it must be a factory of this operation: make_spmm", make_sddmm),
        (r"it must be a kernel factory, make\(variant, types\)", lambda variant: None),
        ("make returned 1; it must return the kernel", lambda variant, types: 1),
    ],
)
def test_a_factory_that_is_none_is_refused(match, make):
    with pytest.raises(TypeError, match=match):
        count("spmm", UNEVEN, 8, SpmmVariant(), make=make)


def test_a_factory_of_the_users_own_is_counted():
    def make(variant, types):
        def kernel(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
            B[0]

        return kernel

    mine = count("spmm", UNEVEN, 8, SpmmVariant(), make=make)
    assert mine.of("B")["lanes"] == (8 * 32,) * 2  # a block of a warp for each of 8 rows
    assert mine["multiply-adds"] == (0, 0)
    stock = count("spmm", UNEVEN, 8, SpmmVariant(), make=make_spmm)
    assert stock.counts == count("spmm", UNEVEN, 8, SpmmVariant()).counts


def test_without_a_variant_it_is_what_a_gpu_would_get_and_not_the_emulators():
    assert count("sddmm", UNEVEN, 64).variant.subwarp > 1


# SpMM: what each toggle is for

EVEN = with_row_lengths([32] * 8, 64)  # whole tiles
STAGED = SpmmVariant(stage=True, subwarp=8, rows_per_block=4)


def spmm(a, n, variant, **changes):
    return count("spmm", a, n, replace(variant, **changes))


def test_vector_quarters_the_load_instructions_of_b_at_equal_sectors():
    narrow, wide = spmm(EVEN, 32, STAGED, items=4), spmm(EVEN, 32, STAGED, vector=4)
    for name, ratio in (("instructions", 4), ("lanes", 4), ("sectors", 1)):
        assert narrow.of("B")[name].low == ratio * wide.of("B")[name].low, name
    assert narrow["global load bytes"] == wide["global load bytes"]
    assert narrow.of("C", "store")["instructions"].low == 4 * wide.of("C", "store")["instructions"].low


def test_subwarp_fits_the_lanes_to_a_narrow_b():
    whole, fitting = (spmm(EVEN, 8, SpmmVariant(subwarp=s, rows_per_block=32 // s)) for s in (32, 8))
    b_whole, b_fitting = whole.of("B"), fitting.of("B")
    assert b_whole["lanes"] == b_fitting["lanes"]
    assert b_whole["instructions"].low == 4 * b_fitting["instructions"].low  # 8 lanes of 32, then 32 of 32
    assert fitting["active lanes"].low > whole["active lanes"].high


def test_items_lets_a_load_of_a_serve_more_columns():
    one, four = spmm(EVEN, 32, STAGED), spmm(EVEN, 32, STAGED, items=4)
    for array in ("values", "columns"):
        for name in ("instructions", "sectors"):
            assert one.of(array)[name].low == 4 * four.of(array)[name].low
    assert one.of("B")["lanes"] == four.of("B")["lanes"]


def test_rows_per_block_makes_fewer_and_larger_blocks():
    few, many = (spmm(EVEN, 8, SpmmVariant(subwarp=32, rows_per_block=rows)) for rows in (8, 1))
    assert few.work.shape == (1, 8) and many.work.shape == (8, 1)
    assert few.counts == many.counts


def test_stage_cuts_the_global_loads_of_a():
    off, on = spmm(EVEN, 8, SpmmVariant(subwarp=8, rows_per_block=4)), spmm(EVEN, 8, STAGED)
    for array in ("values", "columns"):
        # 32 loads, each of one element by eight lanes, become 32 / 8 of eight elements
        assert off.of(array)["instructions"].low == 8 * on.of(array)["instructions"].low
        assert off.of(array)["sectors"].low == 8 * on.of(array)["sectors"].low
    assert off["shared load instructions"].low == 0 < on["shared load instructions"].low


@pytest.mark.parametrize("sparse_vector", [1, 4])
def test_stage_pad_halves_or_better_the_wavefronts_of_staged_reads(sparse_vector):
    off, on = (spmm(EVEN, 8, STAGED, sparse_vector=sparse_vector, stage_pad=pad) for pad in (0, 4))
    name = "shared load wavefronts"
    assert off[name].low >= 2 * on[name].low
    assert on["shared load instructions"] == off["shared load instructions"]
    conflicts = [found["shared load bank conflicts"].low for found in (off, on)]
    # of 1 word: slices of 32 words in one bank are 4 passes, of 36 words one
    assert conflicts[1] < conflicts[0] and (sparse_vector > 1 or conflicts[1] == 0)


def test_sparse_vector_quarters_the_staged_reads():
    one, four = spmm(EVEN, 8, STAGED), spmm(EVEN, 8, STAGED, sparse_vector=4)
    assert one["shared load instructions"].low == 4 * four["shared load instructions"].low
    assert one["shared load bytes"] == four["shared load bytes"]


def test_roma_makes_wide_aligned_loads_of_a():
    a = with_row_lengths([1, *[65] * 7], 80)  # rows that start at 1, 66, 131, ...
    off, on = (spmm(a, 8, STAGED, sparse_vector=4, roma=roma) for roma in (False, True))
    for array in ("values", "columns"):
        before, after = off.of(array), on.of(array)
        assert after["sectors"].low < before["sectors"].low
        assert after["instructions"].low < before["instructions"].low
        # whole tiles by four elements a lane, and what is over by one
        assert after["lanes"].low <= 0.3 * before["lanes"].low
        excess = [found["sectors"].low - found["ideal sectors"].low for found in (before, after)]
        assert excess[1] < excess[0] / 2


def test_roma_on_aligned_rows_reads_as_many_sectors_as_are_needed():
    found = spmm(EVEN, 8, STAGED, sparse_vector=4, roma=True)
    for array in ("values", "columns"):
        assert found.of(array)["sectors"] == found.of(array)["ideal sectors"]
        assert found.of(array)["lanes"].low == EVEN.nnz // 4


def test_prescale_changes_no_access():
    difference = spmm(UNEVEN, 24, STAGED, prescale=True) - spmm(UNEVEN, 24, STAGED)
    assert all(difference[name] == (0, 0) for name in difference.counts)


def test_a_longer_tile_has_fewer_barriers_and_a_shorter_one_stages_less_in_vain():
    long_rows, short_rows = with_row_lengths([64] * 4, 80), with_row_lengths([16] * 4, 80)
    long, short = spmm(long_rows, 8, STAGED, tile_k=64), spmm(long_rows, 8, STAGED, tile_k=16)
    # a barrier once a tile is staged, and before the next one
    assert long["barriers"] == (1, 1) and short["barriers"] == (4 + 3, 4 + 3)
    long, short = spmm(short_rows, 8, STAGED, tile_k=64), spmm(short_rows, 8, STAGED, tile_k=16)
    assert long["shared store instructions"].low == 4 * short["shared store instructions"].low


def test_unroll_residue_reads_the_last_nonzeros_by_groups_of_four():
    a = with_row_lengths([5] * 4, 16)
    off, on = (spmm(a, 8, STAGED, sparse_vector=4, unroll_residue=unroll) for unroll in (False, True))
    assert off["shared load instructions"] == (2 * 5, 2 * 5)
    assert on["shared load instructions"] == (2 * 2, 2 * 2)  # groups 0 to 3 and 4 to 7, a vector each
    assert on.of("B")["lanes"] == off.of("B")["lanes"]  # what is masked touches nothing


def test_faithful_masks_no_load_but_reads_row_0_in_vain():
    a = with_row_lengths([5] * 4, 16)
    masked, faithful = (
        spmm(a, 8, STAGED, unroll_residue=True, faithful=faithful) for faithful in (False, True)
    )
    assert masked.of("B")["lanes"] == (4 * 5 * 8,) * 2
    assert masked.of("B")["instructions"] == (5, 8)  # of 8, in two groups, three are off for all
    assert faithful.of("B")["lanes"] == (4 * 8 * 8,) * 2
    assert faithful.of("B")["instructions"] == (8, 8)


DRIFTING = with_row_lengths([1, 9, 40, 64] * 2, 80)  # in each warp four rows of different length


def test_uniform_trip_keeps_the_subwarps_of_a_warp_together_at_barriers():
    names = "barriers", "multiply-adds", "shared load instructions", "shared store instructions"
    off, on = (spmm(DRIFTING, 8, STAGED, unroll_residue=True, uniform_trip=trip) for trip in (False, True))
    assert any(off[name].low < off[name].high for name in names)
    assert all(on[name].low == on[name].high for name in names)
    assert on["shuffles"].low > off["shuffles"].low == 0  # the maximum over the warp


def test_uniform_branch_keeps_them_on_one_path():
    off, on = (
        spmm(DRIFTING, 8, STAGED, unroll_residue=True, uniform_branch=uniform) for uniform in (False, True)
    )
    for name in ("multiply-adds", "shared load instructions", "global load requests"):
        assert off[name].low < off[name].high
        assert on[name].low == on[name].high
    assert on["multiply-adds"].high < off["multiply-adds"].low  # two paths are no longer taken in turn


def test_both_together_leave_only_the_end_of_the_kernel_apart():
    both = spmm(DRIFTING, 8, STAGED, unroll_residue=True, uniform_trip=True, uniform_branch=True)
    assert {name for name in both.counts if both[name].low < both[name].high} <= {
        "global store instructions",
        "global store requests",
        "global store sectors",
        "active lanes",
    }


def test_split_shortens_the_longest_warp():
    a = with_row_lengths([128], 160)
    whole, split = (
        spmm(a, 32, SpmmVariant(stage=True, subwarp=32, tile_k=8, split=split)) for split in (1, 4)
    )
    assert split.work.shape == (1, 4) and whole.work.shape == (1, 1)
    assert split.work.max() < 0.4 * whole.work.max()
    assert split["multiply-adds"] == whole["multiply-adds"]
    assert split.of("B") == whole.of("B")


LAST_IS_LONGEST = {  # of SDDMM strips of one width cost alike, unless they are empty
    "spmm": (with_row_lengths([8] * 12 + [64], 80), SpmmVariant()),
    "sddmm": (
        with_row_lengths([0] * 128 + [8] * 4, 80),
        SddmmVariant(subwarp=8, tile_nnz=8, rows_per_block=4, work="bounded", reduction="halving"),
    ),
}


@pytest.mark.parametrize("op", OPS)
def test_bin_cuts_the_makespan(op):
    a, plain = LAST_IS_LONGEST[op]
    off, on = (count(op, a, 8, replace(plain, bin=bin)) for bin in (False, True))
    assert on["multiply-adds"] == off["multiply-adds"]
    # an entry of the list is one load, where offsets are two
    assert sorted(on.work.ravel()) == sorted(off.work.ravel() - 1)
    assert on.makespan(FOUR_SMS) < 0.85 * off.makespan(FOUR_SMS)
    assert on.makespan(FOUR_SMS) == on.work.max()  # which no order can beat


@pytest.mark.parametrize("op", OPS)
def test_bundle_cuts_the_idle_lanes(op):
    a = with_row_lengths([2, 3, 60, 2, 61, 3, 2, 2, 3, 2, 60, 2, 2, 3, 2, 62], 80)
    plain = {
        "spmm": SpmmVariant(subwarp=8, rows_per_block=4),
        "sddmm": SddmmVariant(subwarp=8, tile_nnz=64, rows_per_block=4, work="bounded"),
    }[op]
    off, on = (count(op, a, 8, replace(plain, bundle=bundle)) for bundle in (False, True))
    if op == "spmm":
        assert on["active lanes"].low > 1.5 * off["active lanes"].high
        assert on["multiply-adds"].high < 0.6 * off["multiply-adds"].low
    dense = "B" if op == "spmm" else "rhs"
    assert on.of(dense)["requests"].high < 0.6 * off.of(dense)["requests"].low
    assert on.of(dense)["lanes"] == off.of(dense)["lanes"]


FLYING = replace(STAGED, sparse_vector=4, prescale=True, uniform_trip=True, in_flight=8)


def test_in_flight_asks_for_a_group_of_rows_of_b_and_then_waits_once():
    off, eight = spmm(EVEN, 8, FLYING, in_flight=0), spmm(EVEN, 8, FLYING)
    assert eight.of("B") == off.of("B") and eight["multiply-adds"] == off["multiply-adds"]
    # a warp has four rows of 32 nonzeros: one tile, one barrier, and one more for each group
    for in_flight, groups in ((4, 8), (8, 4), (16, 2)):
        found = spmm(EVEN, 8, FLYING, in_flight=in_flight)
        assert found["barriers"] == (2 * (1 + groups),) * 2
        assert found.of("B")["instructions"] == (2 * 32,) * 2  # for two warps
    # of a row of 33 in a tile of its own, seven of eight are asked for by no lane
    odd = spmm(with_row_lengths([33], 64), 8, FLYING, subwarp=32, rows_per_block=1)
    assert odd.of("B")["requests"].low == 33 and odd["multiply-adds"].low == 40


def test_prefetch_needs_no_barrier_before_the_next_tile_and_one_more_buffer():
    a = with_row_lengths([96] * 4, 128)  # three tiles
    off, on = spmm(a, 8, FLYING), spmm(a, 8, FLYING, prefetch=True)
    assert off["barriers"].low - on["barriers"].low == 2
    for array in ("values", "columns", "B"):
        assert on.of(array)["requests"] == off.of(array)["requests"]
    assert on.variant.shared_bytes == 2 * off.variant.shared_bytes


@pytest.mark.parametrize("base", [SpmmVariant(), FLYING], ids=str)
def test_n_first_begins_the_longest_rows_with_all_their_columns(base):
    a, plain = LAST_IS_LONGEST["spmm"]
    base = replace(base, subwarp=plain.subwarp, rows_per_block=plain.rows_per_block, bin=True)
    off, on = (count("spmm", a, 4 * base.tile_n, replace(base, n_first=first)) for first in (False, True))
    assert on.counts == off.counts
    work, sums = (found.work.sum(axis=1).tolist() for found in (on, off))
    assert work == sorted(sums, reverse=True) and sums != work
    assert on.makespan(FOUR_SMS) < off.makespan(FOUR_SMS)


# SDDMM: what each toggle is for

STRIPS = SddmmVariant(subwarp=8, tile_nnz=8, rows_per_block=4)


def sddmm(a, k, variant, **changes):
    return count("sddmm", a, k, replace(variant, **changes))


def test_vector_quarters_the_load_instructions_of_both_operands_at_equal_sectors():
    narrow, wide = (sddmm(EVEN, 64, STRIPS, vector=vector) for vector in (1, 4))
    for array in ("lhs", "rhs"):
        for name, ratio in (("instructions", 4), ("lanes", 4), ("sectors", 1)):
            assert narrow.of(array)[name].low == ratio * wide.of(array)[name].low, (array, name)
    assert narrow["multiply-adds"].low == wide["multiply-adds"].low


def test_tile_nnz_shares_a_load_of_lhs():
    one, eight = (sddmm(EVEN, 32, STRIPS, tile_nnz=tile, work="bounded") for tile in (1, 8))
    for name in ("instructions", "sectors"):
        assert one.of("lhs")[name].low == 8 * eight.of("lhs")[name].low
        assert one.of("rhs")[name].low == eight.of("rhs")[name].low


@pytest.mark.parametrize("work, blocks", [("grid", 2 * 10), ("bounded", 2 * 4), ("strips", 3)])
def test_work_bounded_and_strips_remove_empty_blocks(work, blocks):
    # rows of 8 nonzeros are one strip, and one row of 32 is four: 7 + 4 = 11 strips, 4 to a block; columns
    # 80 / 8 = 10 strips for a full row, 32 / 8 = 4 for the longest
    found = sddmm(with_row_lengths([8] * 7 + [32], 80), 16, STRIPS, work=work)
    assert len(found.work) == blocks
    idle = found.work.sum(axis=1) < 10
    # the first strip of each row is in the first two blocks; the fourth rows of four more
    assert idle.sum() == {"grid": 20 - 5, "bounded": 8 - 5, "strips": 0}[work]
    assert found["multiply-adds"].low > 0


def test_work_makes_no_difference_to_what_is_loaded_of_rhs():
    loads = [
        sddmm(UNEVEN, 16, STRIPS, work=work).of("rhs")["lanes"] for work in ("grid", "bounded", "strips")
    ]
    assert loads[0] == loads[1] == loads[2] == (UNEVEN.nnz * 16,) * 2


def test_halving_cuts_the_shuffles():
    butterfly, halving = (sddmm(EVEN, 16, STRIPS, reduction=how) for how in ("butterfly", "halving"))
    # for each strip 8 sums * 3 exchanges, or 4 + 2 + 1; 8 rows * 4 strips, four to a warp
    assert butterfly["shuffles"] == (8 * 24, 8 * 24)
    assert halving["shuffles"] == (8 * 7, 8 * 7)


def test_subwarp_fits_the_lanes_to_a_short_inner_dimension():
    whole, fitting = (
        sddmm(EVEN, 8, SddmmVariant(subwarp=s, tile_nnz=8, rows_per_block=32 // s)) for s in (32, 8)
    )
    assert whole.of("rhs")["instructions"].low == 4 * fitting.of("rhs")["instructions"].low
    assert fitting["active lanes"].low > whole["active lanes"].low


def test_rows_per_block_makes_fewer_and_larger_blocks_of_strips():
    few, many = (sddmm(EVEN, 16, STRIPS, work="strips", rows_per_block=rows) for rows in (16, 4))
    assert few.work.shape == (2, 4) and many.work.shape == (8, 1)  # of 32 strips
    assert few.counts == many.counts


def test_split_shares_the_inner_dimension_and_shortens_the_longest_warp():
    a = with_row_lengths([8], 16)
    variant = SddmmVariant(subwarp=32, tile_nnz=8)
    whole, split = (sddmm(a, 512, variant, split=split) for split in (1, 4))
    assert split.work.shape[1] == 4
    assert split.work.max() < 0.6 * whole.work.max()
    assert split.of("rhs") == whole.of("rhs") and split.of("lhs") == whole.of("lhs")
    assert split["multiply-adds"] == whole["multiply-adds"]


def test_prescale_of_sddmm_changes_no_access():
    assert sddmm(EVEN, 16, STRIPS, prescale=True).counts == sddmm(EVEN, 16, STRIPS).counts


def test_by_column_leaves_the_instructions_and_makes_strips_share_rows_of_rhs():
    a, listed = with_row_lengths([32] * 32, 64), replace(STRIPS, work="strips", rows_per_block=16)
    by_row, by_column = (replace(listed, by_column=on) for on in (False, True))
    before, after = (sddmm(a, 16, variant) for variant in (by_row, by_column))
    assert before.of("rhs")["instructions"] == after.of("rhs")["instructions"]
    assert before.of("rhs")["lanes"] == after.of("rhs")["lanes"]
    # strips of one warp are of different rows now, and some lanes read the same sectors
    assert after["global load sectors"].low < 0.95 * before["global load sectors"].low
    problem = plan("sddmm", a, 16, listed)[0].problem
    first_reads = [work_of(a.topology, problem, variant).l2_bytes for variant in (by_row, by_column)]
    # of 16 strips of 8 in a block: four whole rows, or a quarter of 16 rows, which is 16 columns or some more
    assert first_reads[1] < first_reads[0] / 1.5


def test_every_toggle_has_its_test_here():
    """A toggle that is added to a variant is to be added here."""
    spmm_toggles = {"vector", "subwarp", "items", "rows_per_block", "stage", "tile_k", "stage_pad"}
    spmm_toggles |= {"sparse_vector", "roma", "prescale", "unroll_residue", "bundle", "bin"}
    spmm_toggles |= {"uniform_trip", "uniform_branch", "split", "faithful"}
    spmm_toggles |= {"in_flight", "prefetch", "n_first"}
    assert {f.name for f in fields(SpmmVariant)} == spmm_toggles
    sddmm_toggles = {"vector", "subwarp", "tile_nnz", "rows_per_block", "bundle", "bin", "work"}
    sddmm_toggles |= {"by_column", "reduction", "split", "prescale"}
    assert {f.name for f in fields(SddmmVariant)} == sddmm_toggles
