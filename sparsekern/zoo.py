"""Small matrices that break kernels, by name, each with the reason why it is kept.

Tests and notebooks share them: `for name, specimen in ZOO.items(): a = specimen.make()`. None has more
than 60 rows or 1500 nonzeros, so that the emulator gets through one quickly. The docstring of each
function below becomes its `why`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sparsekern.formats import Csr, Topology
from sparsekern.generators import banded, like_dlmc, power_law, uniform, with_row_lengths

TILE = 32  # lanes of a warp, and the nonzeros that a kernel usually stages at a time


@dataclass(frozen=True)
class Specimen:
    """A small matrix: its name, why a kernel may get it wrong, and what makes it, the same each time."""

    name: str
    why: str
    make: Callable[[], Csr]


ZOO: dict[str, Specimen] = {}


def specimen(make):
    """Enters `make` into the zoo under its own name, for the reason in its docstring."""
    ZOO[make.__name__] = Specimen(make.__name__, make.__doc__, make)
    return make


def from_rows(rows, k):
    """A (len(rows), k) `Csr`; each row is a list of (column, value), stored in the order given."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    columns = np.array([column for row in rows for column, _ in row], np.int32)
    values = np.array([value for row in rows for _, value in row], np.float32)
    return Csr.from_arrays(offsets, columns, values, (len(rows), k))


@specimen
def no_rows():
    """The grid is empty, and launching 0 blocks is an error."""
    return uniform(0, 5, 0.0)


@specimen
def no_columns():
    """B has no row to read, and C is rows of zeros all the same."""
    return uniform(5, 0, 0.0)


@specimen
def nothing():
    """Neither rows nor columns: offsets is [0]."""
    return uniform(0, 0, 0.0)


@specimen
def one_by_one():
    """One nonzero: every lane but one is masked."""
    return uniform(1, 1, 0.0)


@specimen
def single_row():
    """One subwarp has a row; the others must still reach the barriers of the block."""
    return with_row_lengths([50], 70)


@specimen
def single_column():
    """Every nonzero reads the only row of B: reading one row further is out of bounds."""
    return with_row_lengths([1, 0, 1, 1] * 5, 1)


@specimen
def last_column_only():
    """Every nonzero reads the last row of B, where a wide load that goes too far leaves the array."""
    return from_rows([[(30, 1.0)], [], [(30, -2.0)], [(30, 0.5)], [(30, 3.0)]], 31)


@specimen
def no_nonzeros():
    """Columns and values have length 0, so that no address in them is legal; C must still be written."""
    return uniform(6, 8, 1.0)


@specimen
def one_row_holds_all():
    """All rows but one are empty, and C must be written there too."""
    return with_row_lengths([0] * 10 + [45] + [0] * 10, 64)


@specimen
def first_and_last_row_empty():
    """The first and the last row have offsets at the edges of the arrays and nothing to read there."""
    return with_row_lengths([0, 12, 5, 33, 0], 40)


@specimen
def one_giant_row():
    """300 nonzeros among ones: lanes that are done wait through a long loop, and load nothing."""
    return with_row_lengths([1] * 9 + [300] + [1] * 10, 320)


@specimen
def long_and_empty_in_turn():
    """Subwarps of one warp never have a trip count in common."""
    return with_row_lengths([100, 0] * 6, 110)


@specimen
def whole_tiles():
    """No residue: the loop over it must run zero times."""
    return with_row_lengths([TILE, 2 * TILE] * 5, 80)


@specimen
def tiles_plus_and_minus_one():
    """Residues of one nonzero, and of all but one."""
    return with_row_lengths([n * TILE + d for n in (1, 2, 3) for d in (-1, 0, 1)], 100)


@specimen
def lengths_0_to_40():
    """Every residue of a tile, and rows that start at every alignment modulo 4."""
    return with_row_lengths(range(41), 64)


@specimen
def aligned_rows():
    """Every row starts at a multiple of 4: aligning backwards must mask nothing."""
    return with_row_lengths([4, 8, 0, 36, 40, 12], 64)


