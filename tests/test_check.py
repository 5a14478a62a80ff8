"""`check`: a kernel put to the test in a few seconds."""

import numpy as np
import pytest
from planted import planted

import sparsekern as sk
from sparsekern.kernels import sddmm as sddmm_page
from sparsekern.kernels import spmm as spmm_page
from sparsekern.kernels import spmm_in_flight as in_flight_page
from sparsekern.zoo import ZOO

FEW = {
    name: ZOO[name].make() for name in ("one_giant_row", "misaligned_rows", "no_nonzeros", "window_of_rows")
}


@pytest.mark.parametrize("make", [sk.make_spmm, sk.make_sddmm])
def test_the_library_s_kernels_pass_on_the_whole_zoo(make, capsys):
    assert sk.check(make) is True
    assert f"{len(ZOO)} agree with float64" in capsys.readouterr().out


@pytest.mark.parametrize("op", sk.LADDERS)
def test_every_step_of_a_ladder_passes(op, capsys):
    for _, variant in sk.LADDERS[op]:
        assert sk.check(variant=variant, matrices=FEW), variant


def test_a_kernel_that_forgets_the_residue_is_wrong(capsys):
    make = planted(spmm_page, "for j in range(start, stop):", "for j in range(start, stop - 1):")
    variant = sk.SpmmVariant(rows_per_block=4, stage=True)
    assert sk.check(make, variant, matrices=FEW) is False
    text = capsys.readouterr().out
    assert f"FAILED on one_giant_row ({ZOO['one_giant_row'].why})" in text
    assert "wrong: error" in text and "no_nonzeros" not in text


def test_a_kernel_that_multiplies_what_is_masked_by_zero_leaks(capsys):
    faithful = sk.SpmmVariant(rows_per_block=4, stage=True, unroll_residue=True, faithful=True)
    untouched = {"row 0": ZOO["last_column_only"].make()}
    assert sk.check(sk.make_spmm, faithful, matrices=untouched) is False
    assert "wrong: error inf" in capsys.readouterr().out


def test_what_the_emulator_reports_is_printed_with_its_line(capsys):
    make = planted(sddmm_page, "lanes.load_if(j < count, columns", "lanes.load_if(True, columns")
    assert sk.check(make, matrices=FEW) is False
    assert "out of bounds: columns[" in capsys.readouterr().out


def test_the_operation_is_told_from_the_kernel_and_a_kernel_of_neither_is_refused():
    with pytest.raises(TypeError, match="parameters of neither"):
        sk.check(lambda variant, types: lambda x: None)
    with pytest.raises(TypeError, match="make, variant and op are all None"):
        sk.check()
    with pytest.raises(TypeError, match="variant is a SpmmVariant; it must be an SddmmVariant"):
        sk.check(variant=sk.SpmmVariant(), op="sddmm")
    with pytest.raises(TypeError, match="op is 'gemm'; it must be one of spmm, sddmm"):
        sk.check(op="gemm")


def test_a_page_is_checked_with_the_last_step_that_it_has(capsys):
    for page, in_flight in ((spmm_page, False), (in_flight_page, True)):
        make = planted(page, "return total", "return total + 0")
        assert sk.check(make, matrices=FEW) is True
        assert ("in_flight" in capsys.readouterr().out.splitlines()[0]) == in_flight


LEADING_DIMENSIONS = [
    (spmm_page, "batch * c_stride + row * ldc + column", "batch * c_stride + row * ldb + column"),
    (sddmm_page, "row * ld_lhs", "row * ld_rhs"),
]


@pytest.mark.parametrize("page, old, new", LEADING_DIMENSIONS)
def test_a_kernel_that_mixes_up_leading_dimensions_fails(page, old, new, capsys):
    assert sk.check(planted(page, old, new), matrices=FEW) is False


BESIDE = [  # stores into padding of a row of C, and into values that belong to no row of a window
    (spmm_page, "if c + VECTOR <= n:", "if c + VECTOR <= ldc:"),
    (
        sddmm_page,
        "if j < count:\n                    lanes.store(out",
        "if j >= 0:\n                    lanes.store(out",
    ),
]


@pytest.mark.parametrize("page, old, new", BESIDE)
def test_a_kernel_that_writes_beside_the_result_fails(page, old, new, capsys):
    assert sk.check(planted(page, old, new), matrices=FEW) is False
    assert "out of bounds" in capsys.readouterr().out


def test_a_matrix_that_the_variant_cannot_run_is_named_and_is_no_failure(capsys):
    a = ZOO["whole_tiles"].make()
    values = np.zeros(a.nnz + 1, np.float32)[1:]  # 4 bytes past alignment
    variant = sk.SpmmVariant(rows_per_block=4, stage=True, sparse_vector=4, roma=True)
    assert sk.check(variant=variant, matrices={"off": a.with_values(values), **FEW}) is True
    text = capsys.readouterr().out
    assert "cannot run off: roma with sparse_vector=4 needs A's values to start on 16 bytes" in text
    assert f"{len(FEW)} agree" in text
    assert sk.check(variant=variant, matrices={"off": a.with_values(values)}) is False
