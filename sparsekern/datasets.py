"""Matrices from files: the Deep Learning Matrix Collection (.smtx), Matrix Market, and look-alikes.

The collection (DLMC) comes from Gale et al., Sparse GPU Kernels for Deep Learning, SC20. It is not
part of sparsekern, which ships the facts of 49 of its layers and generates matrices like them.
`data/README.md` describes the format and says where the files come from.
"""

import csv
import difflib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp

from sparsekern.formats import Csr, Topology
from sparsekern.generators import like_dlmc

ROOT_VARIABLE = "SPARSEKERN_DLMC"


def read_smtx(path, seed=0):
    """The .smtx file at `path` as a `Csr` with seeded standard normal float32 values.

    Raises ValueError for a malformed file, naming the file, the line, the value and the rule.
    """
    path = Path(path)
    header, offsets, columns = _three_lines(path, path.read_bytes())
    sizes = _integers(f"{path}, line 1", header.replace(b",", b" "))
    if len(sizes) != 3:
        raise ValueError(f"{path}, line 1 has {len(sizes)} integers; it must have 3: rows, cols, nnz")
    m, k, nnz = sizes.tolist()
    offsets = _integers(f"{path}, line 2", offsets)
    if len(offsets) != m + 1:
        raise ValueError(f"{path}, line 2 has {len(offsets)} offsets; {m} rows need {m + 1}")
    if offsets[0] != 0 or offsets[-1] != nnz:
        raise ValueError(
            f"{path}, line 2 runs from {offsets[0]} to {offsets[-1]}; "
            f"offsets must run from 0 to {nnz}, the nnz of line 1"
        )
    columns = _integers(f"{path}, line 3", columns)
    if len(columns) != nnz:
        raise ValueError(f"{path}, line 3 has {len(columns)} columns; line 1 says that nnz is {nnz}")
    try:
        topology = Topology(offsets, columns, (m, k))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return Csr(topology, np.random.default_rng(seed).standard_normal(nnz, dtype=np.float32))


def _three_lines(path, content):
    """Header, offsets and columns; the last is empty when the file ends before it."""
    lines = content.splitlines()
    if len(lines) < 2:
        raise ValueError(f"{path} lacks line {len(lines) + 1}; it must have 3: sizes, offsets, columns")
    for number, line in enumerate(lines[3:], start=4):
        if line.strip():
            raise ValueError(f"{path}, line {number} is {_start(line)}; nothing may follow line 3")
    return (*lines, b"")[:3]


def _integers(where, line):
    """(n,) int32: the integers of one line."""
    if line.translate(None, b"0123456789 \t\v\f"):
        wrong = next(word for word in line.split() if not word.isdigit())
        raise ValueError(f"{where} holds {_start(wrong)}; it must hold integers in [0, 2**31)")
    if not line.strip():
        return np.zeros(0, np.int32)
    wide = np.fromstring(line, dtype=np.int64, sep=" ")
    if wide.max() >= 2**31:
        raise ValueError(f"{where} holds {wide.max()}; it must hold integers in [0, 2**31)")
    return wide.astype(np.int32)


def _start(text):
    return repr(text[:40].decode("utf-8", "replace"))


def write_smtx(path, a):
    """Writes the structure of a `Csr` or `Topology` as .smtx, the way DLMC does, from offset 0 on.

    The file appears at `path` whole or not at all. Values are not written: the format has none.

    Raises TypeError for anything else.
    """
    topology = a.topology if isinstance(a, Csr) else a
    if not isinstance(topology, Topology):
        raise TypeError(f"a is a {type(a).__name__}; it must be a sparsekern Csr or Topology")
    (m, k), first, last = topology.shape, topology.offsets[0], topology.offsets[-1]
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "w", encoding="ascii", newline="\n") as file:
            file.write(f"{m}, {k}, {topology.nnz}\n")
            for array in (topology.offsets - first, topology.columns[first:last]):
                file.writelines(f"{n} " for n in array.tolist())
                file.write("\n")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def read_matrix_market(path):
    """The Matrix Market file at `path` (.mtx or .mtx.gz) as a `Csr` with float32 values.

    Symmetric files are expanded, repeated entries added up, explicit zeros kept; the entries of a
    pattern are ones.

    Raises ValueError for complex entries and for a malformed file.
    """
    try:
        entries = scipy.io.mmread(path)
    except FileNotFoundError:
        raise
    except (ValueError, OverflowError, EOFError, OSError) as error:
        raise ValueError(f"{path}: {error}") from None
    if np.iscomplexobj(entries):
        raise ValueError(
            f"{path} holds complex entries; sparsekern computes in float32, so they must be real"
        )
    a = sp.csr_array(entries)
    offsets, columns = a.indptr.astype(np.int32), a.indices.astype(np.int32)
    return Csr.from_arrays(offsets, columns, a.data.astype(np.float32), a.shape)


