"""Files that people name: what is no text is told, and what is no file is not replaced."""

import os
import stat

import pytest
from timings import PROVENANCE, row

from sparsekern.study import hardware, launch_cost, records, sweep
from sparsekern.textfiles import read_text, write_text


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_pipe_is_no_text_to_read_and_is_not_waited_for(pipe):
    with pytest.raises(ValueError, match="it is a device or a pipe; it must be a text file"):
        read_text(pipe, "record")


def test_what_is_written_goes_into_a_pipe_and_does_not_replace_it(pipe):
    end = os.open(pipe, os.O_RDWR)
    try:
        write_text(pipe, "text\n")
        assert os.read(end, 100) == b"text\n"
    finally:
        os.close(end)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_name_that_is_too_long_is_told():
    with pytest.raises(ValueError, match="it cannot be read"):
        read_text("a" * 300, "record")


HEADINGS = {
    "a record": (records.read, records.COLUMNS),
    "launch costs": (launch_cost.read_launch_costs, launch_cost.COLUMNS),
    "times of Sputnik": (sweep.read_sputnik, ("op", "dtype", "matrix", "m", "k", "n", "sputnik_us")),
    "counters": (lambda path: hardware.compare(path, None, os.devnull), hardware.RAW_COLUMNS),
}


@pytest.mark.parametrize("reader, columns", HEADINGS.values(), ids=HEADINGS)
def test_a_field_longer_than_csv_takes_is_told_with_the_file(reader, columns, tmp_path):
    path = tmp_path / "giant.csv"
    path.write_text(",".join(columns) + "\n" + "a" * 200_000 + "\n")
    with pytest.raises(ValueError, match="giant.csv cannot be read as CSV: field larger"):
        reader(path)


@pytest.mark.parametrize("sms", ["0", "-3", "many", ""])
def test_a_number_of_sms_that_is_none_is_told(sms):
    record = records.Record({**PROVENANCE, "sms": sms}, [row()])
    with pytest.raises(records.RecordError, match="it must be a whole number, at least 1"):
        records.resident_warps(record)


def test_counters_that_were_cut_off_are_told(tmp_path):
    raw = tmp_path / "raw.csv"
    raw.write_text("op,matrix,variant,counter,hardware\nspmm,a,plain,shuffles,1")
    with pytest.raises(ValueError, match="ends in the middle of a line"):
        hardware.compare(raw, None, tmp_path / "out.csv")
