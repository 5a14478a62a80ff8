"""Command line: python -m sparsekern demo | check | show | bench | doctor."""

import argparse
import os
import sys
import time

from sparsekern import doctor
from sparsekern.study.arguments import CODE, WIDTH, add_bench, add_op, add_show, multiple_of_4, size

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
    from sparsekern.study.gpus import Gpu

    return Gpu.current().name


def check(arguments):
    """Puts variants of the library's kernel to the test; 0 if all pass."""
    from sparsekern.ladders import LADDERS
    from sparsekern.machine.backends import device_backend
    from sparsekern.study.check import check as run
    from sparsekern.study.show import variant_of

    if arguments.backend == "cuda" and device_backend() != "cuda":
        raise ValueError("backend is cuda, but no CUDA GPU answers: see python -m sparsekern doctor")
    matrices = {name: _matrix(name) for name in arguments.matrix}
    options = dict(op=arguments.op, matrices=matrices or None, n=arguments.n, backend=arguments.backend)
    if arguments.variant == "ladder":
        variants = [variant for _, variant in LADDERS[arguments.op]]
    else:
        variants = [variant_of(arguments.op, arguments.variant)]
    return int(not all([run(variant=variant, **options) for variant in variants]))


def show(arguments):
    """Prints what a variant does; 0."""
    from sparsekern.study.show import show, variant_of

    name, a = demo_layer() if arguments.matrix is None else (arguments.matrix, _matrix(arguments.matrix))
    options = vars(arguments)
    code = [what for what in CODE if options[what]]
    if arguments.diff is not None and not (code or arguments.counts):
        code = ["source"]
    show(
        arguments.op, name, a, arguments.n, variant_of(arguments.op, arguments.variant), arguments.gpu,
        code=code, counts=arguments.counts, bound=arguments.bound,
        other=None if arguments.diff is None else variant_of(arguments.op, arguments.diff),
    )  # fmt: skip
    return 0


def bench(arguments):
    """Times variants, or compares records; what `bench_command` returns."""
    from sparsekern.study.bench_command import bench as run

    return run(arguments)


def _matrix(name):
    """The specimen of the zoo of that name, or the matrix of that file."""
    from sparsekern.datasets import read_matrix_market, read_smtx
    from sparsekern.zoo import ZOO

    if name in ZOO:
        return ZOO[name].make()
    if name.endswith(".smtx"):
        return read_smtx(name)
    if name.endswith((".mtx", ".mtx.gz")):
        return read_matrix_market(name)
    raise ValueError(f"matrix is {name!r}; it must be a .smtx or .mtx file, or one of {', '.join(ZOO)}")


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    sub = commands.add_parser("demo", help="run both ladders on one layer")
    sub.add_argument("--dlmc", metavar="DIR", help="a DLMC tree; default: SPARSEKERN_DLMC, if set")
    sub.add_argument("--n", type=multiple_of_4, default=64, help=f"{WIDTH}; a multiple of 4 (default: 64)")
    sub.set_defaults(run=demo)
    sub = commands.add_parser("check", help="run a kernel over hard matrices, watched and against float64")
    add_op(sub)
    help = "or the number of a step of the ladder, or ladder, for each of them (default: the last step)"
    sub.add_argument("--variant", metavar="TOGGLE=VALUE,...", help=help)
    help = "a .smtx or .mtx file, or a name of the zoo; may be repeated (default: the whole zoo)"
    sub.add_argument("--matrix", metavar="FILE", action="append", default=[], help=help)
    sub.add_argument("--n", type=size, help=f"{WIDTH} (default: what fills no tile)")
    help = "cuda: without the watch; for compute-sanitizer (default: emulator)"
    sub.add_argument("--backend", choices=("emulator", "cuda"), default="emulator", help=help)
    sub.set_defaults(run=check)
    sub = commands.add_parser(
        "show", help="what a variant does: counts, code, registers, bounds; needs no GPU"
    )
    help = "a .smtx or .mtx file, or a name of the zoo (default: the layer of the demo)"
    sub.add_argument("--matrix", metavar="FILE", help=help)
    add_op(sub)
    add_show(sub)
    sub.set_defaults(run=show)
    sub = commands.add_parser("bench", help="time variants and libraries on a GPU, or compare records")
    add_op(sub)
    add_bench(sub)
    sub.set_defaults(run=bench)
    sub = commands.add_parser("doctor", help="what this machine offers, what is missing, and what mends it")
    sub.set_defaults(run=lambda arguments: doctor.main())
    arguments = parser.parse_args(words)
    try:
        return arguments.run(arguments)
    except (OSError, ValueError, RuntimeError) as error:  # of a file, a tree, a variant, a tool
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
