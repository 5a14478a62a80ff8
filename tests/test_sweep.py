"""The loop over problems and variants, with a measuring function of the test's own."""

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from timings import PROVENANCE

from sparsekern import LADDERS
from sparsekern.__main__ import main
from sparsekern.datasets import Layer, layers
from sparsekern.naming import format_variant
from sparsekern.study import bench_command, scaling
from sparsekern.study.ablation import choice_and_each_off
from sparsekern.study.bench_command import read_variants
from sparsekern.study.cases import cases, paper_n
from sparsekern.study.records import LEVELS, Appender, RecordError, read
from sparsekern.study.sweep import WrongKernel, read_sputnik, sweep
from sparsekern.toggles import VariantError
from sparsekern.variants import SpmmVariant

VARIANTS = [SpmmVariant(), SpmmVariant(vector=4), SpmmVariant(stage=True)]
CHOSEN = SpmmVariant(vector=2)


def layer(name):
    model, method, sparsity, _ = name.split("/")
    return Layer(name, Path("nowhere") / name, model, method, float(sparsity))


CASES = cases(
    "spmm", [layer("transformer/random_pruning/0.9/a.smtx"), layer("rn50/random_pruning/0.9/b.smtx")], (8, 16)
)


@dataclass
class Timing:
    us: float
    spread: float = 0.01


class Bench:
    """Stands in for a workbench: counts what it is asked for, and fails when and where told to."""

    def __init__(self, stop_at=None, wrong=(), refused=()):
        self.timed, self.rivals_timed, self.opened = Counter(), Counter(), Counter()
        self.stop_at, self.wrong, self.refused = stop_at, wrong, refused

    @contextmanager
    def __call__(self, case):
        self.case = case
        self.opened[case] += 1
        yield self

    @property
    def sizes(self):
        return {"m": 10, "k": 20, "n": self.case.width, "nnz": 50}

    def choose(self):
        return CHOSEN

    def time(self, variant, l2):
        if self.timed.total() == self.stop_at:
            raise KeyboardInterrupt
        if variant in self.wrong:
            raise WrongKernel("error 1.0e+00 of the sums of absolute values; allowed 1.0e-06")
        if variant in self.refused:
            raise VariantError("vector=4 needs ldb to be a multiple of 4")
        self.timed[self.case, variant, l2] += 1
        return Timing(float(self.timed.total()))

    def rivals(self, l2):
        self.rivals_timed[self.case, l2] += 1
        return {"cusparse_us": 7.0, "cusparse_alg": "CSR_ALG3"}, []


