"""The problems that grow, and what is read off their record."""

import re
from math import log10

import pytest
from timings import PROVENANCE, row

from sparsekern.study import scaling
from sparsekern.study.cases import Uniform
from sparsekern.study.cost import l1_bound_us
from sparsekern.study.gpus import GPUS
from sparsekern.study.records import RecordError, write
from sparsekern.study.scaling import BAR, problems, tflops_of

OPS = ["spmm", "sddmm"]


def size(case):
    """(rows, columns, width, nonzeros * width)"""
    u = case.layer
    return u.rows, u.columns, case.width, (1 - u.sparsity) * u.rows * u.columns * case.width


@pytest.mark.parametrize("op", OPS)
def test_sizes_span_four_decades_and_no_problem_comes_twice(op):
    found = [size(case)[3] for case in problems(op)]
    assert log10(max(found) / min(found)) > 4
    assert len(set(problems(op))) == len(problems(op))
    assert {case.layer.sparsity for case in problems(op)} == {0.8, 0.9, 0.95}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("varied", range(3), ids=["rows", "columns", "width"])
def test_each_size_is_varied_apart_by_a_factor_of_64_or_more(op, varied):
    base = [scaling.SIDE, scaling.SIDE, scaling.WIDTH]
    sizes = [size(case)[:3] for case in problems(op) if case.layer.sparsity == 0.9]
    alone = {s[varied] for s in sizes if all(s[i] == base[i] for i in range(3) if i != varied)}
    assert base[varied] in alone and len(alone) >= 4
    assert max(alone) >= 64 * min(alone)


def test_the_problem_of_the_bar_is_among_them():
    assert BAR in [(case.op, case.matrix, case.width) for case in problems("spmm")]


def test_a_name_says_how_to_make_the_matrix_again():
    for case in problems("spmm"):
        assert Uniform.named(case.matrix) == case.layer
    small = Uniform(40, 30, 0.9, seed=3)
    a, b = small.load(), Uniform.named(small.name).load()
    assert small.name == "uniform 40x30 0.9 seed 3"
    assert a.shape == (40, 30) and a.nnz == 120
    assert (a.topology.columns == b.topology.columns).all() and (a.values == b.values).all()


@pytest.mark.parametrize(
    "name", ["rn50/x/0.9/a.smtx", "uniform 40 0.9 seed 3", "uniform 4x3 0.9 seed 1 more"]
)
def test_another_name_is_refused(name):
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        Uniform.named(name)


def of_bar(us, **columns):
    nnz = round(8192 * 2048 * 0.2)
    return row(us, BAR[1], "vector=4", m=8192, k=2048, n=4096, nnz=nnz, **columns)


def test_tflops_are_two_flops_for_each_nonzero_and_column():
    assert row(10.0, nnz=1000, n=256).tflops == pytest.approx(2 * 1000 * 256 / 10e-6 / 1e12)
    assert row(1.0, op="sddmm", k=64, n=100, nnz=10).flops == 2 * 10 * 64
    rows = [of_bar(2000.0, l2="flushed"), of_bar(2036.0), row(1.0)]
    assert tflops_of(rows, *BAR) == pytest.approx(13.5, rel=1e-3)
    with pytest.raises(RecordError, match="no spmm of 'uniform 8192x2048 0.8 seed 0' at width 4096, L2 warm"):
        tflops_of(rows[::2], *BAR)


def test_the_command_prints_problems_by_size_with_rivals_and_the_bound(tmp_path, capsys):
    path = tmp_path / "scaling.csv"
    big = of_bar(2036.0, cusparse_us=3054.0, dense_fp32_us=2850.4)
    write(path, {**PROVENANCE, "gpu": "NVIDIA H200"}, [big, row(5.0, "uniform 100x100 0.9 seed 0")])
    scaling.main([str(path)])
    small, large = capsys.readouterr().out.splitlines()[3:]
    share = f"{l1_bound_us(big, GPUS['h200']) / 2036:.0%}"
    assert large.split() == [
        *BAR[1].split(),
        "4096",
        "1.4e+10",
        "2036.00",
        "13.50",
        share,
        "1.50",
        "1.40",
        "1.40",
    ]
    assert "5.00" in small and small.rstrip().endswith("%")


def test_the_bound_of_a_gpu_that_is_not_known_is_not_guessed(tmp_path, capsys):
    path = tmp_path / "scaling.csv"
    write(path, PROVENANCE, [row(5.0, "uniform 100x100 0.9 seed 0")])
    scaling.main([str(path)])
    assert "not known" in capsys.readouterr().out
