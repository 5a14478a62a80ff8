"""Notebooks in two halves: `notebooks/text/NAME.py` is the source, `notebooks/NAME.ipynb` has the outputs.

`python -m sparsekern.study.notebooks run [NAME ...]` executes the text and writes the notebook;
`check [NAME ...]` says where the two have come apart. Needs jupytext, nbclient and ipykernel.

The solution of a chapter's exercises is a notebook, too, named `solutions/CHAPTER`, in two halves below
`notebooks/solutions/`. It starts from the chapter's cells with the tag "exercise": see `exercises`.
"""

import argparse
import hashlib
import linecache
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
TAG = "exercise"
SOLUTIONS = "solutions/"
STREAMS = {"stderr": 0, "stdout": 1}  # the order in which they are stored

CELL_FILE = re.compile(r"[^\s'\"<>]*ipykernel_\d+[/\\]\d+\.py")
ADDRESS = re.compile(r" at 0x[0-9a-f]+(?=>)")
WARNING = re.compile(r"^\S.*?:\d+: (\w*Warning: .*)$", re.M)
FOLDERS = str(ROOT), sys.prefix, sys.base_prefix, tempfile.gettempdir(), str(Path.home())


def names():
    """Of all notebooks, solutions last: those with a text half, an output half or both."""
    found = []
    for folder in "", SOLUTIONS:
        halves = [*NOTEBOOKS.glob(f"{folder}text/*.py"), *NOTEBOOKS.glob(f"{folder}*.ipynb")]
        found += sorted({folder + path.stem for path in halves})
    return found


def text_half(name):
    """The path of the source, which need not exist."""
    folder, _, stem = name.rpartition("/")
    return NOTEBOOKS / folder / "text" / f"{stem}.py"


def output_half(name):
    """The path of the notebook with outputs, which need not exist."""
    return NOTEBOOKS / f"{name}.ipynb"


def source(name):
    """The text half as a notebook without outputs."""
    return jupytext.read(text_half(name))


def stored(name):
    """The notebook with outputs."""
    return nbformat.read(output_half(name), as_version=4)


def code(notebook):
    """The code cells, in order."""
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def code_sha256(notebook):
    return hashlib.sha256("\n\n".join(code(notebook)).encode()).hexdigest()


def tagged(name):
    """The cells of a chapter that its exercises need, in order."""
    return [cell.source for cell in source(name).cells if TAG in cell.metadata.get("tags", ())]


def exercises(name, namespace):
    """Runs the cells of the chapter `name` that have the tag "exercise", from its text half, in `namespace`.

    They define what its exercises speak of, and its checks; the rest of the chapter does not run. `inspect`
    and the emulator find the source of functions defined so, as of those in any cell.

    Raises ValueError if there is no such chapter, or it has no such cell; and what a cell raises.
    """
    if not text_half(name).exists():
        chapters = [known for known in names() if not known.startswith(SOLUTIONS)]
        raise ValueError(f"name is {name!r}; the chapters are {', '.join(chapters)}")
    cells = tagged(name)
    if not cells:
        raise ValueError(f"name is {name!r}, a chapter without a cell tagged {TAG!r}")
    for number, text in enumerate(cells, 1):
        file = f"<{name}, exercise cell {number}>"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        exec(compile(text, file, "exec", dont_inherit=True), namespace)


def execute(notebook, folder):
    """Runs all cells of `notebook`, in `folder`. Raises CellExecutionError for one that fails."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"} | {"PYTHONPATH": path}
    client = NotebookClient(
        notebook, timeout=TIMEOUT, kernel_name="python3", record_timing=False,
        resources={"metadata": {"path": str(folder)}},
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
    path = output_half(name)
    notebook = clean(execute(source(name), path.parent))
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def faults(name):
    """How the halves of a notebook disagree, a list of sentences."""
    for half, path in (("text", text_half(name)), ("output", output_half(name))):
        if not path.exists():
            place = path.relative_to(NOTEBOOKS).as_posix()
            return [f"{name} has no {half} half: notebooks/{place} does not exist"]
    text, output = source(name), stored(name)
    found = []
    if code_sha256(text) != code_sha256(output):
        found.append(f"{name}: the code of the two halves differs")
    elif [*map(_written, text.cells)] != [*map(_written, output.cells)]:
        found.append(f"{name}: the prose or the tags of the two halves differ")
    if output.metadata.get("sparsekern", {}).get(HASH) != code_sha256(output):
        found.append(f"{name}: the outputs are not of this code")
    return found


def _written(cell):
    return cell.cell_type, cell.source, cell.metadata.get("tags", [])


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
