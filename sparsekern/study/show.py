"""python -m sparsekern show: what a variant does to a matrix, without a GPU."""

import re
import sys

from rich.console import Console
from rich.syntax import Syntax

from sparsekern.factories import FACTORIES
from sparsekern.ladders import LADDERS
from sparsekern.naming import format_variant, parse_variant
from sparsekern.study.codegen import ptx, resources, sass
from sparsekern.study.cost import bounds
from sparsekern.study.counters import count
from sparsekern.study.diff import diff
from sparsekern.study.gpus import GPUS
from sparsekern.study.occupancy import occupancy
from sparsekern.study.source import source
from sparsekern.toggles import VariantError
from sparsekern.variants import check_op

PAGE = 110  # columns of what goes to a file


def variant_of(op, text):
    """The variant that `text` names: a ladder's step by number, or toggle=value,...; None is the last step.

    Raises VariantError for a number that is no step, and what `parse_variant` raises.
    """
    check_op(op)
    ladder = LADDERS[op]
    if text is None:
        return ladder[-1][1]
    if not (text.isascii() and text.strip().isdigit()):
        return parse_variant(op, text)
    if int(text) >= len(ladder):
        raise VariantError(f"variant is {text}; the ladder of {op} has steps 0 to {len(ladder) - 1}")
    return ladder[int(text)][1]


def show(op, name, a, n, variant, gpu="h200", code=(), counts=False, bound=False, other=None):
    """Prints registers and occupancy of a variant, and what else is asked for.

    name, a: of a CSR matrix. n: columns of the dense operands, of SDDMM the inner dimension k. gpu: a key of
    `GPUS`. code: of "source", "ptx" and "sass". other: a variant to compare with: what `variant`
    changes in it, line by line and count by count.

    Raises TypeError for another operation, ValueError for another GPU.
    """
    check_op(op)
    if gpu not in GPUS:
        raise ValueError(f"gpu is {gpu!r}; it must be one of {', '.join(GPUS)}")
    console = Console(width=None if sys.stdout.isatty() else PAGE)
    make, gpu = FACTORIES[op], GPUS[gpu]
    width = f"{'n' if op == 'spmm' else 'k'} = {n}"
    console.print(f"{name}\n{op}, {format_variant(variant)}, {width}\n", soft_wrap=True, highlight=False)
    for each in (variant,) if other is None else (other, variant):
        if other is not None:
            console.print(format_variant(each), soft_wrap=True, highlight=False)
        _show_resources(console, make, each, gpu)
        if bound:
            console.print(bounds(op, a, n, each, gpu))
    if counts:
        mine = count(op, a, n, variant)
        console.print(mine if other is None else mine - count(op, a, n, other))
    for what in code:
        if other is not None:
            console.print(diff(other, variant, what=what, arch=gpu.arch))
        elif what == "source":
            console.print(Syntax(source(make, variant), "python", background_color="default"))
        else:
            text = ptx(make, variant, gpu.arch) if what == "ptx" else _code(sass(make, variant, gpu.arch))
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def _show_resources(console, make, variant, gpu):
    try:
        held = resources(make, variant, gpu.arch)
    except ValueError as error:
        console.print(f"no registers and occupancy: {error}\n", soft_wrap=True, highlight=False)
        return
    spilled = held.spill_stores + held.spill_loads
    fit = occupancy(held, variant.threads, gpu)
    console.print(
        f"{held.registers} registers a thread, {held.shared_bytes:,} bytes of shared memory a block of "
        f"{variant.threads} threads, {spilled} bytes spilled\n{gpu.name}: an SM holds {fit}\n",
        soft_wrap=True, highlight=False,
    )  # fmt: skip


def _code(text):
    """The labels and instructions of machine code, without its directives."""
    return "\n".join(line for line in text.splitlines() if re.match(r"\s*/\*|\.L", line))
