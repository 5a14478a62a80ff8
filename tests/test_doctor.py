"""Each thing that is missing is named, with the command that mends it."""

import shutil
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from packaging.requirements import Requirement

from sparsekern import doctor

DECLARED = [
    "numpy<2.5,>=2.0",
    "greenlet>=3.0",
    "numba-cuda[cu12]>=0.30; extra == 'cuda12'",
    "numba-cuda[cu13]>=0.30; extra == 'cuda13'",
    "jupyterlab>=4.2; extra == 'notebooks'",
    "matplotlib>=3.9; extra == 'notebooks'",
]
PRESENT = {
    "numpy": "2.4.6",
    "greenlet": "3.5.6",
    "llvmlite": "0.50.0",
    "numba-cuda": "0.30.4",
    "jupyterlab": "4.6.6",
    "matplotlib": "3.11.2",
}
GPU_BANNER = "| NVIDIA-SMI 550.90     Driver Version: 550.90     CUDA Version: 12.4     |"


class Machine:
    """A machine on which all is well, until a test takes something away."""

    def __init__(self, monkeypatch, folder):
        self.patch, self.versions, self.banner, self.free = monkeypatch, dict(PRESENT), GPU_BANNER, 10**11
        self.tools = {"ptxas", "nvdisasm"}
        (folder / "layer.smtx").touch()
        self.cuda = SimpleNamespace(
            grid=lambda dimensions: 0,
            compile_ptx=lambda *_, **__: ("// Cuda compilation tools, release 13.5, V13.5.37", None),
            is_available=lambda: True,
            get_current_device=lambda: SimpleNamespace(name=b"NVIDIA H200", compute_capability=(9, 0)),
        )
        monkeypatch.setattr(doctor, "declared", lambda: [Requirement(line) for line in DECLARED])
        monkeypatch.setattr(doctor.metadata, "version", self.version)
        monkeypatch.setattr(doctor, "smi", lambda: self.banner)
        monkeypatch.setattr(
            shutil, "which", lambda name, path: f"/bin/{name}" if name in self.tools else None
        )
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=self.free))
        monkeypatch.setenv("SPARSEKERN_DLMC", str(folder))
        monkeypatch.setitem(sys.modules, "sparsekern.machine.emulator", SimpleNamespace())
        monkeypatch.setitem(sys.modules, "numba", SimpleNamespace(cuda=self.cuda, float32=MagicMock()))
        monkeypatch.setattr(sys, "platform", "linux")

    def hide(self, module):
        self.patch.setitem(sys.modules, module, None)

    def version(self, name):
        if name not in self.versions:
            raise metadata.PackageNotFoundError(name)
        return self.versions[name]


@pytest.fixture
def machine(monkeypatch, tmp_path):
    return Machine(monkeypatch, tmp_path)


def lacks():
    return {check.name: check for check in doctor.report() if not check.ok}


def test_a_machine_that_has_everything_lacks_nothing(machine, capsys):
    assert lacks() == {}
    assert doctor.main() == 0
    out = capsys.readouterr().out
    assert "Kernels run here, on the GPU." in out
    assert "NVIDIA H200, compute capability 9.0, driver 550.90" in " ".join(out.split())


def no_version(name):
    return lambda machine: machine.versions.pop(name)


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


LACKS = {
    "Python is too old": (
        lambda m: m.patch.setattr(sys, "version_info", (3, 9, 1)),
        "Python",
        "make PYTHON=python3.12",
    ),
    "numpy is missing": (no_version("numpy"), "numpy", "-m pip install 'numpy<2.5,>=2.0'"),
    "numpy is too new for numba-cuda": (
        lambda m: m.versions.update(numpy="2.5.0"),
        "numpy",
        "-m pip install 'numpy<2.5,>=2.0'",
    ),
    "greenlet is missing": (no_version("greenlet"), "greenlet", "-m pip install 'greenlet>=3.0'"),
    "llvmlite is missing": (no_version("llvmlite"), "llvmlite", "-m pip install"),
    "numba-cuda is missing": (
        no_version("numba-cuda"),
        "numba-cuda",
        "-m pip install 'numba-cuda[cu12]>=0.30'",
    ),
    "the emulator does not import": (
        lambda m: m.hide("sparsekern.machine.emulator"),
        "emulator",
        "-m pip install 'numpy<2.5,>=2.0' 'greenlet>=3.0'",
    ),
    "the compiler fails": (
        lambda m: setattr(m.cuda, "compile_ptx", raising(OSError("libnvvm is not here"))),
        "compiler",
        "-m pip install 'numba-cuda[cu12]>=0.30'",
    ),
    "the driver is there and Numba sees no GPU": (
        lambda m: setattr(m.cuda, "is_available", lambda: False),
        "GPU",
        "-m pip install 'numba-cuda[cu12]>=0.30'",
    ),
    "the GPU cannot be asked": (
        lambda m: setattr(m.cuda, "get_current_device", raising(RuntimeError("driver"))),
        "GPU",
        "-m pip install 'numba-cuda[cu12]>=0.30'",
    ),
    "ptxas is missing": (lambda m: m.tools.remove("ptxas"), "ptxas", "-m pip install 'numba-cuda"),
    "nvdisasm is missing": (lambda m: m.tools.remove("nvdisasm"), "nvdisasm", "-m pip install 'numba-cuda"),
    "a notebook package is missing": (
        no_version("matplotlib"),
        "notebooks",
        "-m pip install 'jupyterlab>=4.2' 'matplotlib>=3.9'",
    ),
    "SPARSEKERN_DLMC is not set": (
        lambda m: m.patch.delenv("SPARSEKERN_DLMC"),
        "SPARSEKERN_DLMC",
        "export SPARSEKERN_DLMC=",
    ),
    "SPARSEKERN_DLMC names no folder": (
        lambda m: m.patch.setenv("SPARSEKERN_DLMC", "/nowhere/dlmc"),
        "SPARSEKERN_DLMC",
        "export SPARSEKERN_DLMC=",
    ),
    "the disk is full": (lambda m: setattr(m, "free", 10**8), "disk", "-m pip cache purge"),
}


