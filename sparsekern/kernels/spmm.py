"""SpMM: C = A @ B with A in CSR, B and C dense and row-major.

The kernel of *Sparse GPU Kernels for Deep Learning* (Gale, Zaharia, Young, Elsen, SC20), section V,
with each of its optimisations as a toggle, and some of our own (uniform trip count, uniform branch,
split rows, order of tiles). A toggle's lines begin at its `# New:`.
"""

import numba
from numba import cuda, int32, int64, njit

from sparsekern.machine import lanes


def make_spmm(variant, types):
    """The SpMM kernel of `variant` (an `SpmmVariant`) for `types` (a `Types`), as a plain function.

    Hierarchical one-dimensional tiling: a subwarp owns a strip of C, one row by TILE_N columns, and
    runs over the nonzeros of that row of A; its lanes share the columns. `variant` decides the rest.
    """
    if variant.in_flight:
        raise ValueError("in_flight is a page of its own: make_spmm_in_flight, in spmm_in_flight.py")
    VECTOR, SUBWARP, ITEMS = variant.vector, variant.subwarp, variant.items
    ROWS, SPLIT, N_FIRST = variant.rows_per_block, variant.split, variant.n_first
    STAGE, TILE_K, SLICE = variant.stage, variant.tile_k, variant.slice_words
    SPARSE_VECTOR, ROMA, PRESCALE = variant.sparse_vector, variant.roma, variant.prescale
    UNROLL_RESIDUE, FAITHFUL = variant.unroll_residue, variant.faithful
    UNIFORM_TRIP, UNIFORM_BRANCH = variant.uniform_trip, variant.uniform_branch
    SWIZZLE = variant.bundle or variant.bin
    VALUE, INDEX, SUM = (getattr(numba, name) for name in (types.values, types.index, types.acc))

    STRIDE = SUBWARP * VECTOR  # columns from one item of a lane to its next
    TILE_N = STRIDE * ITEMS
    SUMS = ITEMS * VECTOR  # registers of a lane that hold C
    VECTOR_STEPS = -(-TILE_K // (SUBWARP * SPARSE_VECTOR))  # vectors of A that a lane stages of a tile
    SCALAR_STEPS = -(-TILE_K // SUBWARP)  # or elements
    STAGED = ROWS * SPLIT * SLICE  # words of shared memory for values, as many for columns
    PARTIAL = ROWS * (SPLIT - 1) * TILE_N  # words of shared memory for the sums of split rows
    UNROLL = 4  # nonzeros in a group of the unrolled residue
    FULL_MASK = lanes.FULL_MASK
    SUBWARP_MASK = FULL_MASK >> (32 - SUBWARP)  # the lanes of the first subwarp of a warp
    PER_WARP = 32 // SUBWARP  # subwarps in a warp

    @njit(inline="always")
    def finish(total, row, column):
        """What is stored in C[row, column]. A bias or an activation goes here."""
        return total

    @njit(inline="always")
    def add_row(wanted, a, index, B, ldb, shift, column, n, acc):
        """acc += a * B[index, my columns], if wanted.

        `shift` leads from the start of a row of B to my first item, which is in `column`. Positions in
        B are int64, since k * ldb can pass 2**31: `shift` and `ldb` are, and carry the sum along.
        """
        start = shift + index if PRESCALE else shift + index * ldb
        for i in range(ITEMS):
            inside = wanted & (column + i * STRIDE < n)
            b = lanes.load_if(inside, B, start + i * STRIDE, VECTOR)  # New: vector
            lanes.axpy(a, b, acc, i * VECTOR)

    def spmm(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        # Who am I?
        lane = int32(cuda.threadIdx.x)  # New: subwarp, [0, SUBWARP)
        subwarp = int32(cuda.threadIdx.y)  # New: rows_per_block, [0, ROWS * SPLIT)
        part = int32(subwarp % SPLIT)  # New: split, [0, SPLIT), its share of a row

        # Where is my tile? A subwarp past the last row has an empty one: it must still meet the barriers.
        row_block, column_tile = cuda.blockIdx.x, cuda.blockIdx.y
        if N_FIRST:  # New: n_first, all column tiles of a block of rows before the next rows
            row_block, column_tile = cuda.blockIdx.y, cuda.blockIdx.x
        position = int64(row_block) * ROWS + subwarp // SPLIT
        column = int32(column_tile * TILE_N + lane * VECTOR)  # New: items, of my first one
        row = position
        first = int64(0)  # of the row's nonzeros; int64, as offsets may be
        length = int32(0)
        exists = position < m
        if exists:
            if SWIZZLE:  # New: bundle, bin, by a list that says in one load what offsets say in two
                first, packed = lanes.load(work, 2 * position, 2)
                row, length = int64(int32(packed)), int32(packed >> 32)
            else:
                first = int64(lanes.load(offsets, row, 1)[0])
                length = int32(lanes.load(offsets, row + 1, 1)[0] - first)
        batch = int64(cuda.blockIdx.z)
        a_shift = batch * values_stride
        b_shift = batch * b_stride + column
        c_shift = batch * c_stride + row * ldc + column

        acc = cuda.local.array(SUMS, SUM)  # registers
        for i in range(SUMS):
            acc[i] = SUM(0)

        if not STAGE:
            for j in range(part, length, SPLIT):
                (a,) = lanes.load(values, a_shift + first + j, 1)
                (index,) = lanes.load(columns, first + j, 1)
                add_row(True, a, index, B, ldb, b_shift, column, n, acc)

        if STAGE:  # New: stage, a tile of A at a time through shared memory
            staged_values = cuda.shared.array(STAGED, VALUE, 16)
            staged_columns = cuda.shared.array(STAGED, INDEX, 16)
            slot = int32(subwarp * SLICE)  # New: stage_pad, my slice of both
            mask = FULL_MASK if UNIFORM_TRIP else SUBWARP_MASK << (subwarp % PER_WARP * SUBWARP)

            skip = int32(0)  # positions at the start of the first tile that belong to the row before
            if ROMA:  # New: roma, back up to an aligned start
                skip = int32(first % SPARSE_VECTOR)
                if FAITHFUL and length + skip < TILE_K:
                    skip = int32(0)
                first -= skip
                length = int32(length + skip)

            # Tiles are dealt to the parts of a row in turn. Mine: `trips`, of which the first `whole`
            # are full; in the first `head` some positions are not the row's.
            trips = int32(((length + TILE_K - 1) // TILE_K - part + SPLIT - 1) // SPLIT)
            whole = int32((length // TILE_K - part + SPLIT - 1) // SPLIT)
            head = int32(1) if skip > 0 and part == 0 and not FAITHFUL else int32(0)
            if UNIFORM_TRIP:  # New: uniform_trip
                trips = lanes.warp_max(trips, SUBWARP)
            if UNIFORM_BRANCH:  # New: uniform_branch
                whole = lanes.warp_min(whole, SUBWARP)
                head = lanes.warp_max(head, SUBWARP)

            for t in range(trips):
                tile = int32((t * SPLIT + part) * TILE_K)  # its first position, counted from `first`
                start = skip if tile == 0 else int32(0)  # positions [start, stop) of the tile are the row's,
                stop = int32(min(length - tile, TILE_K))  # which may be none

                if t > 0:
                    cuda.syncwarp(mask)  # the tile before has been read
                if ROMA and t < whole:
                    for i in range(VECTOR_STEPS):
                        s = int32((lane + i * SUBWARP) * SPARSE_VECTOR)
                        if s < TILE_K:
                            indices = lanes.load(columns, first + tile + s, SPARSE_VECTOR)
                            if PRESCALE:  # New: prescale, once for a nonzero and not once for each lane
                                indices = lanes.scale(indices, ldb)
                            lanes.store(staged_columns, slot + s, indices)
                            a = lanes.load(values, a_shift + first + tile + s, SPARSE_VECTOR)
                            lanes.store(staged_values, slot + s, a)
                            # Values of the row before may be NaN, and NaN * 0 is no 0: masking them by
                            # position is not enough. This lane stored them, so no barrier is needed.
                            if s < start:
                                for u in range(start):
                                    lanes.store(staged_values, slot + u, (VALUE(0),))
                                    if FAITHFUL:  # New: faithful, row 0 of B stands in for what is masked
                                        lanes.store(staged_columns, slot + u, (INDEX(0),))
                else:
                    for i in range(SCALAR_STEPS):
                        s = int32(lane + i * SUBWARP)
                        if s < TILE_K:
                            ours = (start <= s) & (s < stop)
                            indices = lanes.load_if(ours, columns, first + tile + s, 1)
                            if PRESCALE:
                                indices = lanes.scale(indices, ldb)
                            lanes.store(staged_columns, slot + s, indices)
                            a = lanes.load_if(ours, values, a_shift + first + tile + s, 1)
                            lanes.store(staged_values, slot + s, a)
                cuda.syncwarp(mask)  # the tile is there

                if head <= t and t < whole:
                    for j in range(0, TILE_K, SPARSE_VECTOR):
                        a = lanes.load(staged_values, slot + j, SPARSE_VECTOR)  # New: sparse_vector
                        indices = lanes.load(staged_columns, slot + j, SPARSE_VECTOR)
                        for u in range(SPARSE_VECTOR):
                            add_row(True, a[u], indices[u], B, ldb, b_shift, column, n, acc)
                elif not UNROLL_RESIDUE:
                    for j in range(start, stop):
                        (a,) = lanes.load(staged_values, slot + j, 1)
                        (index,) = lanes.load(staged_columns, slot + j, 1)
                        add_row(True, a, index, B, ldb, b_shift, column, n, acc)
                else:
                    for j in range(0, stop, UNROLL):  # New: unroll_residue, groups without a branch inside
                        for g in range(0, UNROLL, SPARSE_VECTOR):
                            a = lanes.load(staged_values, slot + j + g, SPARSE_VECTOR)
                            indices = lanes.load(staged_columns, slot + j + g, SPARSE_VECTOR)
                            for u in range(SPARSE_VECTOR):
                                wanted = FAITHFUL or ((start <= j + g + u) & (j + g + u < stop))
                                add_row(wanted, a[u], indices[u], B, ldb, b_shift, column, n, acc)

        if SPLIT > 1:  # the sums of the parts, added in order
            partial = cuda.shared.array(PARTIAL, SUM)
            mine = int32(subwarp // SPLIT * (SPLIT - 1) * TILE_N + lane)
            if part > 0:
                for i in range(SUMS):
                    partial[mine + (part - 1) * TILE_N + i * SUBWARP] = acc[i]
            cuda.syncthreads()
            if part == 0:
                for other in range(SPLIT - 1):
                    for i in range(SUMS):
                        acc[i] += partial[mine + other * TILE_N + i * SUBWARP]

        if exists and part == 0:
            for i in range(ITEMS):
                c = int32(column + i * STRIDE)
                for v in range(VECTOR):
                    if c + v < n:
                        acc[i * VECTOR + v] = finish(acc[i * VECTOR + v], row, c + v)
                if c + VECTOR <= n:
                    lanes.store(C, c_shift + i * STRIDE, lanes.take(acc, i * VECTOR, VECTOR))
                else:
                    for v in range(VECTOR):
                        if c + v < n:
                            lanes.store(C, c_shift + i * STRIDE + v, lanes.take(acc, i * VECTOR + v, 1))

    return spmm
