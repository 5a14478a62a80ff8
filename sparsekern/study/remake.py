"""`python -m sparsekern.study.remake [STUDY ...]` makes the records of a GPU: those of studies, or all.

What a record has already is not measured again, so that after an interruption the same command goes on. Each
study is the commands of `studies.STUDIES`, each of which ends within STEP_MINUTES.
"""

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from sparsekern.datasets import ROOT_VARIABLE, dlmc
from sparsekern.study.arguments import minutes
from sparsekern.study.bench_command import INTERRUPTED, UNFINISHED
from sparsekern.study.gpus import device_name
from sparsekern.study.records import RESULTS, RecordError
from sparsekern.study.staleness import stale
from sparsekern.study.studies import STUDIES

STEP_MINUTES = 9  # after which a command of bench stops, and is started again
STARTING_MINUTES = 0.5  # that must be left for a command of bench, which loads and compiles first
LEAST_MINUTES = 5  # that must be left for a command that cannot stop in between: one takes 3 at most
REFUSED = "refused"  # in the place of a status: what is there is `stale`, or no record


class CannotMeasure(RuntimeError):
    """Something that the records need is not there."""


@dataclass(frozen=True)
class Remake:
    """How records are made.

    folder: where they lie. run(words): the exit status of a command, a list of words. sputnik: a file for
    `bench --sputnik`, or None. end: the time of `monotonic` from which on no command may run.
    """

    folder: Path
    run: Callable
    sputnik: Path | None = None
    end: float = float("inf")

    def study(self, name):
        """Makes a record, or what is left of it: 0, UNFINISHED if time was up, or what failed.

        A command that fails does not keep the others of the study from running.
        """
        path, study = self.folder / f"{name}.csv", STUDIES[name]
        if not study.grows:
            return self._whole(study, path)
        failed = 0
        for command in study.commands:
            status = UNFINISHED
            while status == UNFINISHED:
                left = (self.end - monotonic()) / 60
                if left < STARTING_MINUTES:
                    return UNFINISHED
                limit = ["--minutes", f"{min(STEP_MINUTES, left):.2f}"]
                status = self.run([*self._words(command, path), *limit])
            failed = failed or status
        if failed or not study.last:
            return failed
        return self._in_one_go(study.last, path)

    def _whole(self, study, path):
        """A record that is measured in one go: it appears when it is whole."""
        if path.exists():
            print(f"{path} is there")
            return 0
        part = path.with_suffix(".part")
        status = self._in_one_go(study.commands, part)
        if not status:
            part.rename(path)
        for rest in path.parent.glob(f"{part.name}*"):
            rest.unlink()
        return status

    def _in_one_go(self, commands, path):
        """The status of the first of commands that fails, or 0; UNFINISHED if there is no time for them."""
        if (self.end - monotonic()) / 60 < LEAST_MINUTES:
            return UNFINISHED
        return next(filter(None, (self.run(self._words(command, path)) for command in commands)), 0)

    def _words(self, command, path):
        sputnik = f" --sputnik {shlex.quote(str(self.sputnik))}" if self.sputnik else ""
        first, *words = shlex.split(command.format(path=shlex.quote(str(path)), sputnik=sputnik))
        return [sys.executable if first == "python" else first, *words]


def remake(studies, how, fresh=False):
    """Makes records, in the order of STUDIES, and says how each went.

    Returns 0, 1 if one was refused or failed, or UNFINISHED if time was up. how: a `Remake`. fresh: remove a
    record that is `stale` first, which otherwise is refused. The others are made all the same, but none once
    time is up: first the candidates, and the tables made of them, must be whole.
    """
    how.folder.mkdir(parents=True, exist_ok=True)
    states = {}
    for study in [name for name in STUDIES if name in studies]:
        late = UNFINISHED in states.values()
        states[study] = UNFINISHED if late else _made(study, how, fresh)
    said = {0: "done", UNFINISHED: "not finished: the same command goes on", REFUSED: "refused: see above"}
    print(f"\nRecords in {how.folder}:")
    for study, status in states.items():
        print(f"  {study:10} {said.get(status, f'failed, status {status}: see above')}")
    if any(status not in (0, UNFINISHED) for status in states.values()):
        return 1
    return UNFINISHED if UNFINISHED in states.values() else 0


def _made(study, how, fresh):
    """What `Remake.study` returns, or REFUSED."""
    path = how.folder / f"{study}.csv"
    try:
        why = stale(study, path) if path.exists() else None
    except RecordError as error:
        print(error)
        return REFUSED
    if why and not fresh:
        print(
            f"{path} is not gone on with, as one record has one provenance: {why}. Remove it, or let --fresh "
            f"do so: make records RECORDS_ARGS='--fresh {study}'"
        )
        return REFUSED
    if why:
        print(f"removed {path}: {why}")
        path.unlink()
    return how.study(study)


def folder_of(device_name):
    """The folder of a GPU's records, by its name: "NVIDIA H200" is nvidia-h200."""
    return "-".join(device_name.lower().split())


def _study(text):
    if text not in STUDIES:
        raise argparse.ArgumentTypeError(f"{text!r} is no study; they are {', '.join(STUDIES)}")
    return text


def _gpu():
    """The name of the GPU. Raises CannotMeasure without one."""
    try:
        from numba import cuda

        if cuda.is_available():
            return device_name(cuda.get_current_device())
    except ImportError:
        pass
    raise CannotMeasure(
        "records are times of a CUDA GPU, and none answers: see python -m sparsekern doctor.\n"
        f"Those in {RESULTS.relative_to(RESULTS.parents[1])} are read without one."
    )


def _run(words):
    """Prints a command and runs it where the checkout is, to which paths in `studies.STUDIES` refer."""
    print(f"\n$ {shlex.join(words)}", flush=True)
    status = subprocess.run(words, cwd=RESULTS.parents[1]).returncode
    if status in (INTERRUPTED, -2):
        raise KeyboardInterrupt
    return status


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern.study.remake", description=__doc__)
    parser.add_argument("study", nargs="*", type=_study, help=f"of {', '.join(STUDIES)} (default: all)")
    parser.add_argument("--fresh", action="store_true", help="remove first what would be refused")
    parser.add_argument("--sputnik", metavar="CSV", help="as for bench, where rivals are timed")
    parser.add_argument("--minutes", type=minutes, metavar="M", help="stop after them; the same goes on")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="default: data/results")
    arguments = parser.parse_args(words)
    end = monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    try:
        folder = arguments.results.resolve() / folder_of(_gpu())
        dlmc()  # raises if there is no tree
        os.environ[ROOT_VARIABLE] = str(Path(os.environ[ROOT_VARIABLE]).resolve())
        sputnik = Path(arguments.sputnik).resolve(strict=True) if arguments.sputnik else None
        return remake(arguments.study or STUDIES, Remake(folder, _run, sputnik, end), arguments.fresh)
    except (CannotMeasure, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from there.", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
