"""The packaging files agree with each other and do what they say."""

import copy
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import sparsekern

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())
EXTRAS = "cuda13", "notebooks", "dev"  # what environment.yml holds besides the core

CONDA = {"build": "python-build", "matplotlib": "matplotlib-base", "cuda-toolkit": "cuda-version"}
# cuda-toolkit's extras are packages of their own on conda-forge, whose version cuda-version decides.
ONLY_CONDA = {"pip", "cuda-nvcc-impl", "cuda-nvdisasm"}


def of_project(project):
    """{conda name: bounds} of pyproject.toml."""
    bounds = {"python": SpecifierSet(project["requires-python"])}
    extras = project["optional-dependencies"]
    for line in sum((extras[name] for name in EXTRAS), project["dependencies"]):
        requirement = Requirement(line)
        bounds[CONDA.get(requirement.name, requirement.name)] = requirement.specifier
    return bounds


def of_environment(environment):
    """{conda name: bounds} of environment.yml."""
    bounds = {}
    for line in environment["dependencies"]:
        if isinstance(line, str):
            name, _, bound = line.partition(" ")
            bounds[name] = SpecifierSet(f"=={bound}" if bound[:1].isdigit() else bound)
    return {name: bound for name, bound in bounds.items() if name not in ONLY_CONDA}


def differences(project, environment):
    ours, theirs = of_project(project), of_environment(environment)
    return sorted(name for name in ours | theirs if ours.get(name) != theirs.get(name))


def test_environment_has_the_dependencies_and_bounds_of_pyproject():
    assert differences(PROJECT["project"], ENVIRONMENT) == []


@pytest.mark.parametrize(
    "old, new, name",
    [
        ("rich >=13.0", None, "rich"),
        (None, "cupy >=13", "cupy"),
        ("numpy >=2.0,<2.5", "numpy >=2.0", "numpy"),
        ("cuda-version 13.*", "cuda-version 12.*", "cuda-version"),
        ("python >=3.10", "python >=3.11", "python"),
    ],
    ids=["one missing", "one too many", "a bound dropped", "another CUDA", "another Python"],
)
def test_a_difference_between_the_two_is_seen(old, new, name):
    environment = copy.deepcopy(ENVIRONMENT)
    if old:
        environment["dependencies"].remove(old)
    if new:
        environment["dependencies"].append(new)
    assert differences(PROJECT["project"], environment) == [name]


def test_environment_installs_this_checkout_and_nothing_else_with_pip():
    assert [line for line in ENVIRONMENT["dependencies"] if isinstance(line, dict)] == [{"pip": ["-e ."]}]
    assert "conda-forge" in ENVIRONMENT["channels"]


def test_both_cuda_extras_ask_for_the_same_numba_cuda_and_never_on_macos():
    found = set()
    for extra in "cuda12", "cuda13":
        for requirement in map(Requirement, PROJECT["project"]["optional-dependencies"][extra]):
            assert not requirement.marker.evaluate({"sys_platform": "darwin"})
            assert requirement.marker.evaluate({"sys_platform": "linux"})
            if requirement.name == "numba-cuda":
                assert requirement.extras == {extra.replace("cuda", "cu")}
                found.add(str(requirement.specifier))
    assert len(found) == 1


def test_numpy_is_below_the_release_that_breaks_numba_cuda():
    numpy = of_project(PROJECT["project"])["numpy"]
    assert not numpy.contains("2.5.0")
    assert numpy.contains("2.4.0")


def test_build_backend_is_among_the_dev_dependencies():
    """So that a wheel can be built without a network."""
    assert set(PROJECT["build-system"]["requires"]) <= set(PROJECT["project"]["optional-dependencies"]["dev"])


def test_the_version_is_the_same_everywhere():
    assert sparsekern.__version__ == PROJECT["project"]["version"]


def test_license_is_the_whole_of_apache_2():
    terms, end, _ = (ROOT / "LICENSE").read_text().partition("END OF TERMS AND CONDITIONS")
    digest = hashlib.sha256(" ".join(terms.split()).encode()).hexdigest()
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert end
    assert digest == "09ae9bf1886f530f7338889ef805f37b288ec6adedd1e1e32058921acf05a782"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    return zipfile.ZipFile(path)