@pytest.mark.parametrize("take_away, name, mend", LACKS.values(), ids=LACKS)
def test_one_lack_is_the_only_one_reported_and_has_its_mend(machine, capsys, take_away, name, mend):
    take_away(machine)
    found = lacks()
    assert list(found) == [name]
    assert mend in found[name].mend
    doctor.main()
    assert f"{name}: {found[name].mend}" in capsys.readouterr().out


def test_a_version_out_of_bounds_says_both(machine):
    machine.versions["numpy"] = "2.5.0"
    assert lacks()["numpy"].detail == "2.5.0, which is not <2.5,>=2.0"


def test_without_a_gpu_the_compiler_is_that_of_cuda_13_and_kernels_run_in_the_emulator(machine, capsys):
    machine.banner = ""
    machine.cuda.is_available = lambda: False
    del machine.versions["numba-cuda"]
    found = lacks()
    assert "numba-cuda[cu13]" in found["numba-cuda"].mend
    assert found["GPU"].mend.startswith("nvidia-smi")
    assert doctor.main() == 0
    assert "in the emulator" in capsys.readouterr().out


@pytest.mark.parametrize("compiles, code", [(True, 0), (False, 1)])
def test_without_the_emulator_kernels_run_if_a_gpu_and_a_compiler_do(machine, compiles, code):
    machine.hide("sparsekern.machine.emulator")
    if not compiles:
        machine.cuda.compile_ptx = raising(OSError())
    assert doctor.main() == code


def test_neither_emulator_nor_gpu_is_an_error(machine, capsys):
    machine.hide("numba")
    machine.hide("sparsekern.machine.emulator")
    assert doctor.main() == 1
    assert "do not run here" in capsys.readouterr().out


def test_an_installation_without_metadata_is_mended_from_the_checkout(machine):
    machine.patch.setattr(doctor, "declared", raising(metadata.PackageNotFoundError("sparsekern")))
    found = lacks()
    assert found["sparsekern"].detail == "not installed"
    assert found["sparsekern"].mend.endswith("-m pip install -e '.[cuda12,notebooks]'")


def test_the_report_is_plain_without_rich(machine, capsys):
    machine.hide("rich.console")
    del machine.versions["greenlet"]
    doctor.main()
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["missing", "greenlet", "not", "installed"] for line in lines)
    assert any(line.startswith("greenlet: ") for line in lines)


def test_macos_is_not_told_to_install_numba_cuda(machine):
    machine.patch.setattr(doctor, "declared", lambda: [Requirement("numpy>=2.0")])
    machine.patch.setattr(sys, "platform", "darwin")
    machine.cuda.compile_ptx = raising(OSError())
    found = lacks()
    assert "numba-cuda" not in found
    assert found["compiler"].mend == ""


def test_no_probe_can_break_the_report(machine):
    for probe in "python", "emulator", "compiler", "gpu", "tool", "notebooks", "dlmc", "disk", "installed":
        machine.patch.setattr(doctor, probe, raising(ZeroDivisionError("probe")))
    checks = doctor.report()
    assert not any(check.ok for check in checks if check.name != "llvmlite")
    assert {check.detail for check in checks if not check.ok} == {"ZeroDivisionError: probe"}
    assert doctor.main() == 1


def test_the_real_report_of_this_machine_names_every_package(capsys):
    names = [check.name for check in doctor.report()]
    assert {"numpy", "scipy", "numba", "greenlet", "rich", "llvmlite", "compiler", "GPU"} <= set(names)
    doctor.main()
    assert "disk" in capsys.readouterr().out


def test_it_runs_in_an_installation_that_lacks_a_package_and_other_names_send_one_there():
    """In a process of its own, where greenlet cannot be imported."""
    code = (
        "import sys; sys.modules['greenlet'] = None\n"
        "import sparsekern\n"
        "from sparsekern import __main__\n"
        "status = __main__.main(['doctor'])\n"
        "try: sparsekern.spmm\n"
        "except ImportError as error: print(error)\n"
        "sys.exit(status)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "greenlet" in run.stdout and "pip install" in run.stdout
    assert "python -m sparsekern doctor says what mends it" in run.stdout
    assert run.returncode == 1, run.stdout + run.stderr
