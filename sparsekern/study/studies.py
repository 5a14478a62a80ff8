"""How each record is made: the commands of a study, and what holds of its rows."""

from typing import NamedTuple


class Study(NamedTuple):
    """What makes a record, in the folder that holds data/.

    commands: run one after the other; {path} is the record, {sputnik} may be an option of bench. grows: they
    add to what is there, and stop when --minutes are over; otherwise they make all of it in one go. last:
    what is run once the record is whole. choice: the rows whose variant `select` has chosen, "every" one or
    the "first" of each problem; None if it chooses none.
    """

    commands: tuple
    grows: bool = False
    last: tuple = ()
    choice: str | None = None


def _bench(options):
    return tuple(f"python -m sparsekern bench --op {op} {options} --out {{path}}" for op in ("spmm", "sddmm"))


STUDIES = {  # in the order in which they are made: the tables come first, by which `select` chooses
    "candidates": Study(
        (
            *_bench("--variants candidates --no-baselines"),
            *_bench("--problems scaling --variants candidates --no-baselines"),
        ),
        grows=True,
        last=("python -m sparsekern.study.choose {path}",),
    ),
    "sweep": Study(_bench("--variants default{sputnik}"), grows=True, choice="every"),
    "scaling": Study(_bench("--problems scaling --variants default"), grows=True, choice="every"),
    "ablation": Study(_bench("--variants ablation --no-baselines"), grows=True, choice="first"),
    "launch": Study(("python -m sparsekern.study.launch_cost --out {path}",)),
    "ladder": Study(_bench("--variants ladder{sputnik}"), grows=True),
    "counters": Study(
        (
            "python -m sparsekern.study.hardware measure --out {path}.raw",
            "python -m sparsekern.study.hardware compare --raw {path}.raw --out {path}",
        )
    ),
}
