"""Records made anew by commands that stand in for those of a GPU: they write, stop, fail as told."""

import re
import shlex

import pytest
from timings import PROVENANCE, row

from sparsekern.study import remake as module
from sparsekern.study.bench_command import UNFINISHED
from sparsekern.study.provenance import kernel_hash
from sparsekern.study.records import read, write
from sparsekern.study.remake import Remake, folder_of, main, remake
from sparsekern.study.studies import STUDIES

MADE = "uniform 100x100 0.9 seed 0"
NOW = {**PROVENANCE, "kernels_sha256": kernel_hash(), "sms": "132"}
BEFORE = {**PROVENANCE, "kernels_sha256": "another"}


class Commands:
    """Notes the commands that it gets, and returns `statuses` in turn, then 0; writes what --out names."""

    def __init__(self, *statuses):
        self.statuses, self.words = list(statuses), []

    def __call__(self, words):
        self.words.append(words)
        status = self.statuses.pop(0) if self.statuses else 0
        if status == 0 and "--out" in words:
            write(words[words.index("--out") + 1], NOW, [row(1.0)])
        return status

    @property
    def texts(self):
        return [shlex.join(words[1:]) for words in self.words]


def made(folder, studies, commands, **options):
    return remake(studies, Remake(folder, commands, **options))


def test_a_study_of_bench_is_its_two_commands_with_a_limit_under_ten_minutes(tmp_path):
    assert made(tmp_path, ["sweep"], commands := Commands(), sputnik="/some where/baselines.csv") == 0
    assert commands.texts == [
        f"-m sparsekern bench --op {op} --variants default --sputnik '/some where/baselines.csv' "
        f"--out {tmp_path}/sweep.csv --minutes 9.00"
        for op in ("spmm", "sddmm")
    ]


@pytest.mark.parametrize("study", STUDIES)
def test_every_command_is_filled_in_and_names_a_file_to_write(study, tmp_path):
    assert made(tmp_path, [study], commands := Commands()) == 0
    assert commands.words and not any("{" in text for text in commands.texts)
    assert (tmp_path / f"{study}.csv").is_file()
    assert [path.name for path in tmp_path.iterdir()] == [f"{study}.csv"]


def test_a_command_that_ran_out_of_time_is_called_again_until_it_is_done(tmp_path):
    assert made(tmp_path, ["ladder"], commands := Commands(UNFINISHED, UNFINISHED)) == 0
    assert ["spmm" in text for text in commands.texts] == [True, True, True, False]


def test_a_wrong_kernel_in_one_study_keeps_no_other_from_being_made_and_is_told(tmp_path, capsys):
    assert made(tmp_path, ["sweep", "scaling"], commands := Commands(1)) == 1
    assert len(commands.words) == 4
    said = capsys.readouterr().out
    assert "sweep      failed, status 1" in said and "scaling    done" in said


def test_when_time_is_up_nothing_more_is_begun(tmp_path, capsys):
    assert made(tmp_path, list(STUDIES), commands := Commands(), end=module.monotonic() + 1) == UNFINISHED
    assert not commands.words
    assert "launch     not finished: the same command goes on" in capsys.readouterr().out


def test_commands_get_what_is_left_of_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "monotonic", lambda: 0.0)
    assert made(tmp_path, ["sweep"], commands := Commands(), end=4 * 60.0) == 0
    assert [words[-1] for words in commands.words] == ["4.00", "4.00"]
    assert made(tmp_path, ["launch"], commands := Commands(), end=4 * 60.0) == UNFINISHED
    assert not commands.words


def test_a_record_that_is_measured_in_one_go_appears_when_it_is_whole_and_only_once(tmp_path):
    assert made(tmp_path, ["counters"], Commands(0, 3)) == 1
    assert not list(tmp_path.iterdir())
    assert made(tmp_path, ["counters"], commands := Commands()) == 0
    assert len(commands.words) == 2
    assert made(tmp_path, ["counters"], commands := Commands()) == 0
    assert not commands.words


def test_a_stale_record_is_refused_by_name_and_the_others_are_made(tmp_path, capsys):
    write(tmp_path / "ladder.csv", BEFORE, [row(1.0)])
    write(tmp_path / "sweep.csv", NOW, [row(1.0, MADE)])
    assert made(tmp_path, ["ladder", "sweep", "scaling"], commands := Commands()) == 1
    assert ["scaling" in text for text in commands.texts] == [True, True]
    said = capsys.readouterr().out
    assert f"{tmp_path}/ladder.csv is not gone on with" in said and "of other kernels than today's" in said
    assert f"select chooses otherwise today: for spmm of {MADE} at width 256" in said
    assert "make records RECORDS_ARGS='--fresh ladder'" in said
    assert "ladder     refused: see above" in said and "scaling    done" in said
    assert len(read(tmp_path / "ladder.csv").rows) == 1


