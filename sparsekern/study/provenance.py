"""Where times come from: the GPU, the versions, the sources of the kernels."""

import hashlib
import platform
import subprocess
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
SPUTNIK = "carried over from an earlier run of the authors' library, not measured in this process"


def provenance(l2, libraries=None, sputnik=False):
    """{key: text} of measurements on the current GPU.

    l2: "warm", "flushed" or "both". libraries: versions of cuSPARSE and cuBLAS by name; None if they are not
    run. sputnik: whether the column sputnik_us is filled.
    """
    from cuda.bindings import runtime
    from numba import cuda

    from sparsekern.study.bench import LAUNCHES, call

    device, version = cuda.get_current_device(), call(runtime.cudaDriverGetVersion)
    name = device.name.decode() if isinstance(device.name, bytes) else device.name
    libraries = libraries or {}
    found = {
        "gpu": name,
        "sms": device.MULTIPROCESSOR_COUNT,
        "clock_mhz": device.CLOCK_RATE // 1000,
        "driver": _driver(),
        "cuda": f"{version // 1000}.{version % 1000 // 10}",
        "python": platform.python_version(),
        **{
            package: metadata.version(package)
            for package in ("numba", "numba-cuda", "numpy", "cuda-bindings")
        },
        "cusparse": libraries.get("cusparse"),
        "cublas": libraries.get("cublas"),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "commit": commit(),
        "kernels_sha256": kernel_hash(),
        "l2": l2,
        "launches": f"up to {LAUNCHES} in a graph if L2 is warm, 1 if flushed",
    }
    if sputnik:
        found["sputnik_us"] = SPUTNIK
    return {key: str(value) for key, value in found.items()}


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
