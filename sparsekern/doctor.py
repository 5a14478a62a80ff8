"""What this machine has for running kernels, and the command that mends each lack.

Only the standard library is imported up here: a broken installation is what this is for.
"""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module, metadata
from pathlib import Path

from sparsekern.study.gpus import device_name
from sparsekern.study.tools import find

DISK = 2 * 10**9  # bytes that an installation with notebooks wants


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    detail: str  # what was found, or what is wrong
    mend: str = ""  # the command that mends it, if one does


class Lack(Exception):
    """What a probe did not find."""


def check(name, probe, mend):
    """A probe returns what it found. Whatever it raises is what is wrong."""
    try:
        return Check(name, True, probe())
    except metadata.PackageNotFoundError:
        return Check(name, False, "not installed", mend)
    except Lack as lack:
        return Check(name, False, str(lack), mend)
    except Exception as error:
        line = next(filter(str.strip, str(error).splitlines()), "")
        return Check(name, False, f"{type(error).__name__}: {line}", mend)


def report():
    """Every check, from the interpreter up."""
    toolchain = pip(*requirements(flavour())) if sys.platform != "darwin" else ""
    return [
        check("Python", python, "make PYTHON=python3.12 demo"),
        *packages(),
        check("emulator", emulator, pip(*requirements())),
        check("compiler", compiler, toolchain),
        check("GPU", gpu, toolchain if smi() else "nvidia-smi  # lists a GPU once its driver works"),
        check("ptxas", partial(tool, "ptxas"), toolchain),
        check("nvdisasm", partial(tool, "nvdisasm"), toolchain),
        check("notebooks", notebooks, pip(*requirements("notebooks"))),
        check("SPARSEKERN_DLMC", dlmc, "export SPARSEKERN_DLMC=/path/to/dlmc"),
        check("disk", disk, f"{shlex.quote(sys.executable)} -m pip cache purge"),
    ]


def main():
    """Print the report. 0 if kernels can run, in the emulator or on a GPU; otherwise 1."""
    checks = report()
    show(checks)
    ok = {c.name: c.ok for c in checks}
    on_gpu = ok["GPU"] and ok["compiler"]
    if on_gpu or ok["emulator"]:
        print("Kernels run here,", "on the GPU." if on_gpu else "in the emulator.")
        return 0
    print("Kernels do not run here yet.")
    return 1


def show(checks):
    mends = {c.name: c.mend for c in checks if c.mend}
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        for c in checks:
            print(f"{'ok' if c.ok else 'missing':8}{c.name:16} {c.detail}")
        for name, mend in mends.items():
            print(f"{name}: {mend}")
        return
    console = Console()
    table = Table(box=None, show_header=False, pad_edge=False)
    for overflow in "ellipsis", "ellipsis", "fold":
        table.add_column(overflow=overflow)
    for c in checks:
        table.add_row(Text("ok", "green") if c.ok else Text("missing", "yellow"), c.name, Text(c.detail))
    console.print(table)
    for name, mend in mends.items():  # not in the table, so that a command is never broken over lines
        console.print(Text.assemble((f"{name}: ", "yellow"), mend), soft_wrap=True)


# What sparsekern asks for, from its own metadata


def declared():
    from packaging.requirements import Requirement

    return [Requirement(line) for line in metadata.requires("sparsekern") or ()]


def requirements(extra=""):
    """The requirements of sparsekern, or of one of its extras, on this kind of machine; [] if unknown."""
    try:
        known = declared()
    except Exception:
        return []

    def applies(requirement, extra):
        return requirement.marker is None or requirement.marker.evaluate({"extra": extra})

    return [r for r in known if applies(r, extra) and not (extra and applies(r, ""))]


def pip(*wanted):
    """The command that installs `wanted`, or sparsekern from its checkout when that is not known."""
    names = [str(r).split(";")[0] for r in wanted] or ["-e", f".[{flavour()},notebooks]"]
    return shlex.join([sys.executable, "-m", "pip", "install", *names])


def flavour():
    """The extra for the CUDA that the driver speaks: 12, or else 13."""
    return "cuda12" if re.search(r"CUDA.* Version: *12\.", smi()) else "cuda13"


@cache
def smi():
    """What nvidia-smi says; "" without a driver."""
    try:
        return subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def packages():
    """One check for each package of the core, for llvmlite, which comes with numba, and for numba-cuda."""
    core = requirements()
    if not core:
        return [check("sparsekern", declared, pip())]
    checks = [check(r.name, partial(installed, r), pip(r)) for r in core]
    checks.append(check("llvmlite", partial(metadata.version, "llvmlite"), pip(*core)))
    for r in requirements(flavour()):
        if r.name == "numba-cuda":
            checks.append(check(r.name, partial(installed, r), pip(r)))
    return checks


def installed(requirement):
    version = metadata.version(requirement.name)
    if not requirement.specifier.contains(version, prereleases=True):
        raise Lack(f"{version}, which is not {requirement.specifier}")
    return version


# The probes


def python():
    version = platform.python_version()
    if sys.version_info < (3, 10):  # noqa: UP036, since pip can be told to ignore it
        raise Lack(f"{version}, which is not >=3.10")
    return f"{version}, {sys.executable}"


def emulator():
    import_module("sparsekern.machine.emulator")
    return "runs every kernel on the CPU"


def compiler():
    from numba import cuda, float32

    def fill(out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = 1

    ptx, _ = cuda.compile_ptx(fill, (float32[::1],), cc=(8, 0))
    release = re.search(r"release ([\d.]+)", ptx)
    return f"NVVM of CUDA {release[1]} makes PTX" if release else "makes PTX"


def gpu():
    from numba import cuda

    if not cuda.is_available():
        raise Lack("none that Numba can use; kernels run in the emulator")
    device = cuda.get_current_device()
    name = device_name(device)
    driver = re.search(r"(?:Driver|KMD) Version: *([\d.]+)", smi())
    capability = ".".join(map(str, device.compute_capability))
    return f"{name}, compute capability {capability}, driver {driver[1] if driver else 'unknown'}"


def tool(name):
    found = find(name)
    if not found:
        raise Lack("not found; machine code cannot be read without it")
    return found


def notebooks():
    wanted = requirements("notebooks")
    if not wanted:
        raise Lack("not known")
    checks = [check(r.name, partial(installed, r), "") for r in wanted]
    if not all(c.ok for c in checks):
        raise Lack("; ".join(f"{c.name} {c.detail}" for c in checks if not c.ok))
    return ", ".join(r.name for r in wanted)


def dlmc():
    folder = os.environ.get("SPARSEKERN_DLMC")
    if not folder:
        raise Lack("not set; only the look-alikes of its matrices are at hand")
    if next(Path(folder).rglob("*.smtx"), None) is None:
        raise Lack(f"no .smtx file in {folder}")
    return folder


def disk():
    free = shutil.disk_usage(sys.prefix).free
    if free < DISK:
        raise Lack(f"{free / 1e9:.1f} GB free where Python packages go, {DISK / 1e9:.0f} GB wanted")
    return f"{free / 1e9:.0f} GB free"
