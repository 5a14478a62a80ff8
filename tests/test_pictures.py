"""Pictures say in bars, titles and marks what the results say, and can be read."""

from dataclasses import replace

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from legible import complaints, texts  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402
from timings import row  # noqa: E402

from sparsekern import LADDERS, SddmmVariant, plan_spmm  # noqa: E402
from sparsekern import SpmmVariant as V  # noqa: E402
from sparsekern.generators import with_row_lengths  # noqa: E402
from sparsekern.study.canvas import shades  # noqa: E402
from sparsekern.study.change_pictures import ratio  # noqa: E402
from sparsekern.study.codegen import Resources  # noqa: E402
from sparsekern.study.cost import bounds_of  # noqa: E402
from sparsekern.study.counters import Range, count, timeline  # noqa: E402
from sparsekern.study.gpus import GPUS  # noqa: E402
from sparsekern.study.occupancy import occupancy  # noqa: E402
from sparsekern.study.plot import (  # noqa: E402
    counts_change,
    crossover,
    ladder_bars,
    lane_map,
    occupancy_bars,
    roofline,
    row_lengths,
    sm_timeline,
)
from sparsekern.study.records import Record  # noqa: E402
from sparsekern.study.work_pictures import schedule  # noqa: E402

H200 = GPUS["h200"]
SIX = replace(H200, sms=6)
UNEVEN = with_row_lengths([2] * 20 + [18] + [4] * 20 + [0, 40, 1, 9, 0, 16, 3], 40, seed=1)
PLAIN = V(vector=4, subwarp=8, rows_per_block=4, stage=True)
STEPS = [("plain", 40, 8), ("stage=True", 50, 8), ("vector=4", 20, 8), ("split=4", 16, 9.12)]
SUBJECT = "SpMM of 512 x 512, 90% sparse, n=256, on H200"
POINTS = [("plain", 1e9, 2e9, 200), ("split=4", 1e9, 4e9, 125), ("bin=True", 1e9, 2e9, 160)]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def unbinned():
    return count("spmm", UNEVEN, 32, PLAIN)


@pytest.fixture(scope="module")
def binned():
    return count("spmm", UNEVEN, 32, replace(PLAIN, bin=True))


@pytest.fixture(scope="module")
def bundled():
    return count("spmm", UNEVEN, 32, replace(PLAIN, bundle=True))


def kernels():
    taken = {"plain": Resources(32, 0, 0, 0, 0), "split=4": Resources(72, 4096, 16, 8, 8)}
    return [(name, resources, occupancy(resources, 256, H200)) for name, resources in taken.items()]


def swept(op="spmm"):
    """Ours wins at 90% against all but Sputnik at n=2048; below that dense is ahead."""
    rivals = {"cusparse_us": 30.0, "sputnik_us": 40.0}
    return Record(
        {},
        [
            row(20, "a", op=op, dense_fp32_us=50.0, **rivals),
            row(25, "a", op=op, variant="stage=True", dense_fp32_us=50.0, **rivals),
            row(15, "b", op=op, dense_fp32_us=50.0, **rivals),
            row(25, "c", op=op, n=2048, dense_fp32_us=50.0, cusparse_us=30.0, sputnik_us=20.0),
            row(40, "d", op=op, nnz=4000, dense_fp32_us=10.0, **rivals),
            row(40, "e", op=op, nnz=4000, n=2048, dense_fp32_us=20.0),
        ],
    )


PICTURES = {
    "a ladder": lambda _, **o: ladder_bars(STEPS, **o),
    "the ladder of SpMM": lambda _, **o: ladder_bars([(n, 20, 5) for n, _ in LADDERS["spmm"]], **o),
    "a ladder of one step": lambda _, **o: ladder_bars(STEPS[:1], **o),
    "a roofline": lambda _, **o: roofline(H200, POINTS, **o),
    "a roofline of all its steps": lambda _, **o: roofline(
        H200, [(name, 1e9, 2e9, 200) for name, _ in LADDERS["spmm"]], "HBM", **o
    ),
    "row lengths": lambda _, **o: row_lengths(UNEVEN.topology, **o),
    "row lengths of an empty matrix": lambda _, **o: row_lengths(with_row_lengths([0] * 8, 4).topology, **o),
    "SMs": lambda get, **o: sm_timeline(get("unbinned"), get("binned"), SIX, **o),
    "all SMs of an H200": lambda get, **o: sm_timeline(get("unbinned"), get("bundled"), H200, **o),
    "occupancy": lambda _, **o: occupancy_bars(kernels(), **o),
    "occupancy of one kernel": lambda _, **o: occupancy_bars(kernels()[1:], **o),
    "counts": lambda get, **o: counts_change(get("unbinned"), get("bundled"), **o),
}
pictures = pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)


