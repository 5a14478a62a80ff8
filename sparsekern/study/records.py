"""Recorded results: CSV files that carry their provenance.

A record starts with `# key: value` lines, its provenance; then follow the line of COLUMNS and one line for
each timing. Times are in microseconds; an empty field is a time that was not taken.
"""

import csv
import io
import math
from dataclasses import astuple, dataclass, fields
from itertools import takewhile
from pathlib import Path

from sparsekern.study.studies import STUDIES
from sparsekern.textfiles import parsing, read_text, write_text, writing
from sparsekern.variants import KINDS

RESULTS = Path(__file__).resolve().parents[2] / "data" / "results"
LEVELS = ("warm", "flushed")  # states of the L2 cache before a launch
WARPS_OF_SM = 64  # resident at once, of compute capability 8.0 and 9.0: CUDA C++ Programming Guide
FREE = ("date", "commit")  # of a provenance: what may differ between two parts of one record


@dataclass(frozen=True)
class Row:
    """One timing. Times in microseconds. spread: interquartile range / median of the replays.

    m, k, n: SpMM multiplies (m, k) by (k, n), SDDMM samples (m, k) times (k, n) at the nonzeros of (m, n).
    """

    op: str
    matrix: str  # its name in the DLMC tree, or what `scaling` makes it from
    m: int
    k: int
    n: int
    nnz: int
    variant: str  # see `naming`
    time_us: float
    spread: float
    l2: str  # "warm" or "flushed"
    cusparse_us: float | None = None
    cusparse_alg: str | None = None  # the fastest one
    dense_fp32_us: float | None = None
    dense_tf32_us: float | None = None
    dense_fp16_us: float | None = None
    sputnik_us: float | None = None

    @property
    def width(self):
        """Columns of the dense operands."""
        return self.n if self.op == "spmm" else self.k

    @property
    def problem(self):
        """What was computed and how the cache was kept, whichever the variant."""
        return self.op, self.matrix, self.width, self.l2

    @property
    def sparsity(self):
        """That of the matrix: 1 - nnz / elements."""
        return 1 - self.nnz / (self.m * (self.k if self.op == "spmm" else self.n))

    @property
    def flops(self):
        """Floating-point operations: a multiplication and an addition for each term of each sum."""
        return 2 * self.nnz * self.width

    @property
    def tflops(self):
        """10**12 of them a second."""
        return self.flops / self.time_us / 1e6


COLUMNS = tuple(f.name for f in fields(Row))
_KINDS = {f.name: getattr(f.type, "__args__", (f.type,))[0] for f in fields(Row)}  # str, int or float
_OPTIONAL = {f.name for f in fields(Row) if f.default is None}
_DECIMALS = {"spread": 4}  # of times: 3, nanoseconds


@dataclass(frozen=True)
class Record:
    """What a file holds. provenance: {key: text}. rows: a list of `Row`."""

    provenance: dict
    rows: list


class RecordError(ValueError):
    """A file is no record, cannot be read or written, or cannot go on with another provenance."""


def read(path):
    """The `Record` in the file at `path`.

    Raises RecordError without such a file, for one that is not UTF-8, and, naming the line, for a malformed
    one.
    """
    text = read_text(path, "record", RecordError)
    if text and not text.endswith("\n"):
        raise RecordError(f"{path} ends in the middle of a line: the command that made it was cut off")
    return _parsed(path, text)


def read_begun(path):
    """`read` of a file whose writing may have been cut off, less its last line if that is half written.

    None if not even the line of columns is there. Raises as `read` does.
    """
    return _begun(path, _whole_lines(read_text(path, "record", RecordError)))


def load(study, gpu="nvidia-h200", results=RESULTS):
    """The `Record` of a study, such as "ladder", on a GPU, from this repository.

    Raises FileNotFoundError, with the commands that make it, if there is none.
    """
    return read(path_of(study, gpu, results))


def path_of(study, gpu="nvidia-h200", results=RESULTS):
    """Where the record of a study is, any of `studies.STUDIES`. Raises FileNotFoundError as `load` does."""
    path = Path(results) / gpu / f"{study}.csv"
    if path.is_file():
        return path
    if study not in STUDIES:
        raise FileNotFoundError(f"no record {study!r} of {gpu}; the studies are {', '.join(STUDIES)}")
    commands = " && ".join(STUDIES[study].commands)
    commands = commands.format(path=f"data/results/{gpu}/{study}.csv", sputnik="")
    raise FileNotFoundError(
        f"no record {study!r} of {gpu}; with SPARSEKERN_DLMC set to a copy of DLMC, "
        f"make records RECORDS_ARGS={study} makes it on that GPU, or: {commands}"
    )


def provenance_in(path):
    """{key: text}: the `# key: value` lines that a text file starts with, whatever follows them.

    Raises RecordError for a file that cannot be read or is not UTF-8.
    """
    return heading(read_text(path, "record", RecordError).split("\n"))[0]


def heading(lines):
    """({key: text}, number of lines) of the `# key: value` lines that `lines` start with."""
    found = list(takewhile(lambda line: line.startswith("#"), lines))
    return dict(map(_key_and_value, found)), len(found)