@dataclass(frozen=True)
class Layer:
    """One file of a DLMC tree. `sparsity` is the nominal one; that of the matrix may be far from it."""

    name: str  # <model>/<method>/<sparsity>/<layer>.smtx
    path: Path
    model: str
    method: str
    sparsity: float

    def load(self, seed=0):
        return read_smtx(self.path, seed)


def dlmc(root=None):
    """The layers of a DLMC tree, a list of `Layer` sorted by name.

    `root` is the folder that holds the models; without it, the environment variable SPARSEKERN_DLMC
    says where that is.

    Raises FileNotFoundError without a root or without .smtx files in it, ValueError for a file whose
    place does not follow <model>/<method>/<sparsity>/<layer>.smtx.
    """
    origin = "root" if root is not None else ROOT_VARIABLE
    root = root if root is not None else os.environ.get(ROOT_VARIABLE)
    if not root:
        raise FileNotFoundError(
            f"no DLMC tree: pass its folder, dlmc(root), or set {ROOT_VARIABLE} to it; "
            "data/README.md says how to get one"
        )
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f"{origin} is {root}; it must be a folder that exists")
    layers = sorted(
        (_layer(root, path) for path in root.rglob("*.smtx") if path.is_file()), key=lambda layer: layer.name
    )
    if not layers:
        raise FileNotFoundError(f"{origin} is {root}; it must hold .smtx files, and holds none")
    return layers


def layers_named(names, root=None):
    """{name: its `Layer`} of a DLMC tree. Raises as `dlmc`, and ValueError if the tree lacks one."""
    found = {layer.name: layer for layer in dlmc(root)}
    lacking = [name for name in names if name not in found]
    if lacking:
        tree = root if root is not None else f"{ROOT_VARIABLE}={os.environ[ROOT_VARIABLE]}"
        raise ValueError(f"{tree} lacks {len(lacking)} of {len(names)} layers, among them {lacking[0]}")
    return {name: found[name] for name in names}


def _layer(root, path):
    name = path.relative_to(root).as_posix()
    try:
        model, method, sparsity, _ = name.split("/")
        return Layer(name, path, model, method, float(sparsity))
    except ValueError:
        raise ValueError(
            f"{root} holds {name}; each file must be <model>/<method>/<sparsity>/<layer>.smtx below the root"
        ) from None


@dataclass(frozen=True)
class LayerFacts:
    """What is known of a DLMC layer without its file. CoV: population standard deviation / mean."""

    path: str  # the name of its Layer
    rows: int
    cols: int
    nnz: int
    cov_row: float  # of row lengths
    cov_col: float  # of column counts
    N_small: int  # columns of B in the paper at batch 1, before rounding up to a multiple of 4


def layers():
    """The facts of 49 DLMC layers, a list of `LayerFacts`: one for each model, method and sparsity."""
    kinds = LayerFacts.__annotations__
    with open(Path(__file__).with_name("layers.csv"), encoding="utf-8", newline="") as file:
        return [LayerFacts(**{key: kinds[key](row[key]) for key in kinds}) for row in csv.DictReader(file)]


def look_alike(name, seed=0):
    """A generated `Csr` with the shape, nnz and CoVs (within 10%) of the layer whose path is `name`.

    Raises KeyError, with names like it, for a layer that `layers()` does not have.
    """
    known = {facts.path: facts for facts in layers()}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0) if isinstance(name, str) else []
        raise KeyError(f"name is {name!r}; it must be the path of one of layers(), such as {', '.join(near)}")
    facts = known[name]
    return like_dlmc(facts.rows, facts.cols, facts.nnz, facts.cov_row, facts.cov_col, seed)