@pictures
def test_a_picture_can_be_read(picture, request):
    axis = picture(request.getfixturevalue, subject=SUBJECT)
    assert not complaints(axis.figure)
    said = [text.get_text().replace("\n", " ") for text in texts(axis.figure)]
    assert one_line(axis) in said and SUBJECT in said


@pytest.mark.parametrize("op", ["spmm", "sddmm"])
def test_a_crossover_can_be_read(op):
    assert not complaints(crossover(swept(op), "H200", op).figure)


def test_a_lane_map_can_be_read():
    variant = V(vector=4, subwarp=4, rows_per_block=8, stage=True, tile_k=8, sparse_vector=4, roma=True)
    of_a, _, _ = lane_map(with_row_lengths([5, 7, 8, 6, 3], 16, seed=1), 16, variant)
    assert not complaints(of_a.figure)


@pictures
def test_a_picture_can_be_one_of_several(picture, request):
    _, (left, right) = plt.subplots(1, 2, figsize=(16, 6), layout="constrained")
    assert picture(request.getfixturevalue, ax=right) is right
    assert len(plt.get_fignums()) == 1 and not left.has_data()
    left.set_axis_off()
    assert not complaints(right.figure)


def test_what_cannot_be_read_is_seen():
    figure, axis = plt.subplots()
    axis.set(xlabel="x", ylabel="y")
    assert not complaints(figure)
    for text in "one", "two":
        axis.text(0.5, 0.5, text)
    axis.text(2, 0.5, "three")
    axis.set_xlabel("")
    first, second, third = complaints(figure)
    assert first == "'three' leaves the figure"
    assert second == "'one' and 'two' overlap"
    assert third.startswith("the x axis") and third.endswith("has no label")


@pytest.mark.parametrize("number", [2, 3, 4, 17])
def test_shades_stay_apart_in_grey(number):
    grey = shades(number)[:, :3] @ (0.3, 0.59, 0.11)
    assert np.diff(grey).min() > 0.3 / number


def one_line(axis):
    return axis.get_title("left").replace("\n", " ")


def bars(axis):
    """[(x, y of its middle, width)] of the bars, from the top."""
    found = [p for p in axis.patches if isinstance(p, Rectangle)]
    return [(p.get_x(), p.get_y() + p.get_height() / 2, p.get_width()) for p in found]


def beside(axis):
    """What stands right of the bars."""
    return [text.get_text() for text in axis.texts]


def names(axis):
    return [label.get_text() for label in axis.get_yticklabels()]


def test_a_ladder_is_bars_of_shares_and_its_title_the_fastest_step():
    axis = ladder_bars(STEPS)
    assert [width for _, _, width in bars(axis)] == pytest.approx([20, 16, 40, 57])
    assert names(axis) == ["plain", "stage=True", "vector=4", "split=4"]
    assert beside(axis) == ["20%, 40 µs", "16%, 50 µs", "40%, 20 µs", "57%, 16 µs"]
    assert axis.get_title("left") == "split=4 reaches 57% of the L1 bound: 2.5x as fast as the plain kernel"
    assert axis.get_xlabel() == "share of the L1 bound (%)"


def test_a_step_that_is_slower_than_the_one_before_is_hatched_and_explained():
    axis = ladder_bars(STEPS)
    assert [bool(patch.get_hatch()) for patch in axis.patches] == [False, True, False, False]
    assert [text.get_text() for text in axis.get_legend().get_texts()][1] == "slower than the step before"
    assert ladder_bars([STEPS[0], STEPS[2]]).get_legend() is None


