"""Autotuning: what is timed, what is kept, and what a kept choice holds for."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from operands import dense, sparse

from sparsekern import SddmmVariant, SpmmVariant, plan_sddmm, plan_spmm, sddmm, spmm
from sparsekern.naming import format_variant
from sparsekern.selection.candidates import candidates
from sparsekern.study import autotune
from sparsekern.study.autotune import autotune_sddmm, autotune_spmm, cache_folder, key_of, tuned

VARIANTS = [SpmmVariant(vector=v, rows_per_block=4) for v in (1, 2, 4)]
FASTEST = VARIANTS[1]
A, B = sparse(64, 64), dense(64, 32)
PROBLEM = plan_spmm(A, B, backend="emulator").problem


def key(problem=PROBLEM, variants=VARIANTS, gpu="NVIDIA Test", sms=100):
    return key_of(problem, variants, gpu, sms)


class Stopwatch:
    """Times as they are planted, and what was asked for."""

    def __init__(self, fastest=FASTEST):
        self.fastest, self.timed = fastest, []

    def __call__(self, variant):
        self.timed.append(variant)
        return 1.0 if variant == self.fastest else 2.0


@pytest.fixture
def stopwatch():
    return Stopwatch()


def kept(folder):
    return sorted(folder.rglob("*.*"))


def test_the_fastest_variant_is_found_and_each_is_timed_once(stopwatch, tmp_path):
    assert tuned(key(), [*VARIANTS, VARIANTS[0]], stopwatch, folder=tmp_path) == FASTEST
    assert stopwatch.timed == VARIANTS


def test_a_second_time_nothing_is_timed(stopwatch, tmp_path):
    tuned(key(), VARIANTS, stopwatch, folder=tmp_path)
    later = Stopwatch(fastest=VARIANTS[2])
    assert tuned(key(), VARIANTS, later, folder=tmp_path) == FASTEST
    assert later.timed == []


def test_again_times_anew_and_keeps_what_that_says(stopwatch, tmp_path):
    tuned(key(), VARIANTS, stopwatch, folder=tmp_path)
    later = Stopwatch(fastest=VARIANTS[2])
    assert tuned(key(), VARIANTS, later, again=True, folder=tmp_path) == VARIANTS[2]
    assert tuned(key(), VARIANTS, Stopwatch(), folder=tmp_path) == VARIANTS[2]
    assert len(kept(tmp_path)) == 1


def test_what_is_kept_can_be_read_by_people(stopwatch, tmp_path):
    tuned(key(), VARIANTS, stopwatch, folder=tmp_path)
    (path,) = kept(tmp_path)
    found = json.loads(path.read_text())
    assert found["variant"] == format_variant(FASTEST) and found["key"]["gpu"] == "NVIDIA Test"
    assert found["microseconds"] == {format_variant(v): 1.0 if v == FASTEST else 2.0 for v in VARIANTS}


@pytest.mark.parametrize(
    "other",
    [
        dict(gpu="NVIDIA Other"),
        dict(sms=101),
        dict(variants=VARIANTS[:2]),
        dict(problem=replace(PROBLEM, n=64)),
        dict(problem=replace(PROBLEM, nnz=PROBLEM.nnz + 1)),
        dict(problem=replace(PROBLEM, rows=replace(PROBLEM.rows, longest=64))),
        dict(problem=replace(PROBLEM, b=replace(PROBLEM.b, ld=36))),
        dict(problem=replace(PROBLEM, c=replace(PROBLEM.c, align=4))),
        dict(problem=replace(PROBLEM, types=replace(PROBLEM.types, offset="int64"))),
    ],
    ids=["GPU", "SMs", "variants", "width", "nnz", "longest row", "layout of B", "alignment of C", "offsets"],
)
def test_a_choice_holds_for_nothing_else(other, stopwatch, tmp_path):
    tuned(key(), VARIANTS, Stopwatch(), folder=tmp_path)
    variants = other.get("variants", VARIANTS)
    tuned(key(**other), variants, stopwatch, folder=tmp_path)
    assert stopwatch.timed == variants


def test_a_choice_does_not_hold_for_other_kernels(stopwatch, tmp_path, monkeypatch):
    tuned(key(), VARIANTS, Stopwatch(), folder=tmp_path)
    monkeypatch.setattr(autotune, "kernel_hash", lambda: "other")
    tuned(key(), VARIANTS, stopwatch, folder=tmp_path)
    assert stopwatch.timed == VARIANTS


def test_the_order_of_variants_does_not_matter(stopwatch, tmp_path):
    tuned(key(), VARIANTS, Stopwatch(), folder=tmp_path)
    backwards = VARIANTS[::-1]
    assert tuned(key(variants=backwards), backwards, stopwatch, folder=tmp_path) == FASTEST
    assert stopwatch.timed == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"variant": 3}', '{"key": {}, "variant": "vector=3"}', "\x00"],
)
def test_a_spoilt_file_is_said_and_made_anew(text, stopwatch, tmp_path):
    tuned(key(), VARIANTS, Stopwatch(), folder=tmp_path)
    (path,) = kept(tmp_path)
    whole = path.read_text()
    path.write_text(text)
    with pytest.warns(RuntimeWarning, match=f"{path.name} is no choice of autotuning .*: tuning anew"):
        assert tuned(key(), VARIANTS, stopwatch, folder=tmp_path) == FASTEST
    assert stopwatch.timed == VARIANTS and path.read_text() == whole


def test_a_variant_that_is_none_any_more_is_said_and_tuned_anew(stopwatch, tmp_path):
    tuned(key(), VARIANTS, Stopwatch(), folder=tmp_path)
    (path,) = kept(tmp_path)
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "variant": "vector=3"}))
    with pytest.warns(RuntimeWarning, match="vector is '3'"):
        assert tuned(key(), VARIANTS, stopwatch, folder=tmp_path) == FASTEST


def test_a_kept_variant_that_would_not_be_tried_now_is_said_and_tuned_anew(stopwatch, tmp_path):
    problem, other = plan_spmm(A, dense(64, 30), backend="emulator").problem, SpmmVariant(vector=4)
    narrow = VARIANTS[:2]
    assert "ldb is 30" in other.check(problem)
    tuned(key(problem, narrow), narrow, Stopwatch(), folder=tmp_path)
    (path,) = kept(tmp_path)
    whole = path.read_text()
    path.write_text(json.dumps({**json.loads(whole), "variant": format_variant(other)}))
    with pytest.warns(RuntimeWarning, match="vector=4 is none of the variants that would be tried"):
        assert tuned(key(problem, narrow), narrow, stopwatch, folder=tmp_path) == FASTEST
    assert stopwatch.timed == narrow and path.read_text() == whole


def test_a_folder_that_cannot_be_written_is_said_and_the_choice_made(stopwatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.warns(RuntimeWarning, match="not kept .*SPARSEKERN_CACHE may name another folder"):
        assert tuned(key(), VARIANTS, stopwatch, folder=blocked) == FASTEST
    assert blocked.read_text() == "not a folder"


def test_a_failure_while_writing_leaves_no_part_of_a_file(stopwatch, tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(autotune.os, "replace", full)
    with pytest.warns(RuntimeWarning, match="no space left"):
        assert tuned(key(), VARIANTS, stopwatch, folder=tmp_path) == FASTEST
    assert kept(tmp_path) == []


def test_many_may_tune_at_once(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: tuned(key(), VARIANTS, Stopwatch(), folder=tmp_path), range(64)))
    assert found == {FASTEST} and len(kept(tmp_path)) == 1
    assert json.loads(kept(tmp_path)[0].read_text())["variant"] == format_variant(FASTEST)


@pytest.mark.parametrize(
    "platform, variables, expected",
    [
        ("linux", {}, "home/.cache/sparsekern"),
        ("linux", {"XDG_CACHE_HOME": "shared"}, "shared/sparsekern"),
        ("linux", {"XDG_CACHE_HOME": "shared", "SPARSEKERN_CACHE": "own"}, "own"),
        ("linux", {"SPARSEKERN_CACHE": ""}, "home/.cache/sparsekern"),
        ("win32", {"LOCALAPPDATA": "local", "XDG_CACHE_HOME": "shared"}, "local/sparsekern"),
    ],
)
def test_where_choices_are_kept(platform, variables, expected, monkeypatch):
    for name in ("SPARSEKERN_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(autotune.sys, "platform", platform)
    monkeypatch.setattr(autotune.Path, "home", lambda: Path("home"))
    assert cache_folder() == Path(expected)


LHS, RHS = dense(64, 32), dense(64, 32, seed=4)


def test_on_the_emulator_there_is_nothing_to_time(monkeypatch):
    monkeypatch.setattr("sparsekern.machine.backends.device_backend", lambda: "emulator")
    for call in (lambda: autotune_spmm(A, B), lambda: autotune_sddmm(A, LHS, RHS)):
        with pytest.raises(RuntimeError, match="times kernels on a CUDA GPU.*the emulator.*doctor"):
            call()


def test_what_cannot_run_a_problem_is_not_tried_and_the_rest_is_fitted_to_it():
    problem = plan_spmm(A, dense(64, 4), backend="emulator").problem
    too_wide = SpmmVariant(vector=4, subwarp=32, items=8, rows_per_block=1)
    found = list(autotune._that_run(problem, [too_wide, *candidates("spmm")]))
    assert len(found) == 1 + len(candidates("spmm"))
    assert all(variant.check(problem) is None and variant.tile_n <= 32 for variant in found)


@pytest.mark.gpu
@pytest.mark.parametrize("again", [False, True])
def test_a_gpu_finds_a_variant_that_is_right_and_remembers_it(again, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEKERN_CACHE", str(tmp_path))
    calls = [
        (autotune_spmm, plan_spmm, spmm, SpmmVariant, (A, B)),
        (autotune_sddmm, plan_sddmm, sddmm, SddmmVariant, (A, LHS, RHS)),
    ]
    for tune, _, run, kind, operands in calls:
        few = candidates(kind.op)[:3]
        best = tune(*operands, variants=few, again=again)
        assert isinstance(best, kind) and tune(*operands, variants=few) == best
        found, expected = (run(*operands, v, backend="cuda") for v in (best, None))
        dense_of = [x if isinstance(x, np.ndarray) else x.toarray() for x in (found, expected)]
        np.testing.assert_allclose(*dense_of, rtol=1e-4, atol=1e-4)
    assert len(kept(tmp_path)) == 2


@pytest.mark.parametrize("wrong", [SddmmVariant(), "vector=4", None])
def test_variants_that_are_none_of_the_operation_are_refused(wrong):
    with pytest.raises(TypeError, match="variants has .*; each must be an SpmmVariant"):
        list(autotune._that_run(PROBLEM, [wrong]))


def test_the_folder_of_the_cache_may_be_named_from_home(monkeypatch):
    monkeypatch.setenv("SPARSEKERN_CACHE", "~/choices")
    assert autotune.cache_folder() == Path.home() / "choices"