def test_a_file_that_is_no_record_is_refused_and_fresh_does_not_remove_it(tmp_path, capsys):
    (tmp_path / "sweep.csv").write_text("my notes\n")
    assert remake(["sweep"], Remake(tmp_path, commands := Commands()), fresh=True) == 1
    assert "sweep.csv is no record" in capsys.readouterr().out
    assert not commands.words and (tmp_path / "sweep.csv").read_text() == "my notes\n"


def test_fresh_removes_what_would_be_refused_and_goes_on_with_the_rest(tmp_path):
    write(tmp_path / "launch.csv", BEFORE, [row(1.0)])
    write(tmp_path / "counters.csv", NOW, [row(1.0)])
    write(tmp_path / "sweep.csv", NOW, [row(1.0, MADE)])
    how = Remake(tmp_path, commands := Commands())
    assert remake(["launch", "counters", "sweep"], how, fresh=True) == 0
    modules = [text.split()[1] for text in commands.texts]
    assert modules == ["sparsekern", "sparsekern", "sparsekern.study.launch_cost"]
    assert read(tmp_path / "sweep.csv").rows == [row(1.0)]


def test_trees_are_made_of_the_candidates_once_these_are_whole_and_before_what_they_choose(tmp_path):
    assert made(tmp_path, ["sweep", "candidates"], commands := Commands(0, UNFINISHED)) == 0
    texts = commands.texts
    assert ["candidates.csv" in text for text in texts] == [True] * 6 + [False] * 2
    assert texts[5] == f"-m sparsekern.study.choose {tmp_path}/candidates.csv"
    assert made(tmp_path, ["candidates"], commands := Commands(1)) == 1
    assert len(commands.words) == 4 and not any("choose" in text for text in commands.texts)


def test_candidates_are_timed_on_every_problem_on_which_the_choice_is():
    def problems(study):
        return {
            re.sub(r" --variants \w+|\{sputnik\}| --no-baselines", "", command)
            for command in STUDIES[study].commands
        }

    assert problems("candidates") == problems("sweep") | problems("scaling")


def test_nothing_is_chosen_while_there_is_no_time_to_make_the_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "monotonic", lambda: 0.0)
    assert made(tmp_path, ["candidates", "sweep"], commands := Commands(), end=4 * 60.0) == UNFINISHED
    assert len(commands.words) == 4 and all("candidates.csv" in text for text in commands.texts)
    assert "sweep      not finished" in capsys.readouterr().out


def test_a_gpu_has_a_folder_of_its_name():
    assert folder_of("NVIDIA H200") == "nvidia-h200"
    assert folder_of("NVIDIA A100-SXM4-40GB") == "nvidia-a100-sxm4-40gb"


@pytest.fixture
def on_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_gpu", lambda: "NVIDIA H200")
    monkeypatch.setattr(module, "_run", commands := Commands())
    monkeypatch.delenv("SPARSEKERN_DLMC", raising=False)
    return commands


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr("numba.cuda.is_available", lambda: False)
    assert main([]) == 2
    assert "none answers: see python -m sparsekern doctor" in capsys.readouterr().err


def test_without_a_tree_it_says_how_to_get_one(on_a_gpu, tmp_path, capsys):
    assert main(["--results", str(tmp_path)]) == 2
    assert "set SPARSEKERN_DLMC" in capsys.readouterr().err
    assert not on_a_gpu.words


def test_the_command_makes_the_studies_that_are_named_in_the_folder_of_the_gpu(
    on_a_gpu, monkeypatch, tmp_path
):
    layer = tmp_path / "dlmc/rn50/x/0.9/a.smtx"
    layer.parent.mkdir(parents=True)
    layer.write_text("1, 1, 0\n0 0\n\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARSEKERN_DLMC", "dlmc")
    assert main(["scaling", "launch", "--results", str(tmp_path / "results")]) == 0
    made = (tmp_path / "results/nvidia-h200").iterdir()
    assert {path.name for path in made} == {"scaling.csv", "launch.csv"}
    assert module.os.environ["SPARSEKERN_DLMC"] == str(tmp_path / "dlmc")
    assert len(on_a_gpu.words) == 3


def test_a_study_that_there_is_not_is_refused_with_those_that_there_are(capsys):
    with pytest.raises(SystemExit):
        main(["swoop"])
    assert "'swoop' is no study; they are candidates, sweep, scaling" in capsys.readouterr().err


def test_a_run_prints_its_command_and_ctrl_c_in_it_ends_all(capfd):
    assert module._run(["sh", "-c", "exit 75"]) == UNFINISHED
    assert "$ sh -c 'exit 75'" in capfd.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        module._run(["sh", "-c", "exit 130"])
