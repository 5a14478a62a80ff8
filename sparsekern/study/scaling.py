"""How time grows with the problem: uniform random matrices, of which m, k and n are varied apart.

`python -m sparsekern.study.scaling [CSV]` prints a record that `bench --problems scaling --variants default`
made; without a file, the one on an H200.
"""

import sys

from rich.table import Table

from sparsekern.study.cases import Case, Uniform
from sparsekern.study.compare import FASTEST, report_command, rival_us
from sparsekern.study.cost import l1_bound_us
from sparsekern.study.gpus import GPUS
from sparsekern.study.records import RecordError
from sparsekern.variants import check_op

SPARSITIES = (0.8, 0.9, 0.95)
SIDE, WIDTH = 2048, 256  # of a matrix, and of its dense operands, where another size is varied
WIDTHS = (16, 64, 256, 1024, 4096)
SIDES = (128, 512, 8192)
TOGETHER = {  # (rows, columns, width): with those above, nonzeros * width from 10**6 to 10**10
    "spmm": ((512, 512, 64), (4096, 4096, 1024), (8192, 2048, 4096)),
    "sddmm": ((512, 512, 64), (8192, 2048, 4096)),
}
BAR = "spmm", Uniform(8192, 2048, 0.8).name, 4096  # op, matrix, n: what the library's TFLOP/s are quoted at


def problems(op):
    """The `Case` list of an operation: rows, columns and width of the matrix varied apart, then together.

    Raises TypeError for another operation.
    """
    check_op(op)
    sizes = [
        *((SIDE, SIDE, width) for width in WIDTHS),
        *((side, SIDE, WIDTH) for side in SIDES),
        *((SIDE, side, WIDTH) for side in SIDES),
        *TOGETHER[op],
    ]
    return [
        Case(op, Uniform(rows, columns, sparsity), width)
        for sparsity in SPARSITIES
        for rows, columns, width in sizes
    ]


def tflops_of(rows, op, matrix, width):
    """10**12 flops a second of the fastest variant at one problem, L2 warm. Raises RecordError without."""
    found = [row.tflops for row in rows if row.problem == (op, matrix, width, "warm")]
    if not found:
        raise RecordError(f"the record has no {op} of {matrix!r} at width {width}, L2 warm")
    return max(found)


def report(console, name, record):
    """Prints each problem, the smallest first: time, TFLOP/s, rivals, the bound of L1 as a share of time."""
    gpu = next((gpu for gpu in GPUS.values() if gpu.name in record.provenance.get("gpu", "")), None)
    for op, l2 in dict.fromkeys((row.op, row.l2) for row in record.rows):
        title = f"\n{op}, L2 {l2}: {name}"
        console.print(title, soft_wrap=True, style="bold", markup=False, highlight=False)
        table = Table(box=None, pad_edge=False)
        inner = "n" if op == "spmm" else "k"
        for column in ("matrix", inner, f"nnz * {inner}", "µs", "TFLOP/s", "of L1 bound"):
            table.add_column(column, justify="left" if column == "matrix" else "right")
        for column in ("cuSPARSE", "dense fp32", "fastest"):
            table.add_column(f"against {column}", justify="right")
        rows = [row for row in record.rows if (row.op, row.l2) == (op, l2)]
        for row in sorted(rows, key=lambda row: row.flops):
            share = f"{l1_bound_us(row, gpu) / row.time_us:.0%}" if gpu else "not known"
            rivals = (rival_us(row, rival) for rival in ("cusparse_us", "dense_fp32_us", FASTEST))
            table.add_row(
                row.matrix, str(row.width), f"{row.flops / 2:.1e}",
                f"{row.time_us:.2f}", f"{row.tflops:.2f}", share,
                *(f"{us / row.time_us:.2f}" if us else "" for us in rivals),
            )  # fmt: skip
        console.print(table)


def main(words=None):
    return report_command("scaling", report, __doc__, words)


if __name__ == "__main__":
    sys.exit(main())
