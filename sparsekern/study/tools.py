"""Where ptxas and nvdisasm are. Only the standard library, since the doctor looks for them too."""

import os
import shutil
import sysconfig
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