def run(path, bench, variants=VARIANTS, levels=LEVELS, **options):
    with Appender(path, PROVENANCE) as record:
        return sweep(CASES, variants, levels, record, bench, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.csv"


def keys(path):
    return Counter((row.problem, row.variant) for row in read(path).rows)


EVERY = Counter({
    ((case.op, case.matrix, case.width, l2), format_variant(variant)): 1
    for case in CASES for l2 in LEVELS for variant in VARIANTS
})  # fmt: skip


def test_every_variant_is_timed_once_on_every_problem_at_every_level(path):
    bench = Bench()
    outcome = run(path, bench)
    assert keys(path) == EVERY
    assert (outcome.measured, outcome.known) == (len(EVERY), 0)
    assert set(bench.opened.values()) == set(bench.rivals_timed.values()) == {1}


@pytest.mark.parametrize("stop_at", range(len(EVERY)))
@pytest.mark.parametrize("torn", [0, 1, 30], ids=["whole lines", "no line end", "half a line"])
def test_killed_and_resumed_nothing_is_measured_twice_and_nothing_is_lost(stop_at, torn, path):
    first, second = Bench(stop_at), Bench()
    with pytest.raises(KeyboardInterrupt):
        run(path, first)
    kept = keys(path)
    if torn and stop_at:
        path.write_text(path.read_text()[:-torn])
        kept.subtract([list(kept)[-1]])  # the row whose line is now no whole one
        kept = +kept
    assert kept.total() == first.timed.total() - bool(torn and stop_at)
    outcome = run(path, second)
    assert keys(path) == EVERY
    assert (outcome.measured, outcome.known) == (len(EVERY) - kept.total(), kept.total())
    again = {((c.op, c.matrix, c.width, l2), format_variant(v)) for c, v, l2 in second.timed}
    assert not again & set(kept)
    rivals_again = {(c.op, c.matrix, c.width, l2) for c, l2 in second.rivals_timed}
    assert not rivals_again & {problem for problem, _ in kept}
    assert {row.cusparse_us for row in read(path).rows} == {7.0}


def test_a_finished_sweep_opens_no_problem_again(path):
    run(path, Bench())
    bench, seen = Bench(), []
    outcome = run(path, bench, advance=seen.append)
    assert not bench.opened
    assert (outcome.measured, outcome.known) == (0, len(EVERY)) == (0, len(seen))


def test_progress_counts_each_timing_whether_new_or_known(path):
    seen = []
    with pytest.raises(KeyboardInterrupt):
        run(path, Bench(stop_at=5), advance=seen.append)
    assert len(seen) == 5
    run(path, Bench(), advance=seen.append)
    assert len(seen) == 5 + len(EVERY)


def test_a_sweep_under_another_provenance_is_refused_before_anything_is_timed(path):
    run(path, Bench())
    with pytest.raises(RecordError, match="gpu: NVIDIA Test there, NVIDIA Other now"):
        Appender(path, {**PROVENANCE, "gpu": "NVIDIA Other"})


def test_a_wrong_kernel_is_named_and_not_recorded_and_the_others_are(path):
    outcome = run(path, Bench(wrong=VARIANTS[1:2]))
    assert {row.variant for row in read(path).rows} == {"plain", "stage=True"}
    assert len(outcome.wrong) == len(CASES) * len(LEVELS)
    assert outcome.wrong[0].startswith(
        "spmm transformer/random_pruning/0.9/a.smtx at n=8, vector=4: error 1.0e+00"
    )


def test_a_variant_that_cannot_run_a_problem_is_no_wrong_one(path):
    outcome = run(path, Bench(refused=VARIANTS[1:2]))
    assert not outcome.wrong
    assert "vector=4: vector=4 needs ldb" in outcome.refused[0]
    assert {row.variant for row in read(path).rows} == {"plain", "stage=True"}


def test_the_library_s_own_choice_is_recorded_under_its_name_and_measured_once(path):
    assert run(path, Bench(), [None], ("warm",)).measured == len(CASES)
    assert {row.variant for row in read(path).rows} == {"vector=2"}
    outcome = run(path, second := Bench(), [None, CHOSEN], ("warm",))
    assert (outcome.measured, outcome.known, second.timed.total()) == (0, len(CASES), 0)


def without_vectors(bench):
    """What is chosen and one more, and the first of them again."""
    return [bench.choose(), SpmmVariant(), bench.choose()]


def test_a_function_says_which_variants_a_problem_gets_and_each_is_timed_once(path):
    bench, seen = Bench(), []
    outcome = run(path, bench, [without_vectors], ("warm",), advance=seen.append)
    assert {row.variant for row in read(path).rows} == {"vector=2", "plain"}
    assert [row.variant for row in read(path).rows][::2] == ["vector=2"] * len(CASES)
    assert (outcome.measured, bench.timed.total(), len(seen)) == (2 * len(CASES), 2 * len(CASES), len(CASES))
    outcome = run(path, second := Bench(), [without_vectors, None, *VARIANTS[:1]], ("warm",))
    assert (outcome.measured, outcome.known) == (second.timed.total(), 2 * len(CASES)) == (0, 2 * len(CASES))


@pytest.mark.parametrize("stop_at", range(2 * len(CASES)))
def test_what_a_function_says_is_gone_on_with_where_it_stopped_and_the_best_stays_first(stop_at, path):
    with pytest.raises(KeyboardInterrupt):
        run(path, Bench(stop_at), [without_vectors], ("warm",))
    run(path, Bench(), [without_vectors], ("warm",))
    assert [row.variant for row in read(path).rows] == ["vector=2", "plain"] * len(CASES)


def test_an_ablation_times_the_choice_first(path):
    run(path, Bench(), [choice_and_each_off], ("warm",))
    assert [row.variant for row in read(path).rows] == ["vector=2", "plain"] * len(CASES)


def test_a_wrong_kernel_that_is_asked_for_twice_is_tried_and_named_once(path):
    outcome = run(path, Bench(wrong=[CHOSEN]), [None, CHOSEN], ("warm",))
    assert len(outcome.wrong) == len(CASES)


def test_times_of_sputnik_are_carried_over_for_the_same_problem_with_a_warm_cache_only(path, tmp_path):
    other = tmp_path / "baselines.csv"
    other.write_text(
        "op,dtype,matrix,m,k,n,nnz,sputnik_us\n"
        f"spmm,float32,{CASES[0].matrix},10,20,8,50,12.5\n"
        f"spmm,float16,{CASES[1].matrix},10,20,16,50,3\n"
        f"sddmm,float32,{CASES[1].matrix},10,20,16,50,4\n"
        f"spmm,float32,{CASES[2].matrix},10,20,8,50,\n"
        f"softmax,float32,{CASES[2].matrix},10,20,,50,5\n"
    )
    run(path, Bench(), carried=read_sputnik(other))
    assert {(row.matrix, row.n, row.l2) for row in read(path).rows if row.sputnik_us is not None} == {
        (CASES[0].matrix, 8, "warm")
    }
    assert {row.sputnik_us for row in read(path).rows} == {12.5, None}


@pytest.mark.parametrize("cells", ["100,100,many,12.5", "100,100,256,fast"])
def test_a_time_of_sputnik_that_is_no_number_is_refused_with_its_line(cells, tmp_path):
    path = tmp_path / "baselines.csv"
    path.write_text(f"op,dtype,matrix,m,k,n,sputnik_us\ngemm,float32,x,,,,\nspmm,float32,x,{cells}\n")
    with pytest.raises(ValueError, match=r"baselines\.csv, line 3, has m '100', k '100', n .*; all must be"):
        read_sputnik(path)


def test_a_file_without_times_of_sputnik_is_refused(tmp_path):
    path = tmp_path / "baselines.csv"
    path.write_text("op,matrix,m,k,n\n")
    with pytest.raises(ValueError, match="lacks the columns dtype, sputnik_us"):
        read_sputnik(path)


PAPER = {  # columns of B in the record of the baselines
    "rn50/extended_magnitude_pruning/0.8/bottleneck_2_block_group1_1_1.smtx": (3136,),
    "rn50/extended_magnitude_pruning/0.91/bottleneck_3_block_group3_2_1.smtx": (196,),
    "rn50/extended_magnitude_pruning/0.96/final_dense.smtx": (4,),
    "rn50/magnitude_pruning/0.5/bottleneck_1_block_group_projection_block_group1.smtx": (3136,),
    "rn50/magnitude_pruning/0.9/bottleneck_2_block_group3_1_1.smtx": (196,),
    "rn50/magnitude_pruning/0.95/initial_conv.smtx": (12544,),
    "rn50/random_pruning/0.9/bottleneck_1_block_group4_1_1.smtx": (52,),
    "transformer/variational_dropout/0.9/body_encoder_layer_0_ffn_conv1.smtx": (256, 2048),
    # and in the facts of the whole collection, rounded up to multiples of 4
    "rn50/magnitude_pruning/0.5/bottleneck_1_block_group2_3_1.smtx": (784,),
    "rn50/magnitude_pruning/0.5/bottleneck_1_block_group_projection_block_group2.smtx": (3136,),
    "rn50/magnitude_pruning/0.5/bottleneck_1_block_group_projection_block_group4.smtx": (196,),
    "rn50/magnitude_pruning/0.5/bottleneck_2_block_group_projection_block_group2.smtx": (784,),
    "rn50/magnitude_pruning/0.5/bottleneck_projection_block_group_projection_block_group2.smtx": (784,),
    "rn50/magnitude_pruning/0.5/bottleneck_projection_block_group_projection_block_group4.smtx": (52,),
}  # fmt: skip


@pytest.mark.parametrize("name", PAPER)
def test_n_of_the_paper(name):
    assert tuple(case.width for case in cases("spmm", [layer(name)], "paper")) == PAPER[name]
    assert [case.width for case in cases("sddmm", [layer(name)], "paper")] == [64, 256, 1024]


def test_n_of_the_paper_is_what_the_facts_say_rounded_up_and_makes_77_and_147_problems():
    known = layers()
    for facts in known:
        assert paper_n(layer(facts.path))[0] == -(-facts.N_small // 4) * 4, facts.path
    assert [len(cases(op, [layer(f.path) for f in known], "paper")) for op in ("spmm", "sddmm")] == [77, 147]


@pytest.mark.parametrize(
    "name, message",
    [
        ("vgg/x/0.5/conv.smtx", "is of model 'vgg'"),
        ("rn50/x/0.5/block_group5_1.smtx", "no layer of ResNet-50"),
    ],
)
def test_a_layer_that_the_paper_has_not_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        cases("spmm", [layer(name)], "paper")


def test_variants_come_from_the_ladder_the_library_or_a_file(tmp_path):
    file = tmp_path / "variants.txt"
    file.write_text("# mine\nplain\n\nvector=4, stage=True\nstage=True,vector=4\n")
    assert read_variants("spmm", "ladder") == [variant for _, variant in LADDERS["spmm"]]
    assert read_variants("sddmm", "default") == [None]
    assert read_variants("sddmm", "ablation") == [choice_and_each_off]
    assert read_variants("spmm", str(file)) == [SpmmVariant(), SpmmVariant(vector=4, stage=True)]


@pytest.mark.parametrize(
    "text, message", [("# none\n", "names no variant"), ("plain\nroma\n", "line 2: variant is 'roma'")]
)
def test_a_file_of_no_variants_or_of_others_is_refused(text, message, tmp_path):
    file = tmp_path / "variants.txt"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_variants("spmm", str(file))


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Runs the command line on two layers of a tree with a `Bench` in place of a GPU."""
    for case in CASES:
        (tmp_path / "dlmc" / case.matrix).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dlmc" / case.matrix).write_text("1, 1, 0\n0 0\n\n")

    def run(bench, *words):
        class Laboratory:
            libraries, open = None, staticmethod(bench)
            __init__ = lambda self, baselines: None  # noqa: E731
            __enter__, __exit__ = lambda self: self, lambda self, *_: None

        pieces = Laboratory, lambda *_: dict(PROVENANCE)
        monkeypatch.setattr(bench_command, "_instruments", lambda: pieces)
        tree = str(tmp_path / "dlmc")
        layers = ["--dlmc", tree, "--n", "8,16"] if "--problems" not in words else []
        return main(["bench", *layers, "--no-baselines", "--l2", "both", *words])

    return run


def test_an_interrupted_command_leaves_a_record_says_how_to_go_on_and_does(command, path, capsys):
    words = ["--out", str(path)]
    assert command(Bench(stop_at=40), *words) == 130
    assert "Interrupted after 40 timings" in (said := capsys.readouterr().err)
    assert "the same command goes on from there" in said
    assert len(read(path).rows) == 40
    assert command(Bench(), *words) == 0
    assert f"{8 * len(LADDERS['spmm']) - 40} timings, and 40 recorded before" in capsys.readouterr().out
    assert max(keys(path).values()) == 1 and len(read(path).rows) == 4 * 2 * len(LADDERS["spmm"])


def test_a_command_whose_minutes_are_over_says_so_by_its_status_and_goes_on_when_called_again(
    command, path, capsys, monkeypatch
):
    words, total, statuses = ["--out", str(path), "--minutes", "0.5"], 8 * len(LADDERS["spmm"]), []
    while not statuses or statuses[-1]:
        bench = Bench()
        monkeypatch.setattr(bench_command, "monotonic", bench.timed.total)  # each timing takes a second
        statuses.append(command(bench, *words))
        assert len(statuses) < total
    assert statuses == [75] * (total // 31) + [0]
    said = capsys.readouterr().err
    assert "Stopped, as 0.5 minutes are over, after 62 timings, 31 of them new" in said
    assert "the same command goes on from there" in said
    assert max(keys(path).values()) == 1 and len(read(path).rows) == total


def test_a_command_with_too_few_minutes_for_what_is_known_still_times_something_new(
    command, path, monkeypatch
):
    ticks = iter(range(100_000))
    monkeypatch.setattr(
        bench_command, "monotonic", lambda: 60 * next(ticks)
    )  # all takes a minute, known or not
    words = ["--out", str(path), "--minutes", "2"]
    for timings in range(3, 6):
        assert command(Bench(), *words) == 75
        assert len(read(path).rows) == timings


@pytest.mark.parametrize("text", ["0", "-1", "soon", "inf", "nan"])
def test_minutes_that_are_none_are_refused(text, command, capsys):
    with pytest.raises(SystemExit):
        command(Bench(), "--minutes", text)
    assert "is not a number of minutes" in capsys.readouterr().err


def test_the_problems_of_scaling_are_timed_by_the_choice_of_the_library(command, path):
    words = ["--problems", "scaling", "--variants", "default", "--op", "sddmm", "--out", str(path)]
    assert command(Bench(), *words) == 0
    wanted = {(case.op, case.matrix, case.width) for case in scaling.problems("sddmm")}
    assert {row.problem[:2] for row in read(path).rows} == {(op, matrix) for op, matrix, _ in wanted}
    assert len(read(path).rows) == 2 * len(wanted)


def test_the_command_fails_when_a_kernel_is_wrong_and_names_it(command, path, capsys):
    wrong = LADDERS["spmm"][-1][1]
    assert command(Bench(wrong=[wrong]), "--out", str(path), "--matrix", "a.smtx") == 1
    assert (
        f"WRONG, not recorded: spmm {CASES[0].matrix} at n=8, {format_variant(wrong)}"
        in capsys.readouterr().out
    )
    assert len(read(path).rows) == 2 * 2 * (len(LADDERS["spmm"]) - 1)


def test_the_command_refuses_what_it_cannot_do(command, path, capsys):
    for words, message in [
        (["--matrix", "none.smtx"], "no layer of the tree has that in its name"),
        (["--variants", "gone.txt"], "gone.txt"),
        (["--sputnik", "gone.csv"], "gone.csv"),
        (["--problems", "scaling", "--n", "8"], "--n is of layers; --problems scaling has matrices"),
        (["--problems", "scaling", "--dlmc", "dlmc"], "--dlmc is of layers"),
        (["--problems", "scaling", "--matrix", "conv"], "no matrix of scaling has that in its name"),
    ]:
        assert command(Bench(), *words) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command(Bench(), "--n", "0")
    assert "is not a whole number from 1 to 65536" in capsys.readouterr().err


def test_repeats_are_printed_with_their_spread_and_not_recorded(command, path, capsys):
    words = ["--repeat", "3", "--variants", "default", "--matrix", "a.smtx", "--out", str(path)]
    assert command(Bench(), *words) == 0
    assert "3 medians around 2.00 µs, largest - smallest 100.00% of that" in capsys.readouterr().out
    assert not path.exists()
