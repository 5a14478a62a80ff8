"""What the blocks of a launch have to do, in closed form: instructions, passes through L1, chains of loads.

Read off the kernel pages line by line. What every launch has to do, such as a multiply-add for each nonzero
and column, makes the bounds of `study.cost`; what the compiler makes of the rest is estimated with constants,
and goes into its prediction. `study.counters` counts exactly, at a thousand times the cost.
"""

from dataclasses import dataclass

import numpy as np

from sparsekern.toggles import WARP

WORD, LINE, SECTOR = 4, 128, 32  # bytes
BANKS = 32  # of shared memory
GROUP = 4  # loads of B that a lane of the paper's kernel has under way at once
FEW = 16  # nonzeros of a strip whose rows a lane of SDDMM asks for before it uses one


@dataclass(frozen=True)
class Work:
    """Of a launch. The arrays have an element for each block, in no particular order.

    issue: warp instructions, estimated; least_issue: those that are certain, in all. l1: clocks of an SM's L1
    data path, 128 bytes each, shared memory included.
    chain: loads, one after another, that the slowest warp waits for. l1_bytes: of global memory, in all.
    l2_bytes: those of dense rows that a block reads for the first time.
    """

    issue: np.ndarray
    l1: np.ndarray
    chain: np.ndarray
    l1_bytes: float
    l2_bytes: float
    least_issue: float


def work_of(topology, problem, variant):
    """The `Work` of a launch of `variant` for `problem`, whose sparse matrix has that topology."""
    return _WORK[problem.op](topology, problem, variant)


