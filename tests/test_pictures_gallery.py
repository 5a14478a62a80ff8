"""The gallery draws what it can, small enough to be committed, and says what is missing."""

import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.image import imread  # noqa: E402
from timings import PROVENANCE, row  # noqa: E402

from sparsekern import LADDERS  # noqa: E402
from sparsekern.datasets import layers  # noqa: E402
from sparsekern.naming import format_variant  # noqa: E402
from sparsekern.study import gallery, plot  # noqa: E402
from sparsekern.study.records import write  # noqa: E402

RIVALS = {"cusparse_us": 40.0, "sputnik_us": 30.0, "dense_fp32_us": 20.0}
LAYER = next(facts for facts in layers() if facts.path == gallery.SMALL)


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results" / gallery.FOLDER
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def small_ladder(monkeypatch, results):
    """A record of the ladder on a small layer, from 100 µs on, each step 5 µs faster."""
    monkeypatch.setattr(gallery, "LARGE", gallery.SMALL)
    sizes = {"m": LAYER.rows, "k": LAYER.cols, "n": gallery.N, "nnz": LAYER.nnz}
    rows = [
        row(100 - 5 * step, gallery.SMALL, format_variant(variant), **sizes)
        for step, (_, variant) in enumerate(LADDERS["spmm"])
    ]
    write(results / "ladder.csv", PROVENANCE, rows)
    return rows


def test_pictures_are_small_files_and_no_figure_stays_open(tmp_path, results):
    write(results / "sweep.csv", PROVENANCE, [row(10, **RIVALS), row(10, op="sddmm", **RIVALS)])
    some = gallery.lane_map, gallery.row_lengths, gallery.crossover, gallery.crossover_sddmm
    drawn = dict(gallery.draw(tmp_path / "out", tmp_path / "results", some))
    assert drawn == dict.fromkeys(["lane_map", "row_lengths", "crossover", "crossover_sddmm"])
    assert {path.stem for path in (tmp_path / "out").iterdir()} == set(drawn)
    for path in (tmp_path / "out").iterdir():
        assert 2_000 < path.stat().st_size < 60_000
        assert imread(path).shape[1] > 300
    assert not plt.get_fignums()


def test_without_a_record_the_command_that_makes_it_is_said(tmp_path):
    some = gallery.ladder_bars, gallery.roofline, gallery.crossover
    said = dict(gallery.draw(tmp_path, tmp_path, some))
    assert list(said) == ["ladder_bars", "roofline", "crossover"]
    assert all("python -m sparsekern bench" in line for line in said.values())
    assert not list(tmp_path.iterdir())


def test_the_ladder_is_drawn_from_its_record_and_the_bounds(tmp_path, small_ladder):
    axis = gallery.ladder_bars(tmp_path / "results")
    assert [label.get_text() for label in axis.get_yticklabels()] == [name for name, _ in LADDERS["spmm"]]
    bound_us = 4 * LAYER.nnz * gallery.N / gallery.GPU.l1_bytes_per_second * 1e6
    assert [patch.get_width() for patch in axis.patches] == pytest.approx(
        [100 * bound_us / row.time_us for row in small_ladder]
    )
    axis = gallery.roofline(tmp_path / "results")
    assert [line.get_label().split(":")[0] for line in axis.lines[4:]] == list(gallery.STEPS)
    plt.close("all")


def test_a_record_without_a_step_is_refused(tmp_path, results, small_ladder):
    write(results / "ladder.csv", PROVENANCE, small_ladder[1:])
    with pytest.raises(ValueError, match="record 'ladder' of nvidia-h200 lacks subwarp=1,rows_per_block=32"):
        gallery.ladder_bars(tmp_path / "results")


def test_the_command_names_each_file_and_fails_if_one_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gallery, "PICTURES", (gallery.row_lengths, gallery.crossover))
    assert gallery.main([str(tmp_path / "out"), "--results", str(tmp_path)]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"row_lengths: {tmp_path / 'out' / 'row_lengths.png'}"
    assert second.startswith("crossover: no record 'sweep'")


def test_every_picture_is_in_the_gallery():
    assert {picture.__name__ for picture in gallery.PICTURES} >= set(plot.__all__) - {"trace"}
