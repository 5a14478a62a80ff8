"""Recorded results: written, read, gone on with."""

import csv
import io
import os
from argparse import ArgumentParser

import pytest
from timings import PROVENANCE, row

from sparsekern.__main__ import main
from sparsekern.study.arguments import add_bench, add_op
from sparsekern.study.bench_command import read_variants
from sparsekern.study.launch_cost import read_launch_costs
from sparsekern.study.provenance import PACKAGE, kernel_hash
from sparsekern.study.records import (
    COLUMNS,
    Appender,
    RecordError,
    load,
    provenance_in,
    read,
    read_begun,
    write,
)
from sparsekern.study.studies import STUDIES

ROWS = [
    row(12.345, variant="vector=4,stage=True", cusparse_us=14.5, cusparse_alg="CSR_ALG3", sputnik_us=11.0),
    row(3.21, op="sddmm", k=64, n=100, l2="flushed"),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "record.csv"


def test_a_record_reads_back_as_it_was_written(path):
    write(path, PROVENANCE, ROWS)
    record = read(path)
    assert record.provenance == PROVENANCE
    assert record.rows == ROWS


def test_the_columns_are_those_of_the_issue(path):
    write(path, PROVENANCE, ROWS)
    lines = path.read_text().splitlines()
    assert lines[: len(PROVENANCE)] == [f"# {key}: {value}" for key, value in PROVENANCE.items()]
    assert lines[len(PROVENANCE)] == (
        "op,matrix,m,k,n,nnz,variant,time_us,spread,l2,cusparse_us,cusparse_alg,"
        "dense_fp32_us,dense_tf32_us,dense_fp16_us,sputnik_us"
    )
    assert lines[-1] == (
        "sddmm,transformer/magnitude_pruning/0.9/layer.smtx,100,64,100,1000,plain,3.210,0.0100,flushed,,,,,,"
    )


def test_the_sparsity_of_a_row_is_that_of_its_matrix():
    assert [r.sparsity for r in ROWS] == [0.9, 0.9]
    assert [r.width for r in ROWS] == [256, 64]


def test_rows_are_in_the_file_as_soon_as_they_are_appended(path):
    with Appender(path, PROVENANCE) as appender:
        for number, each in enumerate(ROWS, 1):
            appender.append(each)
            assert read(path).rows == ROWS[:number] == appender.rows


def test_an_appender_goes_on_where_another_ended_and_another_date_or_commit_is_no_obstacle(path):
    write(path, PROVENANCE, ROWS[:1])
    with Appender(path, {**PROVENANCE, "date": "2027-01-01", "commit": "def"}) as appender:
        assert appender.rows == ROWS[:1]
        appender.append(ROWS[1])
    assert read(path).rows == ROWS
    assert read(path).provenance == PROVENANCE


def whole(path):
    write(path, PROVENANCE, ROWS)
    return path.read_text()


def test_wherever_writing_was_cut_off_the_whole_rows_are_kept_and_the_rest_is_dropped(path):
    text = whole(path)
    header = text.index("\nop,") + 1 + len(",".join(COLUMNS)) + 1
    for length in range(len(text) + 1):
        path.write_text(text[:length])
        begun = read_begun(path)
        with Appender(path, PROVENANCE) as appender:
            assert appender.rows == ROWS[: max(text[header:length].count("\n"), 0)], length
            assert (begun is None) == (length < header) and (begun is None or begun.rows == appender.rows)
            for each in ROWS[len(appender.rows) :]:
                appender.append(each)
        assert path.read_text() == text, length


@pytest.mark.parametrize("key, value", [("gpu", "NVIDIA Other"), ("numba", "0.69"), ("cusparse", "12.6")])
def test_another_provenance_is_refused_saying_what_differs_and_what_to_do(path, key, value):
    text = whole(path)
    with pytest.raises(RecordError) as refusal:
        Appender(path, {**PROVENANCE, key: value})
    assert f"{key}: {PROVENANCE.get(key)} there, {value} now" in str(refusal.value)
    assert "Pass another --out, or remove that file" in str(refusal.value)
    assert path.read_text() == text


@pytest.mark.parametrize("text", ["op,matrix\n1,2\n", "some notes", "# gpu: x\nnot a record\n"])
def test_a_file_that_is_no_record_is_not_overwritten(path, text):
    path.write_text(text)
    with pytest.raises(RecordError, match="record"):
        Appender(path, PROVENANCE)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("12.345", "fast", r"line 7 has time_us 'fast'; it must be of type float"),
        ("100,100", "100,1e2", "line 7 has k '1e2'; it must be of type int"),
        ("0.0100,warm", "0.0100", "line 7 has 15 fields; it must have 16"),
        (",nnz,", ",", "line 6, of columns, is 'op,matrix"),
        ("12.345", "", "line 7 has time_us ''"),
    ],
)
def test_a_malformed_record_is_an_error_that_names_the_line(path, old, new, message):
    path.write_text(whole(path).replace(old, new, 1))
    with pytest.raises(RecordError, match=message):
        read(path)