def test_a_ladder_takes_the_bounds_of_the_cost_model():
    b = np.ones((UNEVEN.shape[1], 32), np.float32)
    problem = plan_spmm(UNEVEN, b, PLAIN, backend="emulator").problem
    found = bounds_of(UNEVEN.topology, problem, PLAIN, H200)
    axis = ladder_bars([("plain", 4 * found.bound_us, found.bound_us)], found.binding)
    assert axis.get_title("left") == f"plain reaches 25% of the {found.binding} bound"


def test_a_bound_that_is_broken_is_in_the_picture():
    axis = ladder_bars([("plain", 10, 8), ("wrong", 4, 8)])
    assert axis.get_xlim()[1] > 200
    assert axis.get_title("left") == "wrong reaches 200% of the L1 bound: 2.5x as fast as the plain kernel"


def test_roofs_are_those_of_the_gpu_and_points_lie_at_their_intensity_and_speed():
    axis = roofline(H200, POINTS)
    l1, l2, hbm, fp32, *points = axis.lines
    for roof, speed in zip((l1, l2, hbm), (33.4541, 10.1376, 4.8), strict=True):
        x, y = roof.get_data()
        assert y / x == pytest.approx([speed] * 2, rel=1e-4)
        assert y[1] == pytest.approx(66.9, rel=1e-3)
    assert set(fp32.get_ydata()) == {2 * H200.fp32_per_second / 1e12}
    assert [(p.get_xdata()[0], p.get_ydata()[0]) for p in points] == [(0.5, 5), (0.25, 8), (0.5, 6.25)]
    assert len({roof.get_linestyle() for roof in (l1, l2, hbm)}) == len({p.get_marker() for p in points}) == 3
    assert one_line(axis) == ("split=4 runs at 8 TFLOP/s, 96% of what L1 allows at 0.25 flop/byte")
    assert axis.get_xlabel() == "arithmetic intensity (flop per byte at L1)"
    assert [text.get_text() for text in axis.get_legend().get_texts()][:5] == [
        "L1: 33.5 TB/s", "L2: 10.1 TB/s", "HBM: 4.8 TB/s", "fp32: 66.9 TFLOP/s", "plain: 5 TFLOP/s",
    ]  # fmt: skip


def test_a_point_beyond_the_ridge_is_held_against_the_peak():
    axis = roofline(H200, [("dense", 1e12, 1e9, 20000)], "HBM")
    assert "75% of the fp32 peak" in axis.get_title("left")


def test_a_gpu_whose_l2_is_not_known_has_a_roof_less():
    unknown = replace(H200, l2_bytes_per_second=None)
    assert len(roofline(unknown, POINTS).lines) == len(roofline(H200, POINTS).lines) - 1
    with pytest.raises(ValueError, match="memory is 'L2'; of H200 the bandwidths of L1, HBM are known"):
        roofline(unknown, POINTS, "L2")


def test_row_lengths_are_counted_and_the_title_has_mean_cov_and_longest():
    axis = row_lengths(UNEVEN.topology)
    lengths = UNEVEN.topology.row_lengths
    counted = {(patch.get_x(), patch.get_width()): patch.get_height() for patch in axis.patches}
    assert sum(counted.values()) == len(lengths) == 48
    assert all(high == ((x < lengths) & (lengths < x + w)).sum() for (x, w), high in counted.items())
    assert [line.get_xdata()[0] for line in axis.lines] == pytest.approx([lengths.mean(), 40])
    assert one_line(axis) == (
        f"48 rows of {lengths.mean():.3g} nonzeros on average, CoV {lengths.std() / lengths.mean():.2f}: "
        f"the longest has 40, {40 / lengths.mean():.1f}x the mean; 2 are empty"
    )


def test_a_schedule_adds_up_to_the_timeline(rng):
    work = rng.integers(0, 50, 40)
    sm, start = schedule(work, 6)
    for mine in range(6):
        blocks = np.flatnonzero(sm == mine)
        assert start[blocks].tolist() == [0, *np.cumsum(work[blocks])[:-1]]  # one after the other
    ends = [(start + work)[sm == mine].max() for mine in range(6)]
    assert sorted(ends) == sorted(timeline(work, 6))


