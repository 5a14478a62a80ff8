"""Where ptxas and nvdisasm are, and what is said without CUDA.

Only the standard library, since the doctor looks for them too.
"""

import os
import shutil
import sysconfig
from contextlib import contextmanager
from pathlib import Path


def find(name):
    """The path of a CUDA tool, or None.

    Where the wheels put it, before the PATH: Numba too takes its compiler from the wheels first, and a ptxas
    older than the compiler refuses its PTX.
    """
    wheels = Path(sysconfig.get_path("purelib"), "nvidia").glob("*/bin")
    return shutil.which(name, path=os.pathsep.join([*map(str, wheels), os.environ.get("PATH", "")]))


def tool(name):
    """The path of a CUDA tool. Raises FileNotFoundError that says what installs it."""
    found = find(name)
    if not found:
        raise FileNotFoundError(
            f"{name} was not found; machine code cannot be read without it: "
            "python -m sparsekern doctor prints the command that installs it"
        )
    return found


@contextmanager
def timing_imports():
    """A `with` block of imports for timing. Raises RuntimeError that says what installs CUDA if one fails."""
    try:
        yield
    except ImportError as error:
        raise RuntimeError(
            f"timing needs CUDA, which is not installed here ({error}): "
            "pip install 'sparsekern[cuda13]', or [cuda12]"
        ) from error
