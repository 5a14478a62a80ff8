"""Where times come from: the GPU, the versions, the sources of the kernels."""

import hashlib
import platform
import subprocess
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from sparsekern.study.gpus import device_name

PACKAGE = Path(__file__).resolve().parents[1]
SPUTNIK = "carried over from an earlier run of the authors' library, not measured in this process"


def provenance(l2, libraries=None, sputnik=False):
    """{key: text} of times measured on the current GPU.

    l2: "warm", "flushed" or "both". libraries: {name: version} of the rivals; None if they are not run.
    sputnik: whether the column sputnik_us is filled.
    """
    from sparsekern.study.bench import LAUNCHES

    found = {
        **origin(**libraries or {}),
        "l2": l2,
        "launches": f"up to {LAUNCHES} in a graph if L2 is warm, 1 if flushed",
    }
    return {**found, "sputnik_us": SPUTNIK} if sputnik else found


def origin(**versions):
    """{key: text}: the current GPU, the versions of what runs on it, and those given; sources and date."""
    from cuda.bindings import runtime
    from numba import cuda

    from sparsekern.study.bench import call

    device, version = cuda.get_current_device(), call(runtime.cudaDriverGetVersion)
    packages = ("numba", "numba-cuda", "numpy", "cuda-bindings")
    found = {
        "gpu": device_name(device),
        "sms": device.MULTIPROCESSOR_COUNT,
        "clock_mhz": device.CLOCK_RATE // 1000,
        "driver": _driver(),
        "cuda": f"{version // 1000}.{version % 1000 // 10}",
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in packages},
        **versions,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "commit": commit(),
        "kernels_sha256": kernel_hash(),
    }
    return {key: str(value) for key, value in found.items() if value is not None}


def kernel_hash(package=PACKAGE):
    """SHA-256 over all that decides on a kernel's machine code: kernels/*.py and machine/lanes.py."""
    digest = hashlib.sha256()
    for path in [*sorted((package / "kernels").glob("*.py")), package / "machine" / "lanes.py"]:
        digest.update(f"{path.name}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def commit(package=PACKAGE):
    """The commit of the sources, with +dirty if they have been edited since; None outside git."""
    head = _run("git", "-C", str(package), "rev-parse", "--short=12", "HEAD")
    if head is None:
        return None
    return head + ("+dirty" if _run("git", "-C", str(package), "status", "--porcelain", "--", ".") else "")


def _driver():
    """The version of the driver, or "unknown" where nvidia-smi does not say."""
    return (_run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or "unknown").split()[0]


def _run(*command):
    """What a command prints, stripped; None if it fails or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
