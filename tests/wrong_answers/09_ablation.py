"""Answers that the checks of this chapter must refuse, and what they should say."""

WRONG = [
    ("check_1(lambda variant, toggles, recorded: [])", "would have no time"),
    (
        "check_1(lambda variant, toggles, recorded: [sk.without(variant, t)[0] for t in toggles])",
        "would have no time",
    ),
    (
        "check_1(lambda variant, toggles, recorded: [coalition(set(PLAYERS) - {t}) for t in toggles])",
        "not every set of toggles is legal",
    ),
    ("check_1(lambda variant, toggles, recorded: [sk.SpmmVariant()])", "this is no coalition"),
    ("check_1(lambda variant, toggles, recorded: missing(variant, toggles, frozenset()))", "not yet: cost"),
    ("check_2({'bin', 'bundle', 'sparse_vector', 'stage', 'vector'})", "not yet: cost"),
    ("check_2({'in_flight', 'split', 'prefetch', 'vector', 'bin'})", "needs"),
    ("check_2(set(PLAYERS))", "there may be 5"),
    ("check_2({'roma'})", "is none of PLAYERS"),
]