def test_wheel_holds_the_package_its_data_and_its_license(wheel):
    names = set(wheel.namelist())
    assert {"sparsekern/__init__.py", "sparsekern/__main__.py", "sparsekern/layers.csv"} <= names
    assert {f"sparsekern/selection/{name}" for name in ("spmm.txt", "sddmm.txt", "tables.json")} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "sparsekern").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules


# The Makefile, run in an empty folder with stand-ins for Python and the driver.

PYTHON = """#!/bin/sh
echo "$@" >> "$LOG"
case "$*" in
    "-V") echo Python 3.9.1 ;;
    *libcuda*) exit ${NO_GPU:-0} ;;
    *version_info*) exit ${TOO_OLD:-0} ;;
    "-c import venv, ensurepip") exit ${NO_VENV:-0} ;;
    "-m venv --clear .venv") mkdir -p .venv/bin; rm -f .venv/.stamp-*; cp "$0" .venv/bin/python ;;
    "-m pip --version") [ -z "$HALF_MADE" ] ;;
    "-m pip install"*) [ -z "$OFFLINE" ] ;;
esac
"""


class Checkout:
    """A folder with the Makefile. `make` returns what the stand-in for Python was asked to do."""

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "log"
        shutil.copy(ROOT / "Makefile", folder)
        shutil.copy(ROOT / "pyproject.toml", folder)
        self.tool("python3", PYTHON)
        self.tool("nvidia-smi", "#!/bin/sh\nexit 9\n")

    def tool(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def driver(self, label):
        self.tool("nvidia-smi", f"#!/bin/sh\necho '| NVIDIA-SMI 590.44   {label}     |'\n")

    def make(self, *targets, fails=False, **variables):
        self.log.write_text("")
        path = f"{self.folder}:/usr/local/bin:/usr/bin:/bin"
        done = subprocess.run(
            ["make", *targets],
            cwd=self.folder,
            env={"PATH": path, "LOG": str(self.log), **variables},
            capture_output=True,
            text=True,
        )
        self.output = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, self.output
        return self.log.read_text()


@pytest.fixture
def checkout(tmp_path):
    if not shutil.which("make"):
        pytest.skip("no make on this machine")
    return Checkout(tmp_path)


def test_readme_commands_are_targets_of_the_makefile():
    targets = re.findall(r"^([a-z]+):(?!=)", (ROOT / "Makefile").read_text(), re.M)
    named = re.findall(r"(?:^\$? *|`)make ([a-z]+)", (ROOT / "README.md").read_text(), re.M)
    assert {"demo", "test", "lab"} <= set(named) <= set(targets)


@pytest.mark.parametrize(
    "target, extras, command",
    [
        ("demo", ".[cuda13]", "-m sparsekern demo"),
        ("lab", ".[cuda13,notebooks]", "-m jupyterlab notebooks"),
        ("test", ".[cuda13,notebooks,dev]", "-m pytest -n auto"),
        ("records", ".[cuda13,bench]", "-m sparsekern.study.remake"),
    ],
)
def test_a_first_run_installs_and_a_second_only_runs(checkout, target, extras, command):
    first = checkout.make(target)
    assert "-m venv --clear .venv" in first
    assert f"-e {extras}\n" in first
    assert command in first
    second = checkout.make(target, OFFLINE="yes")
    assert second.endswith(f"-c \n{command}\n")
    assert not re.search("pip|venv", second) and ("libcuda" in second) == (target == "records")


def test_without_a_gpu_the_records_are_refused_before_anything_is_installed(checkout):
    log = checkout.make("records", fails=True, NO_GPU="1")
    assert "make records needs a CUDA GPU" in checkout.output and "nothing was installed" in checkout.output
    assert not re.search("pip|venv|remake", log) and not (checkout.folder / ".venv").exists()
    checkout.make("demo", NO_GPU="1")


@pytest.mark.parametrize(
    "init, count, status", [(0, 2, 0), (0, 0, 1), (100, 0, 100)],
    ids=["two GPUs", "a driver without a GPU", "CUDA_ERROR_NO_DEVICE"],
)  # fmt: skip
def test_what_looks_for_a_gpu_asks_the_driver(init, count, status, monkeypatch):
    class Driver:
        def cuInit(self, flags):
            return init

        def cuDeviceGetCount(self, reference):
            reference._obj.value = count
            return 0

    monkeypatch.setattr("ctypes.CDLL", {"libcuda.so.1": Driver()}.get)
    look = re.search(r"^define LOOK\n(.*?)^endef", (ROOT / "Makefile").read_text(), re.M | re.S)[1]
    with pytest.raises(SystemExit) as ended:
        exec(look)
    assert ended.value.code == status


def test_options_of_the_records_are_passed_on(checkout):
    log = checkout.make("records", "RECORDS_ARGS=--fresh --minutes 9 --sputnik some.csv ladder")
    assert log.splitlines()[-1] == "-m sparsekern.study.remake --fresh --minutes 9 --sputnik some.csv ladder"


def test_the_larger_set_serves_the_smaller_targets(checkout):
    checkout.make("test")
    assert "pip" not in checkout.make("demo", "lab", OFFLINE="yes")


def test_the_smaller_set_is_completed_for_the_larger_targets(checkout):
    checkout.make("demo")
    log = checkout.make("test")
    assert "-m venv" not in log
    assert "notebooks,dev" in log


def test_an_interrupted_install_is_taken_up_again(checkout):
    log = checkout.make("demo", fails=True, OFFLINE="yes")
    assert "sparsekern demo" not in log
    assert "needs a network" in checkout.output
    log = checkout.make("demo")
    assert "-m venv" not in log
    assert "pip install" in log
    assert "sparsekern demo" in log


def test_a_venv_left_without_pip_is_made_anew(checkout):
    checkout.make("demo", fails=True, OFFLINE="yes")
    assert "-m venv --clear" in checkout.make("demo", HALF_MADE="yes")


def test_a_venv_whose_python_has_gone_is_made_anew(checkout):
    checkout.make("demo")
    (checkout.folder / ".venv/bin/python").unlink()
    log = checkout.make("demo")
    assert "-m venv --clear" in log
    assert "pip install" in log


def test_a_newer_pyproject_is_mentioned_but_installs_nothing(checkout):
    checkout.make("demo")
    later = time.time() + 10
    os.utime(checkout.folder / "pyproject.toml", (later, later))
    assert "pip" not in checkout.make("demo", OFFLINE="yes")
    assert "make update" in checkout.output
    assert "notebooks,dev" in checkout.make("update")


@pytest.mark.parametrize(
    "label, extra",
    [
        ("Driver Version: 550.90   CUDA Version: 12.4", "cuda12"),
        ("Driver Version: 580.82   CUDA Version: 13.0", "cuda13"),
        ("KMD Version: 610.43      CUDA UMD Version: 12.9", "cuda12"),
        ("KMD Version: 610.43      CUDA UMD Version: 13.3", "cuda13"),
    ],
)
def test_the_driver_decides_the_cuda_extra(checkout, label, extra):
    checkout.driver(label)
    assert f"-e .[{extra}]" in checkout.make("demo")


@pytest.mark.parametrize(
    "variables, message",
    [
        ({"TOO_OLD": "1"}, "needs Python 3.10 or later, and python3 is Python 3.9.1"),
        ({"NO_VENV": "1"}, "apt install python3-venv"),
        ({"PYTHON": "python4"}, "There is no python4 here"),
    ],
    ids=["Python is too old", "venv is missing", "Python is missing"],
)
def test_a_python_that_will_not_do_is_named(checkout, variables, message):
    checkout.make("demo", fails=True, **variables)
    assert message in checkout.output


def test_make_alone_lists_the_targets(checkout):
    checkout.make()
    for target in "demo", "test", "lab", "records":
        assert f"make {target} " in checkout.output
