"""Records of what `select` chooses are of what it chooses today; those made up by hand are told apart."""

import pytest
from timings import PROVENANCE, row

from sparsekern import SpmmVariant
from sparsekern.study import staleness
from sparsekern.study.provenance import kernel_hash
from sparsekern.study.records import Record, RecordError, load, write
from sparsekern.study.staleness import chosen_now, stale
from sparsekern.study.studies import STUDIES

NOW = {**PROVENANCE, "kernels_sha256": kernel_hash(), "sms": "132"}
MADE = "uniform 100x100 0.9 seed 0"
[(_, TODAY)] = chosen_now(Record(NOW, [row(matrix=MADE)]), "every")


@pytest.mark.parametrize("study", [name for name, study in STUDIES.items() if study.choice])
def test_the_variants_of_the_records_are_those_that_select_chooses_today(study):
    differ = chosen_now(load(study), STUDIES[study].choice)
    assert not differ, f"make records RECORDS_ARGS='--fresh {study}'\n" + "\n".join(
        f"{r.op} {r.matrix} at {r.width}: recorded is {r.variant}, chosen {now}" for r, now in differ
    )


@pytest.mark.parametrize("study", ["sweep", "scaling"])
def test_a_record_of_the_choice_has_one_variant_for_each_problem(study):
    rows = load(study).rows
    assert len({r.problem for r in rows}) == len(rows) > 0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "record.csv"


def test_a_record_of_other_kernels_or_of_none_that_are_known_is_stale(path):
    for provenance in (PROVENANCE, {**NOW, "kernels_sha256": "another"}):
        write(path, provenance, [row(matrix=MADE, variant=TODAY)])
        assert {stale(study, path) for study in STUDIES} == {"it is of other kernels than today's"}


def test_a_record_of_another_choice_is_stale_and_one_of_other_variants_is_not(path):
    write(path, NOW, [row(matrix=MADE), row(matrix=MADE, n=64), row(matrix=MADE, variant=TODAY)])
    why = stale("sweep", path)
    assert f"for spmm of {MADE} at width 256 {TODAY}, not plain, and so in 1 more" in why
    assert stale("scaling", path) == why and stale("ablation", path) == why
    assert stale("ladder", path) is stale("candidates", path) is None


def test_of_an_ablation_the_first_row_of_each_problem_is_of_the_choice(path):
    write(path, NOW, [row(matrix=MADE, variant=TODAY), row(matrix=MADE)])
    assert stale("ablation", path) is None
    assert "not plain" in stale("sweep", path)


def test_a_record_that_goes_on_after_the_choice_has_changed_is_stale(path, monkeypatch):
    write(path, NOW, [row(matrix=MADE, variant=TODAY)])
    assert stale("sweep", path) is None
    monkeypatch.setattr(staleness, "select", lambda problem, warps: (SpmmVariant(), "as told"))
    assert f"plain, not {TODAY}" in stale("sweep", path)


def test_a_record_that_was_cut_off_is_judged_by_its_whole_lines(path):
    write(path, NOW, [row(matrix=MADE, variant=TODAY), row(matrix=MADE)])
    text = path.read_text()
    path.write_text(text[:-1])
    assert stale("sweep", path) is None
    path.write_text(text[:20])
    assert stale("sweep", path) is None


@pytest.mark.parametrize(
    "provenance, matrix, said",
    [
        ({**PROVENANCE, "kernels_sha256": kernel_hash()}, MADE, "its provenance lacks sms"),
        (NOW, "vgg/x/0.5/conv.smtx", "row lengths of vgg/x/0.5/conv.smtx are not known"),
    ],
)
def test_a_record_of_which_the_choice_cannot_be_told_is_refused(provenance, matrix, said, path):
    write(path, provenance, [row(matrix=matrix)])
    with pytest.raises(RecordError, match=said):
        stale("sweep", path)
