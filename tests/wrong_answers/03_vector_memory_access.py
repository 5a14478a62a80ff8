"""Answers that look like ones: what to run after the solution, and what the check says of it."""

from sparsekern.study.notebooks import code, source

NAME = "make_by_vectors"
(BY_VECTORS,) = (cell for cell in code(source("solutions/03_vector_memory_access")) if f"def {NAME}" in cell)


def edited(old, new):
    """The solution with one mistake."""
    assert BY_VECTORS.count(old) == 1
    return f"{BY_VECTORS.replace(old, new)}\n\ncheck_2({NAME})"


WRONG = [
    ("check_1(sk.SpmmVariant(vector=4, subwarp=16, rows_per_block=4))", "needs ldb"),
    ("check_1(sk.SpmmVariant(vector=2, subwarp=8, items=4, rows_per_block=4))", "8 warps"),
    ("check_1(sk.SpmmVariant(vector=2, subwarp=32, rows_per_block=4))", "cost 5.31"),
    ("check_2(make_side_by_side)", "cost 52.0"),
    (edited("column + VECTOR <= n", "column < n"), "beside the result"),
    (edited("load(B, start, VECTOR)", "load(B, start - start % 8, VECTOR)"), "C is wrong"),
    (edited("lanes.store(C, at + v", "v or lanes.store(C, at + v"), "never written"),
]
