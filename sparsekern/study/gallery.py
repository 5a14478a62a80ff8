"""`python -m sparsekern.study.gallery DIR` draws every picture into DIR, on look-alikes and from records.

Needs matplotlib, for registers ptxas, and for times the records that this repository keeps.
"""

import argparse
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image  # comes with matplotlib

from sparsekern.datasets import look_alike
from sparsekern.generators import with_row_lengths
from sparsekern.kernels import make_spmm
from sparsekern.ladders import LADDERS
from sparsekern.naming import format_variant
from sparsekern.ops import plan_spmm
from sparsekern.study import cost, plot, records
from sparsekern.study.codegen import resources
from sparsekern.study.counters import count
from sparsekern.study.gpus import GPUS
from sparsekern.study.occupancy import occupancy
from sparsekern.variants import SpmmVariant

DPI, COLOURS = 90, 256
FOLDER, GPU = "nvidia-h200", GPUS["h200"]
UNEVEN = "rn50/extended_magnitude_pruning/0.91/bottleneck_3_block_group3_2_1.smtx"
SMALL = "rn50/magnitude_pruning/0.95/initial_conv.smtx"
LARGE, N = "transformer/magnitude_pruning/0.9/body_encoder_layer_0_ffn_conv1_fully_connected.smtx", 2048
LANES = SpmmVariant(vector=4, subwarp=4, rows_per_block=8, stage=True, tile_k=8, sparse_vector=4, roma=True)
STEPS = "plain", "stage=True", "vector=4", "roma=True", "uniform_trip=True", "split=4"  # where less is more


def lane_map(results):
    of_a, _, _ = plot.lane_map(with_row_lengths([5, 7, 8, 6, 3], 16, seed=1), 16, LANES)
    return of_a


def row_lengths(results):
    return plot.row_lengths(look_alike(UNEVEN).topology, f"A look-alike of {_short(UNEVEN)}")


def sm_timeline(results):
    a, plain = look_alike(UNEVEN), SpmmVariant(vector=2, subwarp=16, rows_per_block=2, stage=True)
    before, after = (count("spmm", a, 32, v) for v in (plain, replace(plain, bin=True)))
    return plot.sm_timeline(before, after, GPU, subject=f"SpMM, a look-alike of {_short(UNEVEN)}, n=32")


def occupancy_bars(results):
    steps = [step for step in LADDERS["spmm"] if step[0] in STEPS]
    entries = [(name, resources(make_spmm, v, GPU.arch), v.threads) for name, v in steps]
    held = [(name, taken, occupancy(taken, threads, GPU)) for name, taken, threads in entries]
    return plot.occupancy_bars(
        held, f"SpMM on {GPU.name}, each kernel with all steps of the ladder before it"
    )


def counts_change(results):
    a, plain = look_alike(SMALL), SpmmVariant(rows_per_block=8, stage=True)
    before, after = (count("spmm", a, 128, v) for v in (plain, replace(plain, vector=4)))
    arrays = [("B", "load", "instructions"), ("B", "load", "sectors"), ("C", "store", "instructions")]
    names = [*arrays, "shared load instructions", "barriers", "multiply-adds"]
    return plot.counts_change(before, after, names, subject=f"SpMM, a look-alike of {_short(SMALL)}, n=128")


def ladder_bars(results):
    found = _ladder(results)
    steps = [(name, us, cost.l1_bound_us(bounds.problem, GPU)) for name, us, bounds in found]
    return plot.ladder_bars(steps, "L1", f"SpMM on {GPU.name}, {_short(LARGE)}, n={N}")


def roofline(results):
    points = [(name, bounds.flops, bounds.bytes["L1"], us) for name, us, bounds in _ladder(results, STEPS)]
    return plot.roofline(GPU, points, "L1", f"SpMM on {GPU.name}, {_short(LARGE)}, n={N}")


def crossover(results):
    return plot.crossover(records.load("sweep", FOLDER, results), GPU.name)


def crossover_sddmm(results):
    return plot.crossover(records.load("sweep", FOLDER, results), GPU.name, "sddmm")


PICTURES = (
    lane_map, row_lengths, sm_timeline, occupancy_bars, counts_change, ladder_bars, roofline, crossover,
    crossover_sddmm,
)  # fmt: skip


def draw(folder, results, pictures):
    """Draws `pictures`, some of PICTURES, into `folder`, a Path, as name.png. Yields (name, None) for each.

    results: the folder of records. A picture whose record is missing is not drawn; in place of None comes the
    command that makes the record.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for picture in pictures:
        try:
            axis = picture(results)
        except FileNotFoundError as missing:
            yield picture.__name__, str(missing)
            continue
        save(axis.figure, folder / f"{picture.__name__}.png")
        plt.close(axis.figure)
        yield picture.__name__, None


def save(figure, path):
    """Writes a PNG of COLOURS, which is about half as long as one of all."""
    content = BytesIO()
    figure.savefig(content, dpi=DPI)
    Image.open(content).convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE).save(path, optimize=True)


def _ladder(results, only=None):
    """[(step, microseconds, its `Bounds`)] of the ladder on LARGE, or of some steps; bounds of a look-alike.

    Raises FileNotFoundError without the record, ValueError if it lacks a step.
    """
    found = {
        row.variant: row.time_us
        for row in records.load("ladder", FOLDER, results).rows
        if (row.op, row.matrix, row.n, row.l2) == ("spmm", LARGE, N, "warm")
    }
    a, steps = look_alike(LARGE), []
    b = np.zeros((a.shape[1], N), np.float32)
    for name, variant in LADDERS["spmm"]:
        if only is not None and name not in only:
            continue
        text = format_variant(variant)
        if text not in found:
            raise ValueError(f"record 'ladder' of {FOLDER} lacks {text} of {LARGE} with n={N}, L2 warm")
        problem = plan_spmm(a, b, variant, backend="emulator").problem
        steps.append((name, found[text], cost.bounds_of(a.topology, problem, variant, GPU)))
    return steps


def _short(path):
    """The path of a layer, without what all have."""
    return path.removesuffix(".smtx").replace("_fully_connected", "")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern.study.gallery", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="where the .png files go")
    parser.add_argument("--results", type=Path, default=records.RESULTS, help="the folder of records")
    options = parser.parse_args(arguments)
    missing = False
    for name, said in draw(options.folder, options.results, PICTURES):
        print(f"{name}: {said or options.folder / f'{name}.png'}")
        missing |= said is not None
    return int(missing)


if __name__ == "__main__":
    sys.exit(main())
