from collections import Counter

import numpy as np
import pytest
from hypothesis import settings
from on_device import cupy_or_skip, torch_or_skip

from sparsekern.machine.backends import device_backend

settings.register_profile("sparsekern", deadline=None)  # the first example compiles
settings.load_profile("sparsekern")


def pytest_collection_modifyitems(items):
    if device_backend() != "cuda":
        no_gpu = pytest.mark.skip(reason="needs a CUDA GPU, and none answers here")
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(no_gpu)


def pytest_terminal_summary(terminalreporter):
    """Adds up what the tests of the lattices have recorded, over all xdist workers."""
    counts = Counter()
    for report in terminalreporter.getreports("passed"):
        counts.update({name: count for name, count in report.user_properties if name.startswith("lattice")})
    for name in sorted(counts, reverse=True):
        _, op = name.split()
        terminalreporter.write_line(f"lattice: {counts[name]} {op} variants")


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def cupy():
    return cupy_or_skip()


@pytest.fixture
def torch(request):
    return torch_or_skip(on_device="gpu" in request.keywords)
