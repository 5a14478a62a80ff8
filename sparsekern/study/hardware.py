"""Counts of the emulator against the counters of a GPU.

`python -m sparsekern.study.hardware measure --dlmc DIR --out RAW` runs each case once under ncu, which needs
a GPU whose counters it may read; `compare RAW --dlmc DIR --out CSV` counts the same on the emulator. A case
is a step of a ladder on a matrix.
"""

import argparse
import csv
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

import numpy as np

from sparsekern.datasets import dlmc
from sparsekern.foreign import as_csr
from sparsekern.ladders import LADDERS
from sparsekern.ops import sddmm, spmm
from sparsekern.zoo import ZOO

WIDTH = 72  # columns of the dense operands: rows that are no multiple of 128 bytes, and a tile not whole
MATRICES = (  # two real layers, and two that were made to be uneven
    "rn50/extended_magnitude_pruning/0.8/bottleneck_2_block_group1_1_1.smtx",
    "transformer/magnitude_pruning/0.95/"
    "body_encoder_layer_5_self_attention_multihead_attention_output_transform_fully_connected.smtx",
    "one_giant_row",
    "misaligned_rows",
)
METRICS = {  # counter of ours: of ncu
    "global load instructions": "smsp__sass_inst_executed_op_global_ld.sum",
    "global load requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global load sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global store instructions": "smsp__sass_inst_executed_op_global_st.sum",
    "global store requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global store sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "shared load instructions": "smsp__sass_inst_executed_op_shared_ld.sum",
    "shared load wavefronts": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared store instructions": "smsp__sass_inst_executed_op_shared_st.sum",
    "shared store wavefronts": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}
PER_OPCODE = "sass__inst_executed_per_opcode"
OPCODES = {"shuffles": "SHFL", "multiply-adds": "FFMA"}


def cases(tree):
    """Yields (op, name of a matrix, matrix, step, variant)."""
    layers = {layer.name: layer for layer in dlmc(tree)}
    for name in MATRICES:
        matrix = ZOO[name].make() if name in ZOO else layers[name].load()
        for op, ladder in LADDERS.items():
            for step, variant in ladder:
                yield op, name, as_csr(matrix), step, variant


def launch(op, a, variant):
    """Runs a case on the GPU, once."""
    rng, (m, k) = np.random.default_rng(1), a.shape
    dense = [rng.standard_normal((rows, WIDTH), np.float32) for rows in ((k,) if op == "spmm" else (m, k))]
    spmm(a, *dense, variant, backend="cuda") if op == "spmm" else sddmm(a, *dense, variant, backend="cuda")


def run(tree):
    """Launches every case once, for ncu to look at."""
    for op, _, a, _, variant in cases(tree):
        launch(op, a, variant)


def measure(tree, out):
    """Runs `run` under ncu, and writes op, matrix, variant, counter, value to the file `out`."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise FileNotFoundError("ncu is not on PATH; it comes with the CUDA toolkit, as Nsight Compute")
    command = [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
        "--kernel-name", "regex:spmm|sddmm", "--metrics", ",".join([*METRICS.values(), PER_OPCODE]),
        "--print-metric-instances", "values",
        sys.executable, "-m", "sparsekern.study.hardware", "run", "--dlmc", str(tree),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    launches = list(csv.DictReader(StringIO("\n".join(lines))))[1:]  # the first row has the units
    wanted = list(cases(tree))
    if done.returncode or len(launches) != len(wanted):
        raise RuntimeError(
            f"ncu returned {done.returncode} and counted {len(launches)} launches of {len(wanted)}:\n"
            + (done.stderr or done.stdout)[-2000:]
        )
    with open(out, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["op", "matrix", "variant", "counter", "hardware"])
        for (op, name, _, step, _), launch in zip(wanted, launches, strict=True):
            for counter, metric in METRICS.items():
                table.writerow([op, name, step, counter, launch[metric]])
            table.writerow([op, name, step, PER_OPCODE, launch[PER_OPCODE]])


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern.study.hardware", description=__doc__)
    parser.add_argument("what", choices=("run", "measure"))
    parser.add_argument("--dlmc", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(words)
    if arguments.what == "run":
        run(arguments.dlmc)
    else:
        measure(arguments.dlmc, arguments.out)


if __name__ == "__main__":
    main()
