"""Counts of the emulator against the counters of a GPU.

`python -m sparsekern.study.hardware measure --out RAW` runs each case once under ncu, which needs a GPU whose
counters it may read; `compare --raw RAW --out CSV` counts the same on the emulator. A case is a step of a
ladder on a matrix.
"""

import argparse
import csv
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from io import StringIO

import numpy as np

from sparsekern.datasets import layers_named
from sparsekern.foreign import as_csr
from sparsekern.ladders import LADDERS
from sparsekern.ops import sddmm, spmm
from sparsekern.study.counters import count
from sparsekern.textfiles import parsing, read_text, write_text
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
    "multiply-adds by lanes": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
}
PER_OPCODE = "sass__inst_executed_per_opcode"
OPCODES = {"shuffles": "SHFL", "multiply-adds": "FFMA"}
RAW_COLUMNS = ["op", "matrix", "variant", "counter", "hardware"]
COLUMNS = "op", "matrix", "variant", "counter", "emulator", "emulator_max", "hardware", "explained"
# Why hardware may be out of the range. A rule attributes it; tests/test_hardware.py shows that it exists.
UNROLLED = "the compiler unrolls the loop over nonzeros: lanes with rows of other lengths are in other copies"
OTHER_TRIPS = "lanes that drift apart meet again in other trips, and then read other addresses together"
CLOSE = {UNROLLED: 0.03, OTHER_TRIPS: 0.08}  # of a count: how far out is believed


def cases(tree):
    """Yields (op, name of a matrix, matrix, step, variant)."""
    layers = layers_named([name for name in MATRICES if name not in ZOO], tree)
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
    """Runs `run` under ncu, and writes op, matrix, variant, counter, hardware to the file `out`.

    Raises FileNotFoundError without ncu, RuntimeError with what ncu says if it cannot count.
    """
    from sparsekern.study.provenance import origin  # needs a GPU

    ncu = shutil.which("ncu")
    if ncu is None:
        raise FileNotFoundError("ncu is not on PATH; it comes with the CUDA toolkit, as Nsight Compute")
    command = [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
        "--kernel-name", "regex:spmm|sddmm", "--metrics", ",".join([*METRICS.values(), PER_OPCODE]),
        "--print-metric-instances", "details",
        sys.executable, "-m", "sparsekern.study.hardware", "run", *(("--dlmc", tree) if tree else ()),
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
    file = StringIO()
    file.write("".join(f"# {key}: {text}\n" for key, text in origin(ncu=_version(ncu)).items()))
    table = csv.writer(file, lineterminator="\n")
    table.writerow(RAW_COLUMNS)
    for (op, name, _, step, _), launch in zip(wanted, launches, strict=True):
        for counter, metric in METRICS.items():
            table.writerow([op, name, step, counter, _number(launch[metric])])
        for counter, opcode in OPCODES.items():
            table.writerow([op, name, step, counter, _instances(launch[PER_OPCODE]).get(opcode, 0)])
    write_text(out, file.getvalue())


def _version(ncu):
    text = subprocess.run([ncu, "--version"], capture_output=True, text=True).stdout
    return re.search(r"Version ([\d.]+)", text)[1]


def _number(text):
    return int(float(text.replace(",", "")))


def _instances(text):
    """{opcode: count} of "total (FFMA: 1,024; SHFL: 32)". Raises ValueError for text of another form."""
    pairs = re.findall(r"(\w+): ([\d,]+)", text)
    if not pairs:
        raise ValueError(f"ncu names no opcode in {text[:200]!r}")
    return {opcode: _number(count) for opcode, count in pairs}


def compare(raw, tree, out):
    """Counts the cases of `raw`, written by `measure`, on the emulator, and writes both to the file `out`.

    Raises ValueError for another file.
    """
    text = read_text(raw, "file of measure")
    if not text.endswith("\n"):
        raise ValueError(f"{raw} ends in the middle of a line: the command that made it was cut off")
    text = text.splitlines()
    header = [line for line in text if line.startswith("#")]
    measured, rows = defaultdict(dict), csv.DictReader(line for line in text if not line.startswith("#"))
    if rows.fieldnames != RAW_COLUMNS:
        raise ValueError(f"{raw} has columns {rows.fieldnames}; they must be {','.join(RAW_COLUMNS)}")
    with parsing(raw):
        rows = list(rows)
    for row in rows:
        if row["counter"] not in {**METRICS, **OPCODES}:
            raise ValueError(f"{raw} has counter {row['counter']!r}, which is none of measure's")
        if not (row["hardware"] or "").isdecimal():
            raise ValueError(f"{raw} has {row['hardware']!r} for hardware; it must be a whole number")
        measured[row["op"], row["matrix"], row["variant"]][row["counter"]] = int(row["hardware"])
    todo = [case for case in cases(tree) if (case[0], case[1], case[3]) in measured]
    unknown = set(measured) - {(op, name, step) for op, name, _, step, _ in todo}
    if unknown:
        op, name, step = min(unknown)
        raise ValueError(f"{raw} has {step} of {op} on {name}; measure runs no such step or matrix")
    file = StringIO()
    file.write("".join(f"{line}\n" for line in header))
    file.write(f"# columns of the dense operands: {WIDTH}\n")
    table = csv.writer(file, lineterminator="\n")
    table.writerow(COLUMNS)
    with ProcessPoolExecutor() as pool:
        for (op, name, _, step, variant), counts in zip(todo, pool.map(_counts, todo), strict=True):
            for counter, hardware in measured[op, name, step].items():
                low, high = counts[counter]
                reason = explain(counter, low, high, hardware, variant)
                table.writerow([op, name, step, counter, low, high, hardware, reason])
    write_text(out, file.getvalue())


def _counts(case):
    op, _, a, _, variant = case
    return count(op, a, WIDTH, variant).counts


def explain(counter, low, high, hardware, variant):
    """Why hardware counts otherwise than the emulator; "" if it does not, or if that is not known."""
    if low <= hardware <= high:
        return ""
    reason = ""
    if counter.endswith(("sectors", "wavefronts")):
        reason = OTHER_TRIPS
    elif hardware > high and not getattr(variant, "unroll_residue", True):
        reason = UNROLLED
    close = CLOSE.get(reason, 0)
    return reason if low * (1 - close) <= hardware <= high * (1 + close) else ""


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern.study.hardware", description=__doc__)
    parser.add_argument("what", choices=("run", "measure", "compare"))
    parser.add_argument("--dlmc", metavar="DIR", help="a DLMC tree; default: SPARSEKERN_DLMC")
    parser.add_argument("--raw", metavar="CSV", help="of compare: what measure wrote")
    parser.add_argument("--out", metavar="CSV", help="of measure and compare: what to write")
    arguments = parser.parse_args(words)
    for option in {"run": (), "measure": ("out",), "compare": ("raw", "out")}[arguments.what]:
        if getattr(arguments, option) is None:
            parser.error(f"{arguments.what} needs --{option}")
    try:
        if arguments.what == "run":
            run(arguments.dlmc)
        elif arguments.what == "measure":
            measure(arguments.dlmc, arguments.out)
        else:
            compare(arguments.raw, arguments.dlmc, arguments.out)
    except (OSError, ValueError, RuntimeError) as error:  # of a file, the tree; no GPU, no ncu
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
