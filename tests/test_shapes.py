"""Each shape with a reason, as `select` would have it run here and on a large GPU."""

import pytest
from operands import BACKENDS, check, dense
from protocols import check_products
from shapes import SHAPES

from sparsekern import plan_sddmm, plan_spmm, sddmm, spmm
from sparsekern.select import H200_WARPS, select


def products(a, n):
    b = dense(a.shape[1], n)
    return spmm, plan_spmm, (a, b), lambda c: check(a, b, c)


def samples(a, n):
    lhs, rhs = dense(a.shape[0], n), dense(a.shape[1], n, seed=4)
    return sddmm, plan_sddmm, (a, lhs, rhs), lambda result: check_products(a, lhs, rhs, result)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.reason)
@pytest.mark.parametrize("operation", [products, samples])
def test_each_shape_agrees_with_float64(operation, shape, backend):
    run, plan, operands, agree = operation(shape.matrix(), shape.n)
    here = plan(*operands, backend=backend)
    for warps in (0, H200_WARPS):
        variant, _ = select(here.problem, warps)
        agree(run(*operands, variant, backend=backend))


def test_shapes_are_few_and_each_has_a_reason_of_its_own():
    assert len({shape.reason for shape in SHAPES}) == len(SHAPES) <= 20
