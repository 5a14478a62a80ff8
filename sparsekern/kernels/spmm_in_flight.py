"""SpMM with many loads in flight: the loop of `make_spmm` turned so that fewer loads wait for others.

A lane of the paper's kernel has about four loads of B under way, and none while it waits for a tile of A.
Here it asks for its part of every row of B that a group of nonzeros needs before it uses any, and with
`prefetch` for the next tile of A before it works on this one.
"""

import numba
from numba import cuda, int32, int64, njit

from sparsekern.machine import lanes


def make_spmm_in_flight(variant, types):
    """The SpMM kernel of an `SpmmVariant` with `in_flight` for `types` (a `Types`), as a plain function.

    Tiled as by `make_spmm`: a subwarp owns one row by TILE_N columns of C and runs over the nonzeros of that
    row. It takes them in groups of GROUP, all alike: what is past the end of the row is masked.
    """
    if not variant.in_flight:
        raise ValueError("without in_flight it is another page: make_spmm, in spmm.py")
    VECTOR, SUBWARP, ITEMS = variant.vector, variant.subwarp, variant.items
    ROWS, SPLIT = variant.rows_per_block, variant.split
    TILE_K, SLICE, READ = variant.tile_k, variant.slice_words, variant.sparse_vector
    GROUP, PREFETCH, N_FIRST = variant.in_flight, variant.prefetch, variant.n_first
    SWIZZLE = variant.bundle or variant.bin
    VALUE, INDEX, SUM = (getattr(numba, name) for name in (types.values, types.index, types.acc))

    STRIDE = SUBWARP * VECTOR  # columns from one item of a lane to its next
    TILE_N = STRIDE * ITEMS
    SUMS = ITEMS * VECTOR  # registers of a lane that hold C
    HELD = GROUP * SUMS  # registers of a lane that hold B: its columns of GROUP rows
    STEPS = -(-TILE_K // SUBWARP)  # nonzeros of a tile that a lane fetches
    BUFFERS = variant.buffers  # tiles in shared memory at a time
    STAGED = ROWS * SPLIT * BUFFERS * SLICE  # words of shared memory for values, as many for columns
    PARTIAL = ROWS * (SPLIT - 1) * TILE_N  # words of shared memory for the sums of split rows
    FULL_MASK = lanes.FULL_MASK

    @njit(inline="always")
    def finish(total, row, column):
        """What is stored in C[row, column]. A bias or an activation goes here."""
        return total

    @njit(inline="always")
    def fetch(row_values, row_columns, tile, length, lane, ldb, my_values, my_columns):
        """Asks for my share of the tile of a row that begins at `tile`; zeros past the row's `length`.

        Column indices become positions in B, at most (k - 1) * ldb < 2**31, once for all lanes.
        """
        for i in range(STEPS):
            s = int32(lane + i * SUBWARP)
            ours = (s < TILE_K) & (tile + s < length)
            (my_values[i],) = lanes.load_if(ours, row_values, int32(tile + s), 1)
            (my_columns[i],) = lanes.scale(lanes.load_if(ours, row_columns, int32(tile + s), 1), ldb)

    def spmm(work, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        # Who am I?
        lane = int32(cuda.threadIdx.x)  # [0, SUBWARP)
        subwarp = int32(cuda.threadIdx.y)  # [0, ROWS * SPLIT)
        part = int32(subwarp % SPLIT)  # [0, SPLIT), its share of a row

        # Where is my tile? A subwarp past the last row has an empty one: it must still meet the barriers.
        row_block, column_tile = cuda.blockIdx.x, cuda.blockIdx.y
        if N_FIRST:  # New: n_first, all column tiles of a block of rows before the next rows
            row_block, column_tile = cuda.blockIdx.y, cuda.blockIdx.x
        position = int64(row_block) * ROWS + subwarp // SPLIT
        column = int32(column_tile * TILE_N + lane * VECTOR)  # of my first item
        row = position
        first = int64(0)  # of the row's nonzeros; int64, as offsets may be
        length = int32(0)
        exists = position < m
        if exists:
            if SWIZZLE:  # a list, see Topology.row_list
                first, packed = lanes.load(work, 2 * position, 2)
                row, length = int64(int32(packed)), int32(packed >> 32)
            else:
                first = int64(lanes.load(offsets, row, 1)[0])
                length = int32(lanes.load(offsets, row + 1, 1)[0] - first)
        batch = int64(cuda.blockIdx.z)
        c_shift = batch * c_stride + row * ldc + column
        row_values = lanes.place(values, batch * values_stride + first)
        row_columns = lanes.place(columns, first)
        b_columns = lanes.place(B, batch * b_stride + column)  # my columns of row 0 of B

        acc = cuda.local.array(SUMS, SUM)  # registers
        for i in range(SUMS):
            acc[i] = SUM(0)
        held = cuda.local.array(HELD, SUM)  # registers
        my_values = cuda.local.array(STEPS, VALUE)  # registers
        my_columns = cuda.local.array(STEPS, INDEX)  # registers
        staged_values = cuda.shared.array(STAGED, VALUE, 16)
        staged_columns = cuda.shared.array(STAGED, INDEX, 16)

        # Tiles are dealt to the parts of a row in turn. All subwarps of a warp loop as often as the longest.
        trips = int32(((length + TILE_K - 1) // TILE_K - part + SPLIT - 1) // SPLIT)
        trips = lanes.warp_max(trips, SUBWARP)
        if PREFETCH:  # New: prefetch, A's next tile comes while this one is worked on
            fetch(row_values, row_columns, int32(part * TILE_K), length, lane, ldb, my_values, my_columns)
        for t in range(trips):
            tile = int32((t * SPLIT + part) * TILE_K)  # its first position in the row
            stop = int32(max(min(length - tile, TILE_K), 0))  # positions [0, stop) of the tile are the row's
            slot = int32((subwarp * BUFFERS + t % BUFFERS) * SLICE)  # where it goes

            if not PREFETCH:
                if t > 0:
                    cuda.syncwarp(FULL_MASK)  # the tile before has been read
                fetch(row_values, row_columns, tile, length, lane, ldb, my_values, my_columns)
            for i in range(STEPS):
                s = int32(lane + i * SUBWARP)
                if s < TILE_K:
                    lanes.store(staged_columns, slot + s, (my_columns[i],))
                    lanes.store(staged_values, slot + s, (my_values[i],))
            cuda.syncwarp(FULL_MASK)  # the tile is there, and of two buffers the other has been read
            if PREFETCH:
                ahead = int32(tile + SPLIT * TILE_K)
                fetch(row_values, row_columns, ahead, length, lane, ldb, my_values, my_columns)

            for j in range(int32(0), lanes.warp_max(stop, SUBWARP), int32(GROUP)):  # New: in_flight
                left = int32(stop - j)  # nonzeros from here on
                for g in range(0, GROUP, READ):
                    indices = lanes.load(staged_columns, slot + j + g, READ)
                    for u in range(READ):
                        b_row = lanes.place(b_columns, indices[u])
                        for i in range(ITEMS):
                            wanted = (g + u < left) & (int32(column + i * STRIDE) < n)
                            b = lanes.load_if(wanted, b_row, i * STRIDE, VECTOR)
                            lanes.put(b, held, (g + u) * SUMS + i * VECTOR)
                # No lane needs this barrier, but the compiler moves no load past one. Without it, it saves
                # registers: it asks for a row or two, uses them, and only then asks for the next.
                cuda.syncwarp(FULL_MASK)
                for g in range(0, GROUP, READ):
                    a = lanes.load(staged_values, slot + j + g, READ)
                    for u in range(READ):
                        for i in range(ITEMS):
                            b = lanes.take(held, (g + u) * SUMS + i * VECTOR, VECTOR)
                            lanes.axpy(a[u], b, acc, i * VECTOR)

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
