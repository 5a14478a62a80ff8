"""`python -m sparsekern.study.remake [STUDY ...]` makes the records of a GPU: those of studies, or all.

What a record has already is not measured again, so that after an interruption the same command goes on. Each
study is the commands of `records.COMMANDS`, each of which ends within STEP_MINUTES.
"""

import argparse
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from sparsekern.datasets import ROOT_VARIABLE, dlmc
from sparsekern.study.arguments import minutes
from sparsekern.study.bench_command import INTERRUPTED, UNFINISHED
from sparsekern.study.provenance import choice_hash, kernel_hash
from sparsekern.study.records import COMMANDS, RESULTS, provenance_in

STEP_MINUTES = 9  # after which a command of bench stops, and is started again
STARTING_MINUTES = 0.5  # that must be left for a command of bench, which loads and compiles first
LEAST_MINUTES = 5  # that must be left for a command that cannot stop in between: one takes 3 at most


class CannotMeasure(RuntimeError):
    """Something that the records need is not there, or a record of other kernels is in their place."""


@dataclass(frozen=True)
class Remake:
    """How records are made. folder: where they lie. sputnik: a file for `bench --sputnik`, or None.

    end: the time of `monotonic` at which no command may run any more. run(words): the exit status of a
    command.
    """

    folder: Path
    run: object
    sputnik: str | None = None
    end: float = float("inf")

    def study(self, name):
        """Makes a record, or what is left of it: 0, UNFINISHED if time was up, or what failed.

        A command that fails does not keep the others of the study from running.
        """
        path = self.folder / f"{name}.csv"
        if not _grows(name):
            return self._whole(name, path)
        failed = 0
        for command in COMMANDS[name]:
            status = UNFINISHED
            while status == UNFINISHED:
                left = (self.end - monotonic()) / 60
                if left < STARTING_MINUTES:
                    return UNFINISHED
                limit = ["--minutes", f"{min(STEP_MINUTES, left):.2f}"]
                status = self.run([*self._words(command, path), *limit])
            failed = failed or status
        return failed

    def _whole(self, name, path):
        """A record that is measured in one go: it appears when it is whole."""
        if path.exists():
            print(f"{path} is there")
            return 0
        if (self.end - monotonic()) / 60 < LEAST_MINUTES:
            return UNFINISHED
        part = path.with_suffix(".part")
        status = next(filter(None, (self.run(self._words(c, part)) for c in COMMANDS[name])), 0)
        if not status:
            part.rename(path)
        for rest in path.parent.glob(f"{part.name}*"):
            rest.unlink()
        return status

    def _words(self, command, path):
        sputnik = f" --sputnik {shlex.quote(str(self.sputnik))}" if self.sputnik else ""
        first, *words = shlex.split(command.format(path=shlex.quote(str(path)), sputnik=sputnik))
        return [sys.executable if first == "python" else first, *words]


def _grows(study):
    """Whether a study's commands are of bench, which adds rows to what is there."""
    return all(" bench " in command for command in COMMANDS[study])


def stale(studies, folder):
    """The records of studies, of those in `folder`, of other kernels or of another choice than today's."""
    kernels, choice, found = kernel_hash(), choice_hash(), []
    for path in (folder / f"{study}.csv" for study in studies):
        if path.exists():
            origin = provenance_in(path)
            if origin.get("kernels_sha256") != kernels or origin.get("choice_sha256", choice) != choice:
                found.append(path)
    return found


def remake(studies, how, fresh=False):
    """Makes records, says how each went, and returns 0, 1 if one failed, or UNFINISHED if time was up.

    how: a `Remake`. fresh: remove those that are `stale` first. Raises CannotMeasure if there are such, and
    `fresh` is not given: nothing was measured then.
    """
    others = stale(studies, how.folder)
    if others and not fresh:
        raise CannotMeasure(
            "measured with other kernels, or when variants were chosen otherwise, and one record has one "
            "provenance:\n"
            + "".join(f"  {path}\n" for path in others)
            + "Remove them, or let FRESH=1 do so: make records FRESH=1, or --fresh."
        )
    for path in others:
        print(f"removed {path}, of other kernels or another choice")
        path.unlink()
    how.folder.mkdir(parents=True, exist_ok=True)
    states = {study: how.study(study) for study in studies}
    said = {0: "done", UNFINISHED: "not finished: the same command goes on"}
    print(f"\nRecords in {how.folder}:")
    for study, status in states.items():
        print(f"  {study:10} {said.get(status, f'failed, status {status}: see above')}")
    if any(status not in (0, UNFINISHED) for status in states.values()):
        return 1
    return UNFINISHED if UNFINISHED in states.values() else 0


def folder_of(device_name):
    """The folder of a GPU's records, by its name: "NVIDIA H200" is nvidia-h200."""
    return "-".join(device_name.lower().split())


def _study(text):
    if text not in COMMANDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no study; they are {', '.join(COMMANDS)}")
    return text


def _gpu():
    """The name of the GPU. Raises CannotMeasure without one."""
    try:
        from numba import cuda

        if cuda.is_available():
            name = cuda.get_current_device().name
            return name.decode() if isinstance(name, bytes) else name
    except ImportError:
        pass
    raise CannotMeasure(
        "records are times of a CUDA GPU, and none answers: see python -m sparsekern doctor.\n"
        f"Those in {RESULTS.relative_to(RESULTS.parents[1])} are read without one."
    )


def _run(words):
    """Prints a command and runs it where the checkout is, to which paths in `records.COMMANDS` refer."""
    print(f"\n$ {shlex.join(words)}", flush=True)
    status = subprocess.run(words, cwd=RESULTS.parents[1]).returncode
    if status in (INTERRUPTED, -2):
        raise KeyboardInterrupt
    return status


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern.study.remake", description=__doc__)
    parser.add_argument("study", nargs="*", type=_study, help=f"of {', '.join(COMMANDS)} (default: all)")
    parser.add_argument("--fresh", action="store_true", help="remove first what other kernels made")
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
        return remake(arguments.study or list(COMMANDS), Remake(folder, _run, sputnik, end), arguments.fresh)
    except (CannotMeasure, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from there.", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
