"""What the compiler makes of a kernel: PTX, machine code, registers. Needs no GPU."""

import re
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from numba import cuda
from numba.cuda.cudadrv.error import CCSupportError

from sparsekern.machine.launch import SIGNATURES, make_kernel
from sparsekern.problem import Types
from sparsekern.study.tools import tool

ARCH = (9, 0)  # compute capability of an H100 or H200


@dataclass(frozen=True)
class Resources:
    """What a kernel holds while it runs, by ptxas."""

    registers: int  # of 32 bits, per thread
    shared_bytes: int  # per block
    stack_bytes: int  # of local memory, per thread
    spill_stores: int  # bytes, of registers that did not fit
    spill_loads: int  # bytes


def ptx(make, variant, arch=ARCH, types=Types()):
    """The PTX of the kernel that `make(variant, types)` returns, for compute capability `arch`.

    arch: (major, minor). Raises TypeError for another kind of arch, ValueError for one that the compiler does
    not know (those of CUDA 13 begin with 7.5), and Numba's own errors for a kernel that does not compile,
    which name the line.
    """
    if not (isinstance(arch, tuple) and [type(part) for part in arch] == [int, int]):
        raise TypeError(f"arch is {arch!r}; it must be a compute capability such as (9, 0)")
    return _ptx(make, variant, arch, types)


@lru_cache(maxsize=128)
def _ptx(make, variant, arch, types):
    function, signature = make_kernel(make, variant, types), SIGNATURES[variant.op](types)
    try:
        return cuda.compile_ptx(function, signature, cc=arch, launch_bounds=variant.threads)[0]
    except CCSupportError as error:
        raise ValueError(f"arch is {arch}, which this compiler does not make code for: {error}") from None


def sass(make, variant, arch=ARCH, types=Types()):
    """Its machine code, as nvdisasm prints it. `study.sass` reads it.

    Raises what `ptx` does; FileNotFoundError with the command that installs ptxas or nvdisasm;
    RuntimeError with what ptxas says, such as for an architecture that is too old for it.
    """
    return _sass(_assembled(make, variant, arch, types)[0])


def resources(make, variant, arch=ARCH, types=Types()):
    """Its `Resources`. Raises what `sass` does."""
    _, said = _assembled(make, variant, arch, types)
    return read_resources(said)


def read_resources(said):
    """The `Resources` of the one kernel that `ptxas -v` has spoken of. Raises ValueError for other text."""
    kernel = said.partition("Compiling entry function")[2]
    memory = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", kernel)
    registers = re.search(r"Used (\d+) registers", kernel)
    if not (memory and registers):
        raise ValueError(f"ptxas names no stack frame or registers of a kernel; it said: {said.strip()!r}")
    shared = re.search(r"(\d+) bytes smem", kernel)
    stack, stores, loads = map(int, memory.groups())
    return Resources(int(registers[1]), int(shared[1]) if shared else 0, stack, stores, loads)


def _assembled(make, variant, arch, types):
    return _assemble(ptx(make, variant, arch, types), arch)


@lru_cache(maxsize=128)
def _assemble(text, arch):
    """(cubin, what ptxas says of it)."""
    with TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text)
        said = _run("ptxas", "-v", "-arch=sm_{}{}".format(*arch), source, "-o", cubin).stderr
        return cubin.read_bytes(), said


@lru_cache(maxsize=128)
def _sass(code):
    with TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(code)
        return _run("nvdisasm", "-c", cubin).stdout  # -c: code alone, with labels


def _run(name, *arguments):
    ran = subprocess.run([tool(name), *map(str, arguments)], capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"{name} failed: {(ran.stderr or ran.stdout).strip()}")
    return ran
