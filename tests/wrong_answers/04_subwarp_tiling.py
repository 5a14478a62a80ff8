"""Answers to the exercises of 04_subwarp_tiling that are wrong, and how the check says why."""

WRONG = [
    ("check_1(sk.SpmmVariant(vector=4, rows_per_block=8))", "not yet: cost 7"),
    ("check_1(replace(answer_1, bundle=False))", "not yet: cost 2"),
    ("check_1(replace(answer_1, vector=4, subwarp=4))", "not yet: cost 2"),
    ("check_1(sk.SpmmVariant(vector=4, subwarp=2, rows_per_block=16))", "not yet: "),
    ("check_2(make_hanging)", "not yet: deadlock: syncwarp"),
    ("check_2(make_leaking)", "not yet: 91% of C is NaN"),
    ("check_2(make_generous)", "not yet: lanes load B"),
]
