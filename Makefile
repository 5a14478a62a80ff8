# `make demo`, `make test` and `make lab` set up .venv when they need to; once it stands, they need no
# network.

PYTHON ?= python3
VENV = .venv
PY = $(VENV)/bin/python

# The CUDA that the driver speaks; without a driver CUDA 13, for its compiler.
# Drivers from 610 on say "CUDA UMD Version".
CUDA_EXTRA ?= $(shell nvidia-smi 2>/dev/null | grep -q 'CUDA.* Version: *12\.' && echo cuda12 || echo cuda13)

# Four sets of packages. A larger set holds the smaller ones, so its stamp brings theirs.
extras-core = $(CUDA_EXTRA)
extras-lab = $(CUDA_EXTRA),notebooks
extras-test = $(CUDA_EXTRA),notebooks,dev
extras-bench = $(CUDA_EXTRA),bench
stamps-core = core
stamps-lab = core lab
stamps-test = core lab test
stamps-bench = core bench

# So that a checkout that was moved still finds itself.
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))

.PHONY: help demo test lab records lint wheel update clean gpu venv ready-core ready-lab ready-test ready-bench
.NOTPARALLEL:

help:
	@echo "make demo    a short tour; needs no GPU"
	@echo "make test    the tests; PYTEST_ARGS='-k spmm' passes arguments on"
	@echo "make lab     the notebooks in JupyterLab; LAB_ARGS=--no-browser passes arguments on"
	@echo "make records times on this GPU, which it needs, into data/results; RECORDS_ARGS=sweep passes arguments on"
	@echo "make lint    ruff"
	@echo "make wheel   sdist and wheel in dist/"
	@echo "make update  bring .venv in line with pyproject.toml"
	@echo "make clean   remove what was built, except .venv"

demo: ready-core
	@$(PY) -m sparsekern demo

test: ready-test
	$(PY) -m pytest -n auto $(PYTEST_ARGS)

lab: ready-lab
	$(PY) -m jupyterlab $(LAB_ARGS) notebooks

records: gpu ready-bench
	$(PY) -m sparsekern.study.remake $(RECORDS_ARGS)

lint: ready-test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

wheel: ready-test
	$(PY) -m build --no-isolation

update: venv
	@$(call install,test)

clean:
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

# Asked of the driver, as nothing may be installed yet. Without a $(PYTHON), `venv` says so.
gpu:
	@command -v $(PYTHON) >/dev/null || exit 0; $(PYTHON) -c "$$LOOK" 2>/dev/null || { \
	    echo "make records needs a CUDA GPU, which it times, and the driver finds none: nothing was installed."; \
	    echo "The records in data/results are read without one; 'make demo' needs none."; exit 1; }

define LOOK
from ctypes import CDLL, byref, c_int
driver, found = CDLL('libcuda.so.1'), c_int()
raise SystemExit(driver.cuInit(0) or driver.cuDeviceGetCount(byref(found)) or found.value == 0)
endef
export LOOK

# A .venv whose Python has gone, or that was left before it had pip, is made anew.
venv:
	@{ $(PY) -c '' && { [ -e $(VENV)/.stamp-core ] || $(PY) -m pip --version; }; } >/dev/null 2>&1 || { \
	command -v $(PYTHON) >/dev/null || { \
	    echo "There is no $(PYTHON) here. sparsekern needs Python 3.10 or later."; exit 1; }; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "sparsekern needs Python 3.10 or later, and $(PYTHON) is $$($(PYTHON) -V 2>&1)."; \
	    echo "Name another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }; \
	$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv"; \
	    exit 1; }; \
	$(PYTHON) -m venv --clear $(VENV); }

# A stamp is written last, so what was interrupted is taken up again. Nothing is installed on account of
# a newer pyproject.toml alone: there may be no network.
ready-core ready-lab ready-test ready-bench: ready-%: venv
	@if [ ! -e $(VENV)/.stamp-$* ]; then $(call install,$*); \
	elif [ -n "$$(find pyproject.toml -newer $(VENV)/.stamp-$*)" ]; then \
	    echo "pyproject.toml is newer than .venv: 'make update' brings it in line."; \
	fi

define install
{ echo "Setting up .venv with $(extras-$(1)): up to 1.5 GB and 2 minutes, this once."; \
$(PY) -m pip install -qq --disable-pip-version-check -e '.[$(extras-$(1))]' || { \
    echo "The setup did not finish. It needs a network; the same command takes it up again."; exit 1; }; \
for set in $(stamps-$(1)); do : > $(VENV)/.stamp-$$set; done; }
endef
