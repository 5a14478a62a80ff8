"""Two variants side by side: what a toggle changes in a kernel's text, PTX or machine code."""

import html
import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparsekern.factories import FACTORIES
from sparsekern.problem import Types
from sparsekern.study.codegen import ARCH, ptx, sass
from sparsekern.study.sass import classes, instructions, widths
from sparsekern.study.source import source

CONTEXT = 2  # equal lines shown around each difference
COLOURS = ("red", "green")  # of lines that one side has, left and right, in a terminal
SHADES = ("#fbd5d5", "#d3f0d3")  # and in a notebook


@dataclass(frozen=True)
class Diff:
    """Lines side by side. `print` it, or let a notebook show it: both colour what only one side has."""

    titles: tuple  # of left and right
    rows: tuple  # (left, right): lines, None beside one that stands alone; (None, None): lines left out
    summary: str

    @property
    def only_left(self):
        return [left for left, right in self.rows if left != right and left is not None]

    @property
    def only_right(self):
        return [right for left, right in self.rows if left != right and right is not None]

    def __rich__(self):
        table = Table(box=None, pad_edge=False, caption=self.summary, caption_justify="left")
        for title in self.titles:
            table.add_column(title, ratio=1, overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(*cell) for cell in _cells(row, COLOURS)))
        return table

    def __str__(self):
        console = Console(force_jupyter=False)
        with console.capture() as written:
            console.print(self)
        return written.get().rstrip("\n")

    def _repr_html_(self):
        style = "text-align:left;font-family:monospace;white-space:pre-wrap;background:"
        head = "".join(f"<th style='{style}none'>{html.escape(title)}</th>" for title in self.titles)
        rows = (
            "".join(f"<td style='{style}{shade}'>{html.escape(line)}</td>" for line, shade in cells)
            for cells in (_cells(row, SHADES, "none") for row in self.rows)
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><tr>{head}</tr>{body}</table><p>{html.escape(self.summary)}</p>"


def diff(left, right, make=None, what="sass", arch=ARCH, types=Types()):
    """The `Diff` of two variants of one operation.

    what: "sass", "ptx", or "source", the kernel's text with its toggles resolved. make: a kernel factory;
    None is the library's. Lines of machine code count as equal when they differ in nothing but addresses,
    numbers of registers, predicates, barriers and labels, or `.reuse` flags; of PTX, in numbers of registers,
    labels and shared arrays, or the kernel's name. They are shown without those, PTX also without comments.

    Raises ValueError for another `what` or variants of two operations, and what `sass`, `ptx` or `source`
    raise.
    """
    if what not in READERS:
        raise ValueError(f"what is {what!r}; it must be one of {', '.join(READERS)}")
    if left.op != right.op:
        raise ValueError(
            f"left is a variant of {left.op}, right of {right.op}; both must be of one operation"
        )
    make = FACTORIES[left.op] if make is None else make
    texts = [READERS[what](make, variant, arch, types) for variant in (left, right)]
    lines = [LINES[what](text) for text in texts]
    blocks = SequenceMatcher(None, *lines, autojunk=False).get_grouped_opcodes(CONTEXT)
    rows = _rows(blocks, *lines)
    counts = [{**classes(text), **widths(text)} if what == "sass" else {} for text in texts]
    found = Diff(_titles(left, right), tuple(rows), "")
    return replace(found, summary=_summary(len(found.only_left), len(found.only_right), *counts))


def _rows(groups, left, right):
    rows = []
    for group in groups:
        if group[0][1] or group[0][3]:
            rows.append((None, None))
        for _, start, stop, other_start, other_stop in group:
            rows += zip_longest(left[start:stop], right[other_start:other_stop])
    return rows


def _cells(row, styles, plain=""):
    """(text, style) of the two sides of a row."""
    if row == (None, None):
        return ("⋮", plain), ("⋮", plain)
    left, right = row
    return tuple(
        ("", plain) if line is None else (line, style if left != right else plain)
        for line, style in zip(row, styles, strict=True)
    )


def _summary(lost, new, before, after):
    """How many lines differ, and the counts that do, in words."""
    names = dict.fromkeys([*before, *after])
    pairs = [(name, before.get(name, 0), after.get(name, 0)) for name in names]
    changed = ", ".join(f"{name} {old} → {new}" for name, old, new in pairs if old != new)
    lines = f"{lost} lines only left, {new} only right" if lost or new else "no difference"
    return f"{lines}; {changed}" if changed else lines


def _titles(left, right):
    """The toggles in which they differ."""
    names = [name for name in left.__dataclass_fields__ if getattr(left, name) != getattr(right, name)]
    titles = [", ".join(f"{name}={getattr(variant, name)}" for name in names) for variant in (left, right)]
    return tuple(title or str(left) for title in titles)


def sass_lines(text):
    """Instructions, alike if only addresses, numbers or `.reuse` tell them apart."""
    guards = (f"@{i.guard} {i.text}" if i.guard else i.text for i in instructions(text))
    plain = (re.sub(r"`\(\.L_\S+?\)", "label", line.replace(".reuse", "")) for line in guards)
    return [re.sub(r"\b(U?[RP]|B)\d+\b", r"\1", line) for line in plain]


def ptx_lines(text):
    """Statements, alike if only numbers of registers, labels and shared arrays tell them apart."""
    plain = (line.split("//")[0].strip() for line in text.splitlines())
    named = (re.sub(r"\b_Z\w+?(_param_\d+)?\b", r"kernel\1", line) for line in plain if line)
    labels = (re.sub(r"\$L_+\w+", "$label", line) for line in named)
    return [re.sub(r"(%[a-z]+|_cudapy_smem_)(?:\d+\b|<\d+>)", r"\1", line) for line in labels]


READERS = {
    "sass": sass,
    "ptx": ptx,
    "source": lambda make, variant, arch, types: source(make, variant, types),
}
LINES = {"sass": sass_lines, "ptx": ptx_lines, "source": str.splitlines}
