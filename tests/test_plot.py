"""The lane picture shows what the emulator saw, all of it, and nothing is cut off."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.text import Text  # noqa: E402

from sparsekern import SpmmVariant as V  # noqa: E402
from sparsekern import plan_spmm  # noqa: E402
from sparsekern.generators import with_row_lengths  # noqa: E402
from sparsekern.study.plot import lane_map, trace  # noqa: E402

SHORT = with_row_lengths([3, 2, 4, 1, 3, 5, 0, 2], 12, seed=1)
LONG = with_row_lengths([9, 11, 14, 10, 3], 16, seed=1)  # rows 1 to 4 start at 1, 0, 2, 0 modulo 4
FOURS = dict(vector=4, subwarp=8, rows_per_block=4)
STAGED = dict(stage=True, tile_k=8)
ROMA = dict(sparse_vector=4, roma=True)

PICTURES = {
    "a warp on one row": (SHORT, 32, V(rows_per_block=8), (0, 0)),
    "four subwarps in a warp": (SHORT, 32, V(**FOURS, **STAGED), (1, 0)),
    "one lane a strip": (SHORT, 4, V(subwarp=1, rows_per_block=32), (0, 0)),
    "two vectors a lane": (SHORT, 32, V(vector=2, subwarp=8, items=2, rows_per_block=4), (0, 0)),
    "a tile past the last column": (SHORT, 44, V(**FOURS), (1, 1)),
    "a split row": (SHORT, 16, V(subwarp=16, split=2, rows_per_block=4, **STAGED), (0, 0)),
    "rows in another order": (SHORT, 8, V(subwarp=8, rows_per_block=4, bundle=True, bin=True), (0, 0)),
    "aligned backwards": (LONG, 16, V(vector=4, subwarp=4, rows_per_block=8, **STAGED, **ROMA), (0, 0)),
}
pictures = pytest.mark.parametrize("a, n, variant, block", PICTURES.values(), ids=PICTURES)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def boxes(axis):
    """{(x, y, width): colour} of the filled rectangles."""
    filled = [patch for patch in axis.patches if patch.get_fill()]
    return {(p.get_x(), p.get_y(), p.get_width()): p.get_facecolor() for p in filled}


def hatched(axis):
    return [patch for patch in axis.patches if patch.get_hatch()]


@pictures
def test_trace_is_all_that_a_launch_counts(a, n, variant, block):
    b = np.ones((a.shape[1], n), np.float32)
    plan = plan_spmm(a, b, variant, backend="emulator")
    seen = Counter((x.kind, (8 if x.array == "work" else 4) * x.width) for x in trace(plan, a.values, b))
    _, total = plan.count(a.values, b)
    counts = {"load": total.loads, "store": total.stores}
    assert seen == {
        (kind, size): number
        for kind, table in counts.items()
        for (space, size), number in table.items()
        if space == "global"
    }


@pictures
def test_picture_shows_the_loads_of_b_and_the_stores_of_c(a, n, variant, block):
    """Where boxes are follows from the variant alone, by the tiling of the paper."""
    of_a, of_b, of_c = lane_map(a, n, variant, block)
    order = np.arange(a.shape[0])
    if variant.bundle or variant.bin:
        order = a.topology.row_order(variant.bundle, variant.bin, variant.rows_per_block)
    mine = order[block[0] * variant.rows_per_block :][: variant.rows_per_block]
    first = block[1] * variant.tile_n
    starts = {
        c: (c - first) // variant.vector % variant.subwarp
        for c in range(first, min(first + variant.tile_n, n), variant.vector)
    }
    assert set(boxes(of_c)) == {(c, row, variant.vector) for row in mine for c in starts}
    assert len(set(boxes(of_c).values())) == len(mine)
    written = [text.get_text() for text in of_c.texts]
    assert Counter(written) == Counter(
        "all" if variant.subwarp > 1 and set(starts.values()) == {0} else str(lane)
        for lane in starts.values()
        for _ in mine
    )

    t = a.topology
    read = Counter(c for row in mine for c in t.columns[t.offsets[row] : t.offsets[row + 1]])
    assert len(boxes(of_b)) == sum(read.values()) * len(starts)
    assert [int(label.get_text()) for label in of_b.get_yticklabels()] == sorted(read)
    assert {x for x, _, _ in boxes(of_b)} == set(starts)

    nonzeros = {(at, row) for row in mine for at in range(t.row_lengths[row])}
    drawn = {(at, y) for x, y, width in boxes(of_a) for at in range(int(x), int(x + width)) if at >= 0}
    assert drawn == nonzeros


def test_what_alignment_reads_before_a_row_is_hatched_and_nothing_else():
    of_a, of_b, of_c = lane_map(*PICTURES["aligned backwards"])
    assert {(-p.get_x(), p.get_y()) for p in hatched(of_a)} == {(1, 1), (2, 3)}
    assert not hatched(of_b) and not hatched(of_c)
    assert "not used" in of_a.figure.axes[0].get_legend().texts[-1].get_text()
    assert {width for _, _, width in boxes(of_a)} == {1, 4}


@pictures
def test_nothing_is_unlabelled_or_cut_off(a, n, variant, block):
    axes = lane_map(a, n, variant, block)
    assert [axis.get_ylabel() for axis in axes] == ["row of A", "row of B", "row of C"]
    assert "bytes" in axes[0].get_xlabel() and "bytes" in axes[2].get_xlabel()
    figure = axes[0].figure
    figure.canvas.draw()
    canvas = figure.bbox
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            extent = text.get_window_extent()
            assert canvas.containsx(extent.x0) and canvas.containsx(extent.x1), text
            assert canvas.containsy(extent.y0) and canvas.containsy(extent.y1), text


def test_subwarps_differ_in_grey():
    _, _, of_c = lane_map(*PICTURES["a warp on one row"])
    grey = sorted(np.dot(colour[:3], (0.3, 0.59, 0.11)) for colour in set(boxes(of_c).values()))
    assert np.diff(grey).min() > 0.05


@pytest.mark.parametrize(
    "name, claim",
    [
        ("a warp on one row", "32 lanes load 1 column each: 128 bytes of a row of B"),
        ("four subwarps in a warp", "8 lanes load 4 columns each: 128 bytes of a row of B"),
        ("one lane a strip", "1 lane loads 1 column: 4 bytes of a row of B"),
        ("two vectors a lane", "8 lanes load 2 columns each, 2 times: 128 bytes of a row of B"),
        ("a tile past the last column", "3 lanes load 4 columns each: 48 bytes of a row of B"),
    ],
)
def test_title_says_what_the_picture_shows(name, claim):
    of_a, _, _ = lane_map(*PICTURES[name])
    assert of_a.figure.get_suptitle() == f"{claim} per nonzero"


def test_a_block_without_nonzeros_has_a_picture():
    nothing = with_row_lengths([0, 0], 4)
    of_a, of_b, of_c = lane_map(nothing, 8, V(subwarp=8, rows_per_block=4))
    assert of_a.figure.get_suptitle() == "no loads of B"
    assert not boxes(of_a) and not boxes(of_b) and len(boxes(of_c)) == 2 * 8


@pytest.mark.parametrize(
    "rows, block, message",
    [(33, (0, 0), "a has 33 rows; a picture shows at most 32"), (8, (0, 1), "the grid has 2 x 1 blocks")],
    ids=["too many rows", "no such block"],
)
def test_what_cannot_be_drawn_is_said(rows, block, message):
    a = with_row_lengths([1] * rows, 4)
    with pytest.raises(ValueError, match=message):
        lane_map(a, 8, V(subwarp=8, rows_per_block=4), block)


def test_sparsekern_needs_no_matplotlib():
    code = "import sys; sys.modules['matplotlib'] = None; import sparsekern.study.ladder"
    subprocess.run([sys.executable, "-c", code], check=True)