def test_a_missing_record_is_an_error_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        load("ladder", results=tmp_path)
    assert "python -m sparsekern bench" in str(error.value)
    assert "--op sddmm --variants ladder --out data/results/nvidia-h200/ladder.csv" in str(error.value)
    assert "make records RECORDS_ARGS=ladder" in str(error.value) and "SPARSEKERN_DLMC" in str(error.value)
    assert str(tmp_path) not in str(error.value) and "{" not in str(error.value)


def test_a_record_of_no_study_is_an_error_with_those_that_there_are(tmp_path):
    with pytest.raises(FileNotFoundError, match="no record 'lader' of t4; the studies are candidates, sweep"):
        load("lader", "t4", tmp_path)


@pytest.mark.parametrize("study", [name for name, study in STUDIES.items() if study.grows])
def test_the_commands_of_a_study_are_ones_that_the_command_line_takes(study):
    parser = ArgumentParser()
    add_op(parser)
    add_bench(parser)
    ops = []
    for command in STUDIES[study].commands:
        words = command.format(path="x.csv", sputnik="").split()
        assert words[:4] == ["python", "-m", "sparsekern", "bench"]
        found = parser.parse_args(words[4:])
        assert found.out == "x.csv" and read_variants(found.op, found.variants)
        ops.append(found.op)
    assert ops[:2] == ["spmm", "sddmm"]


def test_the_provenance_is_read_off_any_file_that_starts_with_it(path):
    write(path, PROVENANCE, ROWS)
    assert provenance_in(path) == PROVENANCE
    path.write_text("# gpu: x: y\nwhat,us\n# no: more\n")
    assert provenance_in(path) == {"gpu": "x: y"}


def test_a_record_is_found_by_study_and_gpu(tmp_path):
    folder = tmp_path / "nvidia-t4"
    folder.mkdir()
    write(folder / "sweep.csv", PROVENANCE, ROWS)
    assert load("sweep", "nvidia-t4", tmp_path).rows == ROWS


def test_provenance_that_would_not_read_back_is_refused(path):
    with pytest.raises(RecordError, match="must be one line"):
        write(path, {"gpu": "two\nlines"}, ROWS)


def test_the_kernel_hash_changes_with_every_kernel_and_with_the_lanes_and_nothing_else(tmp_path):
    for source in [*PACKAGE.glob("kernels/*.py"), PACKAGE / "machine" / "lanes.py"]:
        copy = tmp_path / source.relative_to(PACKAGE)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(source.read_bytes())
    assert kernel_hash(tmp_path) == kernel_hash()
    (tmp_path / "machine" / "launch.py").write_text("other")
    assert kernel_hash(tmp_path) == kernel_hash()
    for copy in [*tmp_path.glob("kernels/*.py"), tmp_path / "machine" / "lanes.py"]:
        before = kernel_hash(tmp_path)
        copy.write_bytes(copy.read_bytes() + b"\n")
        assert kernel_hash(tmp_path) != before


@pytest.mark.parametrize(
    "field, text, rule",
    [
        ("op", "gemm", "one of spmm, sddmm"),
        ("l2", "tepid", "one of warm, flushed"),
        ("time_us", "0.000", "a positive number"),
        ("time_us", "nan", "a positive number"),
        ("dense_fp32_us", "-1", "a positive number"),
        ("m", "0", "a positive number"),
        ("nnz", "-2", "a number, at least 0"),
    ],
)
def test_a_row_that_cannot_be_is_refused_with_file_line_and_rule(path, field, text, rule):
    write(path, PROVENANCE, ROWS[:1])
    *above, row = path.read_text().splitlines()
    cells = next(csv.reader([row]))
    cells[COLUMNS.index(field)] = text
    changed = io.StringIO()
    csv.writer(changed).writerow(cells)
    path.write_text("\n".join([*above, changed.getvalue()]))
    with pytest.raises(RecordError, match=rf"line {len(above) + 1} has {field} '{text}'; it must be {rule}"):
        read(path)


def test_a_file_of_somebody_else_is_never_written_over(tmp_path):
    notes = tmp_path / "notes.md"
    notes.write_text("# my notes\n# more\n")
    with pytest.raises(RecordError, match="is not a record"):
        Appender(notes, PROVENANCE)
    assert notes.read_text() == "# my notes\n# more\n"


