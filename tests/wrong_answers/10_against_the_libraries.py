"""Answers that the checks of this chapter must refuse, and what they should say."""

WRONG = [
    (
        "check_1(lambda points: max((s for s, ours, dense in points if dense < ours), default=None))",
        "points, goal",
    ),
    ("check_1(lambda points: points[0][0])", "dense is faster nowhere"),
    ("check_1(lambda points: 'about 70%')", "is no sparsity"),
    ("check_1(lambda points: None)", "is no sparsity"),
    ("check_2(dict(sk.LADDERS['spmm'])['bin=True'])", "not yet: cost"),
    ("check_2(max(variants_2, key=lambda v: bounds('spmm', layer, N_2, v).predicted_us))", "not yet: cost"),
    ("check_2(sk.SpmmVariant(vector=2, subwarp=8, rows_per_block=4, items=2))", "the record has no time"),
    ("check_2('vector=4')", "is no SpmmVariant"),
]
