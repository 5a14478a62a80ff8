"""Notebooks in two halves: `notebooks/text/NAME.py` is the source, `notebooks/NAME.ipynb` has the outputs.

`python -m sparsekern.study.notebooks run [NAME ...]` executes the text and writes the notebook;
`check [NAME ...]` says where the two have come apart. Needs jupytext, nbclient and ipykernel.
"""

import argparse
import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
TIMEOUT = 600  # seconds a cell may take
HASH = "code_sha256"
STREAMS = {"stderr": 0, "stdout": 1}  # the order in which they are stored

CELL_FILE = re.compile(r"[^\s'\"<>]*ipykernel_\d+[/\\]\d+\.py")
ADDRESS = re.compile(r" at 0x[0-9a-f]+(?=>)")
WARNING = re.compile(r"^\S.*?:\d+: (\w*Warning: .*)$", re.M)
FOLDERS = str(ROOT), sys.prefix, sys.base_prefix, tempfile.gettempdir(), str(Path.home())


def names():
    """Of all notebooks: those with a text half, an output half or both."""
    halves = [*NOTEBOOKS.glob("text/*.py"), *NOTEBOOKS.glob("*.ipynb")]
    return sorted({path.stem for path in halves})


def source(name):
    """The text half as a notebook without outputs."""
    return jupytext.read(NOTEBOOKS / "text" / f"{name}.py")


def stored(name):
    """The notebook with outputs."""
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def code(notebook):
    """The code cells, in order."""
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def code_sha256(notebook):
    return hashlib.sha256("\n\n".join(code(notebook)).encode()).hexdigest()


def execute(notebook):
    """Runs all cells of `notebook`, in `notebooks/`. Raises CellExecutionError for one that fails."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"} | {"PYTHONPATH": path}
    client = NotebookClient(
        notebook, timeout=TIMEOUT, kernel_name="python3", record_timing=False,
        resources={"metadata": {"path": str(NOTEBOOKS)}},
    )  # fmt: skip
    client.execute(env=environment)
    return notebook


def scrub(text):
    """`text` without what differs from machine to machine or from run to run."""
    text = ADDRESS.sub("", CELL_FILE.sub("cell", text))
    for folder in sorted(FOLDERS, key=len, reverse=True):
        text = text.replace(folder + os.sep, "")
    return text


def clean(notebook):
    """Drops what would change when the same code is run again: ids, times, versions, places. In place."""
    notebook.metadata = nbformat.from_dict({
        "jupytext": {"formats": "ipynb,text//py:percent"},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "sparsekern": {HASH: code_sha256(notebook)},
    })  # fmt: skip
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(_clean_output, _merge(cell.outputs)) if output]
    return notebook


def _merge(outputs):
    """What a cell printed, in one piece of stdout and one of stderr: how it came in pieces is chance."""
    merged = {}
    for output in outputs:
        if output.output_type != "stream":
            merged[len(merged)] = output
        elif output.name in merged:
            merged[output.name].text += output.text
        else:
            merged[output.name] = output
    return sorted(merged.values(), key=lambda output: STREAMS.get(output.get("name"), len(STREAMS)))


def _clean_output(output):
    """`output` scrubbed, or None. Of stderr only warnings stay, without the place that gave them."""
    if output.output_type == "stream" and output.name == "stderr":
        output.text = "".join(f"{warning}\n" for warning in WARNING.findall(output.text))
        return output if output.text else None
    output.pop("transient", None)
    return nbformat.from_dict(_scrub_all(output))


def _scrub_all(value):
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {k: v if k.startswith("image/") else _scrub_all(v) for k, v in value.items()}
    return [_scrub_all(item) for item in value] if isinstance(value, list) else value


def run(name):
    """Executes the text half and writes the other."""
    notebook = clean(execute(source(name)))
    nbformat.validate(notebook)
    nbformat.write(notebook, NOTEBOOKS / f"{name}.ipynb")


def faults(name):
    """How the halves of a notebook disagree, a list of sentences."""
    for half, path in (("text", f"text/{name}.py"), ("output", f"{name}.ipynb")):
        if not (NOTEBOOKS / path).exists():
            return [f"{name} has no {half} half: notebooks/{path} does not exist"]
    text, output = source(name), stored(name)
    found = []
    if code_sha256(text) != code_sha256(output):
        found.append(f"{name}: the code of the two halves differs")
    elif [(c.cell_type, c.source) for c in text.cells] != [(c.cell_type, c.source) for c in output.cells]:
        found.append(f"{name}: the prose of the two halves differs")
    if output.metadata.get("sparsekern", {}).get(HASH) != code_sha256(output):
        found.append(f"{name}: the outputs are not of this code")
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m sparsekern.study.notebooks", description=__doc__)
    parser.add_argument("command", choices=("run", "check"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="without any, all of them")
    asked = parser.parse_args(arguments)
    wanted = asked.names or names()
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        parser.error(f"no notebook {', '.join(unknown)}; there are {', '.join(names())}")
    if asked.command == "run":
        for name in wanted:
            run(name)
            print(f"notebooks/{name}.ipynb written")
    found = [fault for name in wanted for fault in faults(name)]
    for fault in found:
        print(f"{fault}; python -m sparsekern.study.notebooks run {fault.split()[0].rstrip(':')}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
