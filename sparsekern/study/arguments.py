"""Options of the commands that study kernels. Imports nothing that may be missing, for the doctor's sake."""

import argparse

from sparsekern.study.gpus import GPUS

WIDTH = "columns of the dense operands: n of SpMM, the inner dimension k of SDDMM"
OPS = "spmm", "sddmm"
CODE = "source", "ptx", "sass"


def add_op(sub):
    sub.add_argument("--op", choices=OPS, default="spmm")


def add_show(sub):
    """What a variant does to a matrix."""
    help = "or the number of a step of the ladder (default: its last)"
    sub.add_argument("--variant", metavar="TOGGLE=VALUE,...", help=help)
    sub.add_argument("--n", type=size, default=64, help=f"{WIDTH} (default: 64)")
    sub.add_argument("--gpu", choices=tuple(GPUS), default="h200", help="default: h200")
    sub.add_argument("--counts", action="store_true", help="instructions, sectors, bank conflicts, ...")
    sub.add_argument("--bound", action="store_true", help="the time that each resource needs at least")
    for what in CODE:
        sub.add_argument(f"--{what}", action="store_true", help=f"the kernel's {what}")
    help = "a variant to compare with: what --variant changes in its counts and code (default: in its source)"
    sub.add_argument("--diff", metavar="TOGGLE=VALUE,...", help=help)


def add_bench(sub):
    """What to time, on which layers, and where to write it."""
    help = "layers of a DLMC tree (default), or generated matrices of sizes over four decades"
    sub.add_argument("--problems", choices=("dlmc", "scaling"), default="dlmc", help=help)
    sub.add_argument("--dlmc", metavar="DIR", help="a DLMC tree; default: SPARSEKERN_DLMC")
    help = "only layers whose name contains this; may be repeated (default: all)"
    sub.add_argument("--matrix", metavar="TEXT", action="append", default=[], help=help)
    help = f"{WIDTH}; or those of the paper (default): by layer for SpMM, 64, 256 and 1024 for SDDMM"
    sub.add_argument("--n", type=_widths, default="paper", metavar="N,N|paper", help=help)
    help = (
        "each step of the ladder (default), the one that the library chooses, all from which it does, its "
        "choice and the same with each of its toggles off, or a file with one a line"
    )
    values = "ladder|default|candidates|ablation|FILE"
    sub.add_argument("--variants", default="ladder", metavar=values, help=help)
    help = "a record to write, or to go on with where it was interrupted (default: print only)"
    sub.add_argument("--out", metavar="CSV", help=help)
    sub.add_argument(
        "--l2", choices=("warm", "flushed", "both"), default="warm", help="the cache before each launch"
    )
    sub.add_argument("--no-baselines", action="store_true", help="leave cuSPARSE and cuBLAS out")
    help = "fill sputnik_us from a CSV file with columns op, dtype, matrix, m, k, n and sputnik_us"
    sub.add_argument("--sputnik", metavar="CSV", help=help)
    help = "stop after this many, between two timings, with exit status 75 if something is left to time"
    sub.add_argument("--minutes", type=minutes, metavar="M", help=help)
    help = "time each this many times, and print how far the medians spread; records nothing"
    sub.add_argument("--repeat", type=size, metavar="TIMES", help=help)
    help = "instead of timing: one record against its rivals, or two, the second against the first"
    sub.add_argument("--compare", nargs="+", metavar="CSV", help=help)
    sub.add_argument("--all", action="store_true", help="of --compare: name every problem, not the extremes")


def size(text):
    """A number from the command line."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 2**16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 65536")
    return int(text)


def minutes(text):
    """A time from the command line."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes, such as 9 or 0.5")
    return number


def multiple_of_4(text):
    if size(text) % 4:
        raise argparse.ArgumentTypeError(f"{text} is not a multiple of 4, the widest vector")
    return int(text)


def _widths(text):
    if text == "paper":
        return text
    return tuple(dict.fromkeys(size(part.strip()) for part in text.split(",")))
