"""Answers that look like ones: what to run after the solution, and what the check says of it."""

from sparsekern.study.notebooks import code, source

NAME = "make_wider"
(WIDER,) = (cell for cell in code(source("solutions/00_start_here")) if f"def {NAME}" in cell)


def edited(old, new):
    """The solution with one mistake."""
    assert WIDER.count(old) == 1
    return f"{WIDER.replace(old, new)}\n\ncheck_2({NAME})"


WRONG = [
    ("check_1(sk.SpmmVariant(vector=4, subwarp=8, rows_per_block=4))", "50% of the multiply-adds are idle"),
    ("check_1(sk.SpmmVariant(vector=4, subwarp=4, rows_per_block=8))", "cost 3.31"),
    ("check_2(make_relu)", "C is wrong, and 50% of it never written"),
    (edited("max(acc[v], float32(0))", "acc[v]"), "C is wrong, and 0% of it"),
    (edited("STRIDE = SUBWARP * VECTOR", "STRIDE = SUBWARP * VECTOR + 1"), "misaligned"),
    (edited("lanes.axpy(value, x", "lanes.axpy(values[p] if i else value, x"), "cost 24.0"),
]