def test_a_record_that_passed_through_a_spreadsheet_is_read(path):
    write(path, PROVENANCE, ROWS)
    path.write_text("\ufeff" + path.read_text() + "\n\n")
    assert read(path).rows == ROWS


def test_a_record_that_was_cut_off_is_not_read_as_a_whole_one(path):
    write(path, PROVENANCE, ROWS)
    path.write_text(path.read_text()[:-2])
    with pytest.raises(RecordError, match="ends in the middle of a line"):
        read(path)


def make_folder(path):
    path.mkdir()


BAD = {
    "that is not there": (lambda path: None, "there is no file of that name"),
    "that is a folder": (make_folder, "it is a folder; it must be a text file"),
    "in Latin-1": (
        lambda path: path.write_bytes(b"# gpu: \xb5\n"),
        "it must be text in UTF-8, and byte 7, 0xb5, is not",
    ),
    "in UTF-16": (
        lambda path: path.write_text("# gpu: x\n", encoding="utf-16"),
        "it must be text in UTF-8, and byte 0, 0xff, is not",
    ),
}


@pytest.fixture(params=BAD)
def bad(request, path):
    """(path of a file, rule that it breaks)"""
    spoil, rule = BAD[request.param]
    spoil(path)
    return path, rule


@pytest.mark.parametrize("reader", [read, read_begun, provenance_in, read_launch_costs])
def test_what_cannot_be_read_as_text_is_an_error_with_file_and_rule(reader, bad):
    with pytest.raises(RecordError) as refusal:
        reader(bad[0])
    assert str(refusal.value).startswith(f"{bad[0]} is no record") and bad[1] in str(refusal.value)


def test_nothing_that_cannot_be_read_is_compared_and_the_command_says_why(bad, capsys):
    assert main(["bench", "--compare", str(bad[0])]) == 2
    assert capsys.readouterr().err == f"{bad[0]} is no record: {bad[1]}\n"


@pytest.mark.parametrize("option", ["--variants", "--sputnik"])
def test_other_files_of_bench_are_refused_in_the_same_words(option, bad, capsys):
    words = ["bench", "--problems", "scaling", option, str(bad[0])]
    assert main(words) == 2
    assert f"{bad[0]} is no " in (said := capsys.readouterr().err) and bad[1] in said


@pytest.mark.parametrize("kind", [kind for kind in BAD if "there" not in kind])
def test_nothing_is_appended_to_what_cannot_be_read_and_it_stays_as_it_was(kind, path):
    spoil, rule = BAD[kind]
    spoil(path)
    before = None if path.is_dir() else path.read_bytes()
    with pytest.raises(RecordError) as refusal:
        Appender(path, PROVENANCE)
    assert str(refusal.value) == f"{path} is no record: {rule}"
    assert list(path.parent.iterdir()) == [path] and (before is None or path.read_bytes() == before)


def test_a_record_beneath_a_file_cannot_be_written_and_the_error_names_both(path):
    path.write_text("notes")
    with pytest.raises(RecordError) as refusal:
        Appender(path / "more" / "record.csv", PROVENANCE)
    assert str(refusal.value).startswith(f"{path / 'more' / 'record.csv'} cannot be written: ")
    assert str(refusal.value).endswith(f" of {path / 'more'}") and path.read_text() == "notes"


def test_a_record_that_passed_through_a_spreadsheet_is_gone_on_with(path):
    write(path, PROVENANCE, ROWS[:1])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n\r\n")
    assert read_begun(path).rows == ROWS[:1] and provenance_in(path) == PROVENANCE
    with Appender(path, PROVENANCE) as appender:
        appender.append(ROWS[1])
    assert read(path).rows == ROWS


def test_a_half_written_line_is_dropped_whole_or_the_record_stays_as_it_was(path, monkeypatch):
    half = whole(path)[:-2]
    path.write_text(half)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(RecordError, match=r"record\.csv cannot be written: No space left on device$"):
            Appender(path, PROVENANCE)
    assert path.read_text() == half and list(path.parent.iterdir()) == [path]


def test_a_disk_that_fills_up_is_said_with_the_file_and_the_command_can_go_on_later(path):
    class Full(io.StringIO):
        def flush(self):
            raise OSError(28, "No space left on device")

    appender = Appender(path, PROVENANCE)
    appender._file.close()
    appender._file = Full()
    with pytest.raises(RecordError, match=r"record\.csv cannot be written: No space left on device$"):
        appender.append(ROWS[0])
    assert appender.rows == []
    with Appender(path, PROVENANCE) as later:
        later.append(ROWS[0])
    assert read(path).rows == ROWS[:1]
