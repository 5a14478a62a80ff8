"""Statistics of row lengths, kept in a file: problems can be told apart without their matrices.

python -m sparsekern.study.row_lengths [--dlmc DIR] --out data/row_lengths.csv
"""

import argparse
import csv
import io
import sys
from functools import cache
from pathlib import Path

from sparsekern.datasets import dlmc
from sparsekern.problem import TILES, Layout, RowStats, SddmmProblem, SpmmProblem
from sparsekern.study.cases import Uniform
from sparsekern.study.records import RecordError
from sparsekern.textfiles import write_text

PATH = Path(__file__).resolve().parents[2] / "data" / "row_lengths.csv"
STRIPS = tuple(f"strips_{tile}" for tile in TILES)
COLUMNS = ("matrix", "rows", "longest", "mean", "cov", "empty", *STRIPS)


def read_row_lengths(path=PATH):
    """{name of a DLMC matrix: its `RowStats`}, from a file that this module made."""
    with open(path, encoding="utf-8", newline="") as file:
        return {row["matrix"]: _stats(row) for row in csv.DictReader(file)}


def _stats(row):
    strips = tuple(int(row[name]) for name in STRIPS)
    return RowStats(int(row["longest"]), float(row["mean"]), float(row["cov"]), int(row["empty"]), strips)


def row_lengths(layers):
    """The text of such a file, for `Layer` objects of a DLMC tree."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(COLUMNS)
    for layer in layers:
        lengths = layer.load().topology.row_lengths
        s = RowStats.of(lengths)
        lines.writerow((layer.name, len(lengths), s.longest, s.mean, s.cov, s.empty, *s.strips))
    return text.getvalue()


def problem_of(row, stats):
    """The `Problem` of a `records.Row` whose matrix has the `RowStats` stats: operands are contiguous."""
    sizes = dict(m=row.m, k=row.k, n=row.n, nnz=row.nnz, rows=stats)
    if row.op == "spmm":
        return SpmmProblem(**sizes, b=_contiguous(row.k, row.n), c=_contiguous(row.m, row.n))
    return SddmmProblem(**sizes, lhs=_contiguous(row.m, row.k), rhs=_contiguous(row.n, row.k))


def problems_of(rows, known):
    """The `Problem` of each of `rows`. known: {matrix: `RowStats`}; generated ones are made anew, by name.

    Raises RecordError for another matrix.
    """

    @cache
    def stats(matrix):
        try:
            if matrix in known:
                return known[matrix]
            return RowStats.of(Uniform.named(matrix).load().topology.row_lengths)
        except ValueError:
            raise RecordError(
                f"the row lengths of {matrix} are not known: python -m sparsekern.study.row_lengths writes "
                "those of a DLMC tree to a file"
            ) from None

    return [problem_of(row, stats(row.matrix)) for row in rows]


def _contiguous(rows, columns):
    return Layout(ld=columns, reach=rows * columns)


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern.study.row_lengths", description=__doc__)
    parser.add_argument("--dlmc", metavar="DIR", help="a DLMC tree; default: SPARSEKERN_DLMC")
    parser.add_argument(
        "--out", type=Path, default=PATH, metavar="CSV", help="default: the one kept in data/"
    )
    arguments = parser.parse_args(words)
    try:
        write_text(arguments.out, row_lengths(dlmc(arguments.dlmc)))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
