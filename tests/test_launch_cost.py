"""What a launch costs the host: how it is timed and recorded; on a GPU, that all of it can be."""

import pytest

from sparsekern.study import launch_cost
from sparsekern.study.launch_cost import FIRST, Cost, host_time, read_launch_costs, write_launch_costs
from sparsekern.study.records import RecordError

PROVENANCE = {"gpu": "NVIDIA Test", "cpu": "Test CPU: 3 GHz", "date": "2026-11-30"}
COSTS = [
    Cost("planned launch", 4.125, 0.0213, 8000, "512 x 512, 26214 nonzeros, 64 columns"),
    Cost(FIRST, 1_250_000.0, 0.0, 1, "spmm 512 x 512, 26214 nonzeros, 64 columns, vector=4,stage=True"),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "launch.csv"


def test_a_record_of_costs_reads_back_as_it_was_written(path):
    write_launch_costs(path, PROVENANCE, COSTS)
    found = read_launch_costs(path)
    assert (found.provenance, found.rows) == (PROVENANCE, COSTS)
    assert path.read_text().splitlines()[3:5] == [
        "what,time_us,spread,calls,problem",
        'planned launch,4.125,0.0213,8000,"512 x 512, 26214 nonzeros, 64 columns"',
    ]


@pytest.mark.parametrize(
    "line, message",
    [
        ("a,1,0,8", "line 5 has 4 fields; it must have 5"),
        ("a,fast,0,8,p", "line 5 has time_us 'fast'; it must be a number, at least 0"),
        ("a,-1,0,8,p", "line 5 has time_us '-1'"),
        ("a,nan,0,8,p", "line 5 has time_us 'nan'"),
        ("a,inf,0,8,p", "line 5 has time_us 'inf'"),
        ("a,1,-0.1,8,p", "line 5 has spread '-0.1'"),
        ("a,1,0,0,p", "line 5 has calls '0'; it must be a number, at least 1"),
        ("a,1,0,2.5,p", "line 5 has calls '2.5'"),
        (",1,0,8,p", "line 5 does not say what was called, or on what"),
    ],
)
def test_a_malformed_line_is_an_error_that_names_it(line, message, path):
    write_launch_costs(path, PROVENANCE, [])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(RecordError, match=message):
        read_launch_costs(path)


@pytest.mark.parametrize("text", ["", "# gpu: x\n", "op,matrix,m\n"])
def test_a_file_with_other_columns_is_no_record_of_costs(text, path):
    path.write_text(text)
    with pytest.raises(RecordError, match="no record of launch costs: line .* must be what,time_us"):
        read_launch_costs(path)


def test_a_time_is_the_median_over_batches_and_waiting_in_between_is_not_in_it(monkeypatch):
    clock = [0.0]
    costs = iter([7.0, *[1e-6] * 3, *[2e-6] * 3, *[9e-6] * 3])  # the first call compiles
    monkeypatch.setattr(launch_cost, "perf_counter", lambda: clock[0])

    def call():
        clock[0] += next(costs)

    def synchronize():
        clock[0] += 1.0

    time_us, spread = host_time(call, synchronize, batches=3, calls=3)
    assert time_us == pytest.approx(2.0)
    assert spread == pytest.approx((9 - 1) / 2)


def test_calls_that_wake_up_the_machine_are_not_in_the_time(monkeypatch):
    clock = [0.0]
    costs = iter([7.0, *[0.5] * 6, *[3e-6] * 4])  # two batches with their waits last for five seconds
    monkeypatch.setattr(launch_cost, "perf_counter", lambda: clock[0])

    def call():
        clock[0] += next(costs)

    def synchronize():
        clock[0] += 1.0

    assert host_time(call, synchronize, batches=2, calls=2, settle=5.5) == pytest.approx((3.0, 0.0))


def test_a_cpu_has_the_name_that_linux_gives_it_or_some_other(tmp_path, monkeypatch):
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(launch_cost, "CPU_INFO", info)
    assert launch_cost.cpu()
    info.write_text("processor\t: 0\nmodel name\t: Test CPU @ 3 GHz\nmodel name\t: other\n")
    assert launch_cost.cpu() == "Test CPU @ 3 GHz"


def test_every_variant_that_is_compiled_anew_fits_the_problem():
    from sparsekern.generators import uniform
    from sparsekern.ladders import LADDERS
    from sparsekern.ops import plan_sddmm, plan_spmm

    a = uniform(launch_cost.SIZE, launch_cost.SIZE, launch_cost.SPARSITY)
    b = launch_cost.np.zeros((launch_cost.SIZE, launch_cost.WIDTH), "float32")
    for op, ladder in LADDERS.items():
        steps = [variant for _, variant in ladder[-launch_cost.NEW :]]
        assert len(set(steps)) == launch_cost.NEW
        for variant in steps:
            plan = plan_spmm(a, b, variant, backend="emulator") if op == "spmm" else None
            plan = plan or plan_sddmm(a, b, b, variant, backend="emulator")
            assert plan.variant == variant


@pytest.mark.gpu
def test_all_that_is_recorded_can_be_measured(path, cupy, monkeypatch):
    monkeypatch.setattr(launch_cost, "BATCHES", 2)
    monkeypatch.setattr(launch_cost, "CALLS", 2)
    monkeypatch.setattr(launch_cost, "SETTLE", 0.0)
    monkeypatch.setattr(launch_cost, "NEW", 1)
    launch_cost.compile_kernel.cache_clear()  # of what other tests have compiled
    launch_cost.main(["--out", str(path)])
    record = read_launch_costs(path)
    said = {"gpu", "driver", "cpu", "kernels_sha256", "numba-cuda", "cupy", "time_us"}
    assert said <= record.provenance.keys()
    whats = [cost.what for cost in record.rows]
    assert whats.count(FIRST) == 2
    assert {"planned launch", "spmm(a, b) on CuPy", "sddmm(a, lhs, rhs) on CuPy"} <= set(whats)


def test_without_a_gpu_one_line_says_so(path, capsys, monkeypatch):
    monkeypatch.setattr(launch_cost.cuda, "is_available", lambda: False)
    assert launch_cost.main(["--out", str(path)]) == 2
    assert "needs a CUDA GPU" in capsys.readouterr().err and not path.exists()
