"""Command line: python -m sparsekern demo | doctor."""

import argparse
import os
import sys
import time

from sparsekern import doctor

LAYER = (
    "transformer/magnitude_pruning/0.95/"
    "body_encoder_layer_5_self_attention_multihead_attention_output_transform_fully_connected.smtx"
)
ALLOWED_ERROR = 1e-6


def demo_layer(root=None):
    """(name, Csr) of the layer that the demo runs on: real if there is a DLMC tree, else a look-alike."""
    from sparsekern.datasets import ROOT_VARIABLE, dlmc, look_alike

    if root is None and not os.environ.get(ROOT_VARIABLE):
        return f"look-alike of {LAYER}", look_alike(LAYER)
    layers = dlmc(root)
    layer = next((layer for layer in layers if layer.name == LAYER), layers[0])
    return layer.name, layer.load()


def demo(arguments):
    """Runs the ladders of SpMM and SDDMM; 0 if every step's error is within `ALLOWED_ERROR`."""
    import numpy as np  # here, not above: the doctor must run where these are missing
    from rich.console import Console

    from sparsekern.machine.backends import device_backend

    console, where = Console(), device_backend()
    name, a = demo_layer(arguments.dlmc)
    (m, k), n = a.shape, arguments.n
    console.print(f"{name}\n{m} x {k}, {1 - a.nnz / (m * k):.1%} sparse, on {_place(where)}", soft_wrap=True)
    rng = np.random.default_rng(1)
    lhs, rhs, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, n), (k, n), (k, n)))
    console.print(f"\nSpMM: C = A @ B with A the layer and B of {n} columns")
    agree = _climb(console, where, "spmm", a, b)
    console.print(f"\nSDDMM: products of {n} numbers, at the nonzeros of the layer")
    return int(not (_climb(console, where, "sddmm", a, lhs, rhs) and agree))


def _climb(console, where, op, *operands):
    """Prints a line for each step of the ladder of `op`; whether all agree."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from sparsekern.ladders import LADDERS
    from sparsekern.study.ladder import climb, table

    started, rungs = time.monotonic(), []
    progress = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console)
    with progress:
        task = progress.add_task("", total=len(LADDERS[op]))
        steps = climb(op, *operands, backend=where)
        for step, _ in LADDERS[op]:
            progress.update(task, description=step)
            rungs.append(next(steps))
            progress.advance(task)
    console.print(table(rungs))
    worst = max(rung.error for rung in rungs)
    agree = bool(worst <= ALLOWED_ERROR)
    console.print(
        f"{len(rungs)} steps, {'all agree' if agree else 'DISAGREE'} with float64: largest error {worst:.1e} "
        f"(at most {ALLOWED_ERROR:.0e}); {time.monotonic() - started:.0f} s"
    )
    return agree


def _place(where):
    if where == "emulator":
        return "the emulator: counts are lane by lane, time needs a GPU"
    from sparsekern.study.cost import Gpu

    return Gpu.current().name


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo_parser = commands.add_parser("demo", help="run both ladders on one layer")
    demo_parser.add_argument("--dlmc", metavar="DIR", help="a DLMC tree; default: SPARSEKERN_DLMC, if set")
    demo_parser.add_argument(
        "--n", type=_size, default=64, help="columns of B, lhs and rhs, a multiple of 4 (default 64)"
    )
    commands.add_parser("doctor", help="what this machine offers, what is missing, and what mends it")
    arguments = parser.parse_args(words)
    if arguments.command == "doctor":
        return doctor.main()
    try:
        return demo(arguments)
    except (FileNotFoundError, ValueError) as error:  # of the DLMC tree
        print(error, file=sys.stderr)
        return 2


def _size(text):
    if not (text.isascii() and text.isdigit() and int(text) % 4 == 0 and 0 < int(text) <= 2**16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a multiple of 4, the widest vector, up to 65536")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
