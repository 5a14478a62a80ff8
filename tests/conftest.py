import numpy as np
import pytest
from hypothesis import settings

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
    """Adds up what the tests of the lattice have recorded, over all xdist workers."""
    passed = terminalreporter.getreports("passed")
    counts = [count for report in passed for name, count in report.user_properties if name == "lattice"]
    if counts:
        terminalreporter.write_line(f"lattice: {sum(counts)} SpMM variants")


@pytest.fixture
def rng():
    return np.random.default_rng(7)