def _by_warp(x, variant):
    """(..., blocks, warps of a block, subwarps of a warp) of (..., subwarps); the last block is padded."""
    lanes, subwarps = variant.block
    each = max(WARP // lanes, 1)
    padding = -x.shape[-1] % subwarps
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, padding)])
    return x.reshape(*x.shape[:-1], x.shape[-1] // subwarps, subwarps // each, each)


def _spmm(topology, p, v):
    lengths, first = topology.row_lengths.astype(np.int64), topology.offsets[:-1].astype(np.int64)
    if v.bundle or v.bin:
        order = topology.row_order(v.bundle, v.bin, v.rows_per_block)
        lengths, first = lengths[order], first[order]
    whole, rest, rounds = _steps(lengths + (first % v.sparse_vector if v.roma else 0), v)
    steps = whole + rest

    tiles = -(-p.n // v.tile_n)
    columns = np.minimum(p.n - np.arange(tiles) * v.tile_n, v.tile_n)  # of each column tile
    items = -(-columns // (v.subwarp * v.vector))  # with some lane inside
    each = WARP // v.subwarp
    reads = 2 / v.sparse_vector if v.stage else 2
    if v.in_flight:
        whole, rest = 0 * whole, -(-steps // v.in_flight) * v.in_flight  # groups, all of them masked
        step = v.items * (1 + v.vector)
        careful = 1 + 3 * v.items  # an address; a mask and zeros for each load
    else:
        step = v.items * (1 + v.vector + (2 if v.prescale else 4))
        careful = 4 if v.unroll_residue else 3 + 2  # masks, or a loop of its own that reads one by one
    staging = 2 * -(-v.tile_k // (v.subwarp * (v.sparse_vector if v.roma else 1))) if v.stage else 0
    issue = whole * (step + reads) + rest * (step + reads + careful) + rounds * (3 * staging + 20)
    issue += 60 + 4 * v.items * v.vector * v.split

    row_bytes = _row_bytes(columns * WORD, p.b.ld)
    mine = _by_warp(_dealt(lengths, v), v).sum(axis=-1)  # nonzeros of a warp
    b_clocks = mine[None] * (row_bytes / LINE)[:, None, None]
    b_clocks = np.maximum(b_clocks, (steps * v.items)[None] * np.ones_like(items)[:, None, None])
    if v.stage:
        passes = max(1, v.sparse_vector // 2)  # of a broadcast of that width
        clash = each if v.stage_pad == 0 and v.sparse_vector == 1 and v.tile_k % BANKS == 0 else 1
        a_clocks = steps * 2 / v.sparse_vector * max(passes, clash) + rounds * 2 * staging
    else:
        a_clocks = steps * 2
    l1 = b_clocks + a_clocks[None]
    if v.in_flight:
        chain = rest / v.in_flight + (1 if v.prefetch else 2 * rounds)
    else:
        alone = GROUP if v.unroll_residue or not v.stage else 2
        chain = v.items * (whole / GROUP + rest / alone) + 2 * rounds
    chain = chain + (3 if v.bundle or v.bin else 4) + (2 if v.split > 1 else 0)
    from_l1 = mine.sum() * row_bytes.sum() + 2 * WORD * tiles * p.nnz
    certain = steps.sum() * (items.sum() * (1 + v.vector) + tiles * reads)
    return Work(
        np.tile(issue.sum(axis=-1), tiles), l1.sum(axis=-1).ravel(), np.tile(chain.max(axis=-1), tiles),
        float(from_l1), float(_first_reads(topology, v) * row_bytes.sum()), float(certain),
    )  # fmt: skip


def _row_bytes(wanted, ld):
    """Bytes of L1 for `wanted` bytes of each row of a matrix: whole sectors, but for less than one."""
    sectors = -(-wanted // SECTOR) * SECTOR + (0 if ld * WORD % SECTOR == 0 else SECTOR / 2)
    return np.where(wanted < SECTOR, wanted, sectors)


def _dealt(lengths, v):
    """(rows * split,) nonzeros that each part of a row gets."""
    parts = np.arange(v.split)
    if not v.stage:
        return np.maximum(-(-(lengths[:, None] - parts) // v.split), 0).ravel()
    tiles = -(-lengths[:, None] // v.tile_k)
    mine = np.maximum(-(-(tiles - parts) // v.split), 0) * v.tile_k
    return np.where(
        (tiles - 1) % v.split == parts, mine - (tiles * v.tile_k - lengths[:, None]), mine
    ).ravel()


def _steps(lengths, v):
    """(steps on whole tiles, other steps, tiles) of each warp, each (blocks, warps)."""
    dealt = _by_warp(_dealt(lengths, v), v)
    if not v.stage:
        longest = dealt.max(axis=-1)
        return np.zeros_like(longest), longest, np.zeros_like(longest)
    tiles, whole = -(-dealt // v.tile_k), dealt // v.tile_k
    if v.uniform_branch:
        together = whole.min(axis=-1) * v.tile_k
        return together, np.maximum(dealt.max(axis=-1) - together, 0), tiles.max(axis=-1)
    rest = dealt - whole * v.tile_k  # paths apart
    return whole.max(axis=-1) * v.tile_k, rest.max(axis=-1), tiles.max(axis=-1)


def _sddmm(topology, p, v):
    lengths = topology.row_lengths.astype(np.int64)
    if v.work == "strips":
        order = v.tile_nnz, v.by_column, v.bundle, v.bin, v.rows_per_block
        counts = topology.strip_list(*order)[None, :, 1] >> 32
    else:
        if v.bundle or v.bin:
            lengths = lengths[topology.row_order(v.bundle, v.bin, v.rows_per_block)]
        strips = v.grid(p)[1]
        first = np.arange(strips)[:, None] * v.tile_nnz
        counts = np.clip(lengths - first, 0, v.tile_nnz)
    counts = _by_warp(np.repeat(counts, v.split, axis=-1), v)  # (strips, blocks, warps, subwarps)
    working = (counts > 0).any(axis=-1)

    steps = -(-p.k // (v.subwarp * v.vector * v.split))  # of a part, on its share of the inner dimension
    halvings = v.subwarp.bit_length() - 1
    shuffles = v.tile_nnz if v.reduction == "halving" else v.tile_nnz * halvings
    step = 8 + v.tile_nnz * ((4 if v.prescale else 6) + v.vector)
    issue = np.where(working, 60 + steps * step + 2 * shuffles + 4 * (v.split > 1) * v.split * v.results, 30)
    row_bytes = float(_row_bytes(np.int64(p.k * WORD), p.rhs.ld)) / v.split  # of a part
    whole = p.k // (v.subwarp * v.vector * v.split)  # steps with every lane at work
    reads = max(v.tile_nnz // 4, 1)  # of staged columns
    l1 = np.where(working, (counts.sum(axis=-1) + 1) * row_bytes / LINE + reads, 0)
    certain = (working * (whole * (1 + counts.max(axis=-1) * (1 + v.vector)) + reads)).sum()
    rounds = 1 if v.tile_nnz <= FEW else counts.max(axis=-1) / 8  # as SASS shows
    chain = np.where(working, (4 if v.work == "strips" else 6) + steps * rounds, 3)
    return Work(
        issue.sum(axis=-1).ravel(), l1.sum(axis=-1).ravel(), chain.max(axis=-1).ravel(),
        float(counts.sum() * row_bytes), float(_first_reads(topology, v) * row_bytes * v.split),
        float(certain),
    )  # fmt: skip


def _first_reads(topology, v):
    """Rows of B, or rhs, that some block reads, each counted once for each such block."""
    listed = getattr(v, "work", "") == "strips"
    tile = getattr(v, "tile_nnz", 0)  # of SpMM a whole row is a strip
    order = *((tile, v.by_column) if listed else ()), v.bundle, v.bin, v.rows_per_block

    def count():
        if listed:
            entries = topology.strip_list(*order)
        else:
            entries = topology.row_list(*order)
        first, lengths = entries[:, 0], entries[:, 1] >> 32
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        columns = topology.columns[np.repeat(first, lengths) + within].astype(np.int64)
        block = np.repeat(np.arange(len(lengths)) // v.rows_per_block, lengths)
        if tile and not listed:
            block = block * -(-len(columns) // tile) + within // tile  # a block for each strip, too
        return len(np.unique(block * topology.shape[1] + columns))

    return topology.derive(("first reads", listed, tile, *order), count)


_WORK = {"spmm": _spmm, "sddmm": _sddmm}