@specimen
def misaligned_rows():
    """No row but the first starts at a multiple of 4: aligning backwards reads the row before."""
    return with_row_lengths([1, 4, 8, 36, 0, 40, 12], 64)


@specimen
def duplicate_columns():
    """Entries at the same position add up; none may overwrite another."""
    a = with_row_lengths([6, 40, 0, 33, 3], 40)
    return Csr(Topology(a.topology.offsets, a.topology.columns // 4, a.shape), a.values)


@specimen
def unsorted_columns():
    """Nothing in CSR says that columns ascend."""
    a = with_row_lengths([5, 33, 0, 40, 1, 17], 48)
    columns = np.concatenate([row[::-1] for row in np.split(a.topology.columns, a.topology.offsets[1:-1])])
    return Csr(Topology(a.topology.offsets, columns, a.shape), a.values)


@specimen
def explicit_zeros():
    """A stored 0.0 or -0.0 is an entry like others: times Inf it is NaN, and SDDMM computes its position."""
    return from_rows(
        [[(0, 0.0), (3, 1.5), (7, -0.0)], [(2, -0.0), (5, -0.0)], [(1, 0.0)], [], [(4, 2.0), (6, -2.0)]], 8
    )


@specimen
def extreme_values():
    """1e30 beside 1e-30 and beside denormals, which flushing to zero would lose."""
    least = float(np.finfo(np.float32).smallest_subnormal)
    return from_rows(
        [
            [(0, 1e30), (1, -1e30), (2, 1.0)],
            [(3, 1e-30), (4, 2e-30)],
            [(5, 1e-40), (6, least), (7, -least)],
            [(0, 1e30), (4, 1e-30), (7, 1e-40)],
        ],
        8,
    )


@specimen
def int64_offsets():
    """SciPy makes offsets 64 bits wide when it sees fit."""
    a = with_row_lengths([3, 0, 35, 8], 40)
    return Csr(Topology(a.topology.offsets.astype(np.int64), a.topology.columns, a.shape), a.values)


@specimen
def window_of_rows():
    """Rows 2 to 7 of a longer matrix, on its arrays: offsets start at 5, and values are NaN outside."""
    whole = with_row_lengths([3, 2, 40, 0, 7, 32, 1, 33, 9, 4], 50)
    offsets = whole.topology.offsets[2:9]
    values = np.full_like(whole.values, np.nan)
    inside = slice(offsets[0], offsets[-1])
    values[inside] = whole.values[inside]
    return Csr(Topology(offsets, whole.topology.columns, (6, 50)), values)


@specimen
def read_only_values():
    """Values that nobody may write to, such as those of a memory-mapped file."""
    a = with_row_lengths([7, 33, 2], 40)
    a.values.flags.writeable = False
    return a


@specimen
def strided_values():
    """Every other element of a longer array: value i is not 4 * i bytes from the first."""
    a = with_row_lengths([7, 33, 2], 40)
    return a.with_values(np.repeat(a.values, 2)[::2])


@specimen
def zero_stride_values():
    """One number for all nonzeros, broadcast: 4 bytes of memory stand for them all."""
    a = with_row_lengths([7, 33, 2], 40)
    return a.with_values(np.broadcast_to(np.float32(0.5), a.nnz))


@specimen
def thirty_seven_rows():
    """A prime number of rows fills no block to the last, however many rows a block takes."""
    return uniform(37, 52, 0.8)


@specimen
def dense():
    """Nothing is zero, and rows are as long as there are columns."""
    return uniform(16, 24, 0.0)


@specimen
def power_law_rows():
    """Many short rows and few long ones, as in graphs: the case for sorting rows."""
    return power_law(48, 64, 500)


@specimen
def diagonals():
    """Neighbouring rows share columns, as in stencils, and the rows at both ends are shorter."""
    return banded(40, 36, 3)


@specimen
def pruned_layer():
    """A look-alike of a pruned layer, 80% sparse and uneven: what the kernels are made for."""
    return like_dlmc(24, 64, 307, cov_row=0.46, cov_col=0.52)