def test_sms_show_every_block_of_both_launches_and_the_title_the_makespans(unbinned, binned):
    axis = sm_timeline(unbinned, binned, SIX)
    upper = [(x, width) for x, y, width in bars(axis) if y < 6]
    lower = [(x, width) for x, y, width in bars(axis) if y > 6]
    for drawn, launch in (upper, unbinned), (lower, binned):
        assert [width for _, width in drawn] == launch.work.sum(axis=1).tolist()
        assert max(x + width for x, width in drawn) == launch.makespan(SIX)
    before, after = unbinned.makespan(SIX), binned.makespan(SIX)
    assert after < before
    ideal = binned.work.sum() / 6
    claim = (
        f"bin=True cuts the makespan from {before} to {after} warp instructions ({after / before - 1:.0%})"
    )
    assert one_line(axis).startswith(f"{claim}: {after / ideal:.2f}x the ideal, where it was ")
    marked = [line.get_xdata()[0] for line in axis.lines]
    assert marked == [before, unbinned.work.sum() / 6, after, ideal]
    assert names(axis) == ["bin=False", "bin=True"]


def test_launches_of_sddmm_have_a_timeline_too():
    grid = SddmmVariant(tile_nnz=32, subwarp=8, rows_per_block=4)
    a = with_row_lengths([3, 0, 9, 40, 1, 33, 8, 8, 2], 64, seed=1)
    launches = [count("sddmm", a, 8, v) for v in (grid, replace(grid, work="strips"))]
    axis = sm_timeline(*launches, SIX)
    assert axis.get_title("left").startswith("work=strips")
    assert len(bars(axis)) == sum(len(launch.work) for launch in launches)


def test_a_launch_without_work_has_no_timeline(unbinned):
    nothing = replace(unbinned, work=np.zeros((0, 1), np.int64))
    with pytest.raises(ValueError, match="after has 0 blocks"):
        sm_timeline(unbinned, nothing, SIX, names=("before", "after"))


def test_occupancy_and_registers_are_bars_and_the_limiter_is_named():
    axis = occupancy_bars(kernels())
    widths = [width for _, _, width in bars(axis)]
    assert widths == pytest.approx([100, 100 * 32 / 255, 37.5, 100 * 72 / 255])
    assert [bool(patch.get_hatch()) for patch in axis.patches] == [False, True, False, True]
    assert beside(axis) == [
        "100%, 32 registers\nlimited by registers and warps",
        "38%, 72 registers, 16 bytes spilled\nlimited by registers",
    ]
    assert one_line(axis) == (
        "From plain to split=4 registers go from 32 to 72 and occupancy goes from 100% to 38%, "
        "limited by registers"
    )


def test_counts_are_ratios_with_the_range_as_a_whisker(unbinned, bundled):
    wanted = ["global load instructions", "active lanes", ("B", "load", "sectors"), "shuffles"]
    axis = counts_change(unbinned, bundled, wanted)
    assert names(axis) == ["global load instructions", "active lanes", "load sectors of B", "shuffles"]
    for (x, y, width), name in zip(bars(axis), wanted[:2], strict=False):
        assert x == 1 and 1 + width == pytest.approx(bundled[name].low / unbinned[name].low)
        assert wanted[round(y)] == name
    one, other = unbinned["global load instructions"], bundled["global load instructions"]
    whisker = axis.collections[0].get_segments()[0]
    assert whisker[:, 0] == pytest.approx([other.low / one.high, other.high / one.low])
    assert beside(axis)[0] == f"{other.low / one.low:.3g}x; before: {one}\nafter: {other}"
    assert beside(axis)[3] == "none; before: 0\nafter: 0"
    assert axis.get_xlabel().startswith("count after / count before")


