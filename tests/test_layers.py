"""Real layers, where there are any: every file of SPARSEKERN_DLMC through the emulator, or on a GPU."""

import os

import numpy as np
import pytest

from sparsekern import LADDERS, spmm
from sparsekern.datasets import ROOT_VARIABLE, dlmc, layers, look_alike
from sparsekern.reference import error, spmm_reference, tolerance

REAL = dlmc() if os.environ.get(ROOT_VARIABLE) else []
NONE = pytest.param(None, marks=pytest.mark.skip(reason=f"{ROOT_VARIABLE} names no DLMC tree"))
BACKENDS = ["emulator", pytest.param("cuda", marks=pytest.mark.gpu)]


def check(a, n, variant=None, backend="emulator"):
    b = np.random.default_rng(1).standard_normal((a.shape[1], n), np.float32)
    c = spmm(a, b, variant, out=np.full((a.shape[0], n), np.nan, np.float32), backend=backend)
    assert error(c, *spmm_reference(a, b)) <= min(1e-6, tolerance(a.topology.row_lengths.max()))
    return c, b


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layer", REAL[:49] or [NONE], ids=lambda layer: getattr(layer, "name", None))
def test_a_real_layer_agrees_with_scipy(layer, backend):
    check(layer.load(), 8, backend=backend)


@pytest.mark.gpu
@pytest.mark.parametrize("step, variant", LADDERS["spmm"])
@pytest.mark.parametrize("path", [facts.path for facts in layers() if facts.nnz < 6000][::2])
def test_a_gpu_and_the_emulator_agree_to_rounding_on_every_step_of_the_ladder(path, step, variant):
    a = look_alike(path)
    on_gpu, b = check(a, 64, variant, "cuda")
    emulated, _ = check(a, 64, variant, "emulator")
    assert error(on_gpu, emulated.astype(np.float64), spmm_reference(a, b)[1]) <= 2.0**-22
