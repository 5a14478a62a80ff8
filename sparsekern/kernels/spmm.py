"""SpMM: C = A @ B with A in CSR, B and C dense and row-major.

The kernel of *Sparse GPU Kernels for Deep Learning* (Gale, Zaharia, Young, Elsen, SC20), section V,
with each of its optimisations as a toggle, and three of our own (uniform trip count, uniform branch,
split rows).
"""

from numba import cuda, float32, int32, int64, njit

from sparsekern.machine import lanes


def make_spmm(variant, types):
    """The SpMM kernel of `variant` (an `SpmmVariant`) for `types` (a `Types`), as a plain function.

    Hierarchical one-dimensional tiling: a subwarp owns a strip of C, one row by TILE_N columns, and
    runs over the nonzeros of that row of A; its lanes share the columns. `variant` decides the rest.
    """
    VECTOR, SUBWARP, ITEMS = variant.vector, variant.subwarp, variant.items
    ROWS, SPLIT = variant.rows_per_block, variant.split
    STAGE, TILE_K, SLICE = variant.stage, variant.tile_k, variant.slice_words
    SPARSE_VECTOR, ROMA, PRESCALE = variant.sparse_vector, variant.roma, variant.prescale
    UNROLL_RESIDUE, FAITHFUL = variant.unroll_residue, variant.faithful
    UNIFORM_TRIP, UNIFORM_BRANCH = variant.uniform_trip, variant.uniform_branch
    SWIZZLE = variant.bundle or variant.bin

    STRIDE = SUBWARP * VECTOR  # columns from one item of a lane to its next
    TILE_N = STRIDE * ITEMS
    SUMS = ITEMS * VECTOR  # registers of a lane that hold C
    VECTOR_STEPS = -(-TILE_K // (SUBWARP * SPARSE_VECTOR))  # loads of A by a lane for a tile
    SCALAR_STEPS = -(-TILE_K // SUBWARP)
    STAGED = ROWS * SPLIT * SLICE  # words of shared memory for values, as many for columns
    PARTIAL = ROWS * (SPLIT - 1) * TILE_N  # words of shared memory for the sums of split rows
    UNROLL = 4  # nonzeros in a group of the unrolled residue
    FULL_MASK = 0xFFFFFFFF
    TEAM_MASK = FULL_MASK >> (32 - SUBWARP)  # the lanes of the first subwarp in a warp
    TEAMS = 32 // SUBWARP  # subwarps in a warp

    @njit(inline="always")
    def finish(total, row, column):
        """What is stored in C[row, column]. A bias or an activation goes here."""
        return total

    @njit(inline="always")
    def add_row(wanted, a, index, B, ldb, shift, column, n, acc):
        """acc += a * B[index, my columns], if wanted.

        `shift` leads from the start of a row of B to my first item, which is in `column`. Positions
        in B are int64, since k * ldb can pass 2**31; `shift` and `ldb` are, and carry the sum along.
        """
        start = shift + index if PRESCALE else shift + index * ldb
        for i in range(ITEMS):
            inside = wanted & (column + i * STRIDE < n)
            b = lanes.load_if(inside, B, start + i * STRIDE, VECTOR)
            lanes.axpy(a, b, acc, i * VECTOR)

    def spmm(order, offsets, columns, values, B, ldb, C, ldc, m, n, values_stride, b_stride, c_stride):
        # Who am I?
        lane = cuda.threadIdx.x  # [0, SUBWARP)
        team = cuda.threadIdx.y  # [0, ROWS * SPLIT): my subwarp
        part = team % SPLIT  # [0, SPLIT): its share of a row

        # Where is my tile? A team past the last row has an empty one: it must still meet the barriers.
        position = cuda.blockIdx.x * ROWS + team // SPLIT
        column = cuda.blockIdx.y * TILE_N + lane * VECTOR  # of my first item
        exists = position < m
        row = int64(position)
        first = int64(0)  # of the row's nonzeros
        length = int32(0)
        if exists:
            if SWIZZLE:
                row = int64(order[position])  # New: row swizzle
            first = int64(offsets[row])
            length = int32(offsets[row + 1] - first)
        batch = int64(cuda.blockIdx.z)
        a_shift = batch * values_stride
        b_shift = batch * b_stride + column
        c_shift = batch * c_stride + row * ldc + column

        acc = cuda.local.array(SUMS, float32)  # registers
        for i in range(SUMS):
            acc[i] = float32(0)

        if not STAGE:
            for p in range(first + part, first + length, SPLIT):
                add_row(True, values[a_shift + p], columns[p], B, ldb, b_shift, column, n, acc)

        if STAGE:  # New: a tile of A at a time through shared memory
            staged_values = cuda.shared.array(STAGED, float32, 16)
            staged_columns = cuda.shared.array(STAGED, int32, 16)
            slot = team * SLICE  # my slice of both
            lanes_that_meet = FULL_MASK if UNIFORM_TRIP else TEAM_MASK << (team % TEAMS * SUBWARP)

            skip = int32(0)  # positions at the start of the first tile that belong to the row before
            aligned = True
            if ROMA:  # New: back up to an aligned start
                skip = int32(first % SPARSE_VECTOR)
                if FAITHFUL and length + skip < TILE_K:
                    skip = int32(0)
                first -= skip
                length = int32(length + skip)
            elif SPARSE_VECTOR > 1:
                aligned = first % SPARSE_VECTOR == 0

            # Tiles are dealt to the parts of a row in turn. Mine: `trips`, of which the first `whole`
            # are full; in the first `head` some positions are not the row's.
            trips = int32(((length + TILE_K - 1) // TILE_K - part + SPLIT - 1) // SPLIT)
            whole = int32((length // TILE_K - part + SPLIT - 1) // SPLIT)
            head = int32(1) if skip > 0 and part == 0 and not FAITHFUL else int32(0)
            if UNIFORM_TRIP:
                trips = lanes.warp_max(trips, SUBWARP)  # New
            if UNIFORM_BRANCH:
                whole = lanes.warp_min(whole, SUBWARP)  # New
                head = lanes.warp_max(head, SUBWARP)  # New

            for t in range(trips):
                tile = (t * SPLIT + part) * TILE_K
                begin = skip if tile == 0 else int32(0)
                count = min(length - tile, TILE_K)  # positions [begin, count) are the row's; maybe none

                if t > 0:
                    cuda.syncwarp(lanes_that_meet)  # the tile before has been read
                if t < whole and aligned:
                    for i in range(VECTOR_STEPS):
                        s = (lane + i * SUBWARP) * SPARSE_VECTOR
                        if s < TILE_K:
                            p = first + tile + s
                            indices = lanes.load(columns, p, SPARSE_VECTOR)
                            if PRESCALE:
                                indices = lanes.scale(indices, ldb)  # New
                            lanes.store(staged_columns, slot + s, indices)
                            lanes.store(
                                staged_values, slot + s, lanes.load(values, a_shift + p, SPARSE_VECTOR)
                            )
                            if s < begin:  # mask what is not the row's; this lane staged it: no barrier
                                for u in range(begin):
                                    lanes.store(staged_values, slot + u, (float32(0),))
                                    if FAITHFUL:
                                        lanes.store(staged_columns, slot + u, (int32(0),))
                else:
                    for i in range(SCALAR_STEPS):
                        s = lane + i * SUBWARP
                        if s < TILE_K:
                            mine = (begin <= s) & (s < count)
                            p = first + tile + s
                            indices = lanes.load_if(mine, columns, p, 1)
                            if PRESCALE:
                                indices = lanes.scale(indices, ldb)  # New
                            lanes.store(staged_columns, slot + s, indices)
                            lanes.store(staged_values, slot + s, lanes.load_if(mine, values, a_shift + p, 1))
                cuda.syncwarp(lanes_that_meet)  # the tile is there

                if head <= t < whole:
                    for j in range(0, TILE_K, SPARSE_VECTOR):
                        a = lanes.load(staged_values, slot + j, SPARSE_VECTOR)
                        indices = lanes.load(staged_columns, slot + j, SPARSE_VECTOR)
                        for u in range(SPARSE_VECTOR):
                            add_row(True, a[u], indices[u], B, ldb, b_shift, column, n, acc)
                elif not UNROLL_RESIDUE:
                    for j in range(begin, count):
                        a, index = staged_values[slot + j], staged_columns[slot + j]
                        add_row(True, a, index, B, ldb, b_shift, column, n, acc)
                else:
                    for j in range(0, count, UNROLL):  # New: groups, with no test between their loads
                        for g in range(0, UNROLL, SPARSE_VECTOR):
                            a = lanes.load(staged_values, slot + j + g, SPARSE_VECTOR)
                            indices = lanes.load(staged_columns, slot + j + g, SPARSE_VECTOR)
                            for u in range(SPARSE_VECTOR):
                                wanted = FAITHFUL or begin <= j + g + u < count
                                add_row(wanted, a[u], indices[u], B, ldb, b_shift, column, n, acc)

        if SPLIT > 1:  # New: add the sums of the parts, in order
            partial = cuda.shared.array(PARTIAL, float32)
            mine = team // SPLIT * (SPLIT - 1) * TILE_N + lane
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
                c = column + i * STRIDE
                for v in range(VECTOR):
                    acc[i * VECTOR + v] = finish(acc[i * VECTOR + v], row, c + v)
                if c + VECTOR <= n:
                    lanes.store(C, c_shift + i * STRIDE, lanes.take(acc, i * VECTOR, VECTOR))
                else:
                    for v in range(VECTOR):
                        if c + v < n:
                            lanes.store(C, c_shift + i * STRIDE + v, lanes.take(acc, i * VECTOR + v, 1))

    return spmm
