"""Notebooks run by nbmake, and what they say."""

import os

from nbmake.nb_run import NotebookRun

from sparsekern.machine.backends import device_backend
from sparsekern.study import notebooks


def executed(path, monkeypatch):
    """The notebook of `path` as nbmake ran it, from top to bottom, in its folder; the file stays as it is."""
    monkeypatch.setenv("PYTHONPATH", str(notebooks.ROOT), prepend=os.pathsep)  # kernels inherit it
    monkeypatch.delenv("MPLBACKEND", raising=False)  # they draw into the notebook
    result = NotebookRun(path, notebooks.TIMEOUT).execute()
    assert result.error is None, result.error.trace
    return notebooks.clean(result.nb)


def said(cells):
    """What cells printed or returned, as text; figures left out."""
    texts = []
    for cell in cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stdout":
                texts.append(output.text)
            elif output.output_type == "execute_result":
                texts.append(output.data["text/plain"])
    return texts


def assert_as_stored(name, cells):
    """With a GPU a notebook may say other things."""
    if device_backend() == "emulator":
        stored = said(notebooks.stored(name).cells)
        assert said(cells) == stored, f"run: python -m sparsekern.study.notebooks run {name}"
