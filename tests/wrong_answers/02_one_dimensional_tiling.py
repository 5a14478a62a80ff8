"""Answers to the exercises of 02_one_dimensional_tiling that are wrong, and how the check says why."""

WRONG = [
    ("check_1(lambda lengths, n, vector, tile_k: (0, 0, 0))", "not yet: cost 18, goal 0: loads of values"),
    (
        # strips of 32 columns, whatever the vector
        "check_1(lambda lengths, n, vector, tile_k: answer_1(lengths, n, 1, tile_k))",
        "not yet: cost 9, goal 0: loads of values with vector=2",
    ),
    (
        # empty rows taken for rows with a tile
        "check_1(lambda lengths, n, vector, tile_k: (*answer_1(lengths, n, vector, tile_k)[:2], "
        "answer_1(lengths, n, vector, tile_k)[2] - 2 * ceil(n / (32 * vector))))",
        "not yet: cost 6, goal 0: barriers",
    ),
    ("check_2(make_strips)", "not yet: cost 1.00, goal 0.6"),
    (
        # every second row never written
        "check_2(lambda variant, types: [f := make_strips(variant, types), "
        "make_strips(sk.SpmmVariant(rows_per_block=4), types)][1])",
        "not yet: C is wrong for the matrix of pairs",
    ),
]