def test_the_title_of_counts_is_the_one_that_moves_most():
    plain = V(rows_per_block=4)
    short = with_row_lengths([3, 0, 9, 1], 16, seed=1)
    before, wide, staged = (
        count("spmm", short, 128, v) for v in (plain, replace(plain, vector=4), replace(plain, stage=True))
    )
    names = [("B", "load", "instructions"), ("B", "load", "sectors"), "multiply-adds"]
    title = counts_change(before, wide, names).get_title("left")
    assert title == "With vector=4, the number of load instructions of B falls to 0.25x"
    title = counts_change(before, wide, names[1:]).get_title("left")
    assert title == "With vector=4 all of these counts stay as they are"
    drifting = replace(wide, counts={"votes": Range(4, 9)}), replace(wide, counts={"votes": Range(4, 8)})
    title = counts_change(*drifting, ["votes"], "it").get_title("left")
    assert title == "With it all of these counts change in their ranges only"
    loads = "shared load instructions"
    title = one_line(counts_change(before, staged, [loads, *names]))
    assert title == f"With stage=True there are {staged[loads].low:,} {loads}; there were none"
    title = one_line(counts_change(staged, before, [*names, loads]))
    assert title == f"With stage=False there are no {loads}; there were {staged[loads].low:,}"


def test_a_ratio_of_ranges_spans_all_that_hardware_may_do():
    assert ratio(Range(10, 20), Range(5, 30)) == (0.25, 0.5, 3)
    assert ratio(Range(0, 0), Range(0, 0)) is None
    assert ratio(Range(0, 0), Range(4, 4)) == (np.inf,) * 3
    assert ratio(Range(4, 4), Range(0, 0)) == (0, 0, 0)


def test_a_count_that_there_is_not_is_named(unbinned, binned):
    with pytest.raises(KeyError, match="name is 'loads'"):
        counts_change(unbinned, binned, ["loads"])


def cells(axis):
    """{(n, sparsity): (text, hatch)}"""
    columns = [label.get_text() for label in axis.get_xticklabels()]
    texts = {(round(t.get_position()[0]), round(t.get_position()[1])): t.get_text() for t in axis.texts}
    return {
        (columns[x], names(axis)[y]): (texts[x, y], patch.get_hatch())
        for patch in axis.patches
        for x, y in [(round(patch.get_x() + 0.5), round(patch.get_y() + 0.5))]
    }


def test_a_crossover_names_the_winner_of_each_cell_and_by_how_much():
    axis = crossover(swept(), "H200")
    key = {text.get_text(): h.get_hatch() for text, h in zip(*legend(axis), strict=True)}
    assert list(key) == ["sparsekern", "cuSPARSE", "Sputnik", "dense fp32"]
    assert len(set(key.values())) == 4
    assert cells(axis) == {
        ("256", "85 to 92.5%"): ("1.73x\nof 2", key["sparsekern"]),  # (30 / 20 * 30 / 15) ** 0.5
        ("2,048", "85 to 92.5%"): ("0.80x\nof 1", key["Sputnik"]),
        ("256", "60 to 75%"): ("0.25x\nof 1", key["dense fp32"]),
        ("2,048", "60 to 75%"): ("0.50x\nof 1", key["dense fp32"]),
    }
    assert one_line(axis) == (
        "SpMM on H200: sparsekern is fastest in 1 of 4 cells, "
        "0.35x the fastest rival below 85% sparsity and 1.34x above"
    )


def legend(axis):
    return axis.get_legend().get_texts(), axis.get_legend().get_patches()


def test_dense_is_always_a_rival():
    with pytest.raises(ValueError, match="dense_fp32_us of a at width 256 is missing"):
        crossover(Record({}, [row(1, "a", cusparse_us=2.0)]), "H200")
    with pytest.raises(ValueError, match="op is 'sddmm' and l2 is 'warm'"):
        crossover(swept(), "H200", "sddmm")


@pytest.mark.parametrize(
    "draw, message",
    [
        (lambda: ladder_bars([]), "steps is empty"),
        (lambda: ladder_bars([("plain", 0, 8)]), "'plain' with 0.0 and 8.0 µs; both must be above 0"),
        (lambda: roofline(H200, []), "points is empty"),
        (lambda: roofline(H200, [("plain", 1, 0, 1)]), "'plain' with flops, bytes, µs"),
        (lambda: occupancy_bars([]), "entries is empty"),
    ],
    ids=["no steps", "no time", "no points", "no bytes", "no kernels"],
)
def test_what_cannot_be_drawn_is_said(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