def resident_warps(record):
    """How many warps the GPU of a record holds at once. Raises RecordError without a number of SMs."""
    if "sms" not in record.provenance:
        raise RecordError("the record does not say how many SMs the GPU has: its provenance lacks sms")
    sms = record.provenance["sms"]
    if not sms.isdecimal() or int(sms) < 1:
        raise RecordError(f"the record has sms: {sms}; it must be a whole number, at least 1")
    return int(sms) * WARPS_OF_SM


def write(path, provenance, rows):
    """Writes a record, anew."""
    write_text(path, "".join([_header(provenance), *map(_line, rows)]))


class Appender:
    """A record that grows row by row, and goes on where an interrupted one ended.

    rows: what is there already and what is appended. A last line that was only half written is dropped, and
    so are empty ones. Use it in a `with` statement.

    Raises RecordError if the file is no record, cannot be read or written, or its provenance differs in more
    than FREE; it is then as it was.
    """

    def __init__(self, path, provenance):
        self.path, self.rows = Path(path), []
        text = read_text(path, "record", RecordError) if self.path.exists() else ""
        whole = _whole_lines(text)
        found = _begun(path, whole)
        if found:
            _check_same(path, found.provenance, provenance)
            self.rows = found.rows
        elif not _header(provenance).startswith(text):
            raise RecordError(f"{self.path} is not a record; pass another --out, or remove it")
        kept = whole.rstrip() + "\n" if found else _header(provenance)
        with writing(self.path, RecordError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if kept != text:
                write_text(self.path, kept)
            self._file = open(self.path, "a", encoding="utf-8", newline="\n")

    def append(self, row):
        with writing(self.path, RecordError):
            self._file.write(_line(row))
            self._file.flush()
        self.rows.append(row)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with writing(self.path, RecordError):
            self._file.close()


def _header(provenance):
    for key, value in provenance.items():
        if "\n" in f"{key}{value}" or ":" in key:
            raise RecordError(
                f"provenance has {key!r}: {value!r}; both must be one line, the key without ':'"
            )
    return "".join(f"# {key}: {value}\n" for key, value in provenance.items()) + ",".join(COLUMNS) + "\n"


def _line(row):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(map(_field, COLUMNS, astuple(row)))
    return text.getvalue()


def _field(name, value):
    if value is None:
        return ""
    return f"{value:.{_DECIMALS.get(name, 3)}f}" if _KINDS[name] is float else value


def _whole_lines(text):
    return text[: text.rfind("\n") + 1]


def _begun(path, whole):
    started = any(not line.startswith("#") for line in whole.splitlines())
    return _parsed(path, whole) if started else None


def _parsed(path, text):
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    provenance, above = heading(lines)
    above, header = above + 1, ",".join(COLUMNS)
    found = "missing" if len(lines) < above else repr(lines[above - 1][:60])
    if found == "missing" or lines[above - 1] != header:
        raise RecordError(f"{path} is no record: line {above}, of columns, is {found}; it must be {header}")
    rows = csv.reader(lines[above:])
    with parsing(path, RecordError):
        return Record(provenance, [_row(f"{path}, line {above + rows.line_num}", row) for row in rows])


def _key_and_value(line):
    key, _, value = line[1:].partition(":")
    return key.strip(), value.strip()


def _row(where, texts):
    if len(texts) != len(COLUMNS):
        raise RecordError(f"{where} has {len(texts)} fields; it must have {len(COLUMNS)}")
    values = {}
    for name, text in zip(COLUMNS, texts, strict=True):
        if text == "" and name in _OPTIONAL:
            values[name] = None
            continue
        try:
            values[name] = _KINDS[name](text)
        except ValueError:
            kind = _KINDS[name].__name__
            raise RecordError(f"{where} has {name} {text!r}; it must be of type {kind}") from None
        rule = _broken_rule(name, values[name])
        if rule:
            raise RecordError(f"{where} has {name} {text!r}; it must be {rule}")
    return Row(**values)


def _broken_rule(name, value):
    """What a field must be and is not, or None."""
    if name == "op" and value not in KINDS:
        return f"one of {', '.join(KINDS)}"
    if name == "l2" and value not in LEVELS:
        return f"one of {', '.join(LEVELS)}"
    if name in ("m", "k", "n") or name.endswith("_us"):
        return None if 0 < value < math.inf else "a positive number"
    if name in ("nnz", "spread"):
        return None if 0 <= value < math.inf else "a number, at least 0"
    return None


def _check_same(path, found, now):
    keys = [key for key in dict.fromkeys([*found, *now]) if key not in FREE]
    differ = [key for key in keys if str(found.get(key)) != str(now.get(key))]
    if differ:
        lines = [f"  {key}: {found.get(key)} there, {now.get(key)} now" for key in differ]
        raise RecordError(
            f"{path} was measured otherwise, and one record has one provenance:\n"
            + "\n".join(lines)
            + "\nPass another --out, or remove that file to measure all of it anew."
        )
