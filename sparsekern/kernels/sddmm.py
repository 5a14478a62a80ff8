"""SDDMM: out[i, j] = lhs[i, :] . rhs[j, :] at the nonzeros of a topology in CSR; lhs, rhs row-major.

The kernel of *Sparse GPU Kernels for Deep Learning* (Gale, Zaharia, Young, Elsen, SC20), section VI,
with its optimisations as toggles, and three of our own (bounded and listed work, a split inner
dimension). A toggle's lines begin at its `# New:`.
"""

import numba
from numba import cuda, int32, int64, njit

from sparsekern.machine import lanes


def make_sddmm(variant, types):
    """The SDDMM kernel of `variant` (an `SddmmVariant`) for `types` (a `Types`), as a plain function.

    One-dimensional tiling of the output: a subwarp owns a strip, up to TILE_NNZ nonzeros of one row, and
    runs over the inner dimension, which its lanes share. Each lane has a sum for every nonzero of the
    strip; at the end the lanes add theirs up. `variant` decides the rest.
    """
    VECTOR, SUBWARP, TILE_NNZ = variant.vector, variant.subwarp, variant.tile_nnz
    ROWS, SPLIT, PRESCALE = variant.rows_per_block, variant.split, variant.prescale
    STRIPS, HALVING = variant.work == "strips", variant.reduction == "halving"
    SWIZZLE = STRIPS or variant.bundle or variant.bin
    INDEX, SUM = (getattr(numba, name) for name in (types.index, types.acc))

    STRIDE = SUBWARP * VECTOR  # of the inner dimension, from one step to the next
    RESULTS = variant.results  # sums that a lane stores, of nonzeros lane, lane + SUBWARP, ...
    STAGED = ROWS * SPLIT * TILE_NNZ  # words of shared memory for columns
    PARTIAL = ROWS * (SPLIT - 1) * RESULTS * SUBWARP  # words of shared memory for the sums of other parts
    GROUP = min(TILE_NNZ, 4)  # columns in one read of shared memory
    HALVINGS = SUBWARP.bit_length() - 1
    PER_WARP = 32 // SUBWARP  # subwarps in a warp
    FULL_MASK = lanes.FULL_MASK
    SUBWARP_MASK = FULL_MASK >> (32 - SUBWARP)  # the lanes of the first subwarp of a warp
    FEW = TILE_NNZ <= 16  # then a lane has the rows of all its nonzeros under way; more fill its registers
    TOGETHER = STRIPS and FEW

    @njit(inline="always")
    def add_products(width, left, s, rhs, shift, right, ld_rhs, rows, count, acc):
        """acc[j] += lhs[s : s + width] . rhs[its column, s : s + width] for each nonzero j; lhs from my row.

        Sums from `count` on come out as anything, and are never stored. Positions in rhs are int64, since
        n * ld_rhs can pass 2**31; with prescale they count from `right` and fit int32.
        """
        x = lanes.load_or_leave(count > 0, left, s, width)
        for j in range(TILE_NNZ):
            if PRESCALE:  # New: prescale
                array, index = right, int32(rows[j] + s)
            else:
                array, index = rhs, shift + rows[j] * ld_rhs + s
            if FEW:
                y = lanes.load_or_leave(j < count, array, index, width)
            else:
                y = lanes.load_if(j < count, array, index, width)
            lanes.dot(x, y, acc, j)

    def sddmm(
        work, offsets, columns, lhs, ld_lhs, rhs, ld_rhs, out, positions, k,
        lhs_stride, rhs_stride, out_stride,
    ):  # fmt: skip
        # Who am I?
        lane = int32(cuda.threadIdx.x)  # New: subwarp, [0, SUBWARP)
        subwarp = int32(cuda.threadIdx.y)  # New: rows_per_block, [0, ROWS * SPLIT)
        part = int32(subwarp % SPLIT)  # New: split, [0, SPLIT), its share of the inner dimension
        # In a list only the last warp has subwarps without work, and all lanes go along. In a grid most
        # strips are empty and skip the work, so a subwarp names only its own lanes. Strips of many nonzeros
        # do so in a list, too: without a branch around the work the compiler asks for 3 of their rows ahead,
        # with it for 8.
        mask = FULL_MASK if TOGETHER else SUBWARP_MASK << (subwarp % PER_WARP * SUBWARP)

        # Where is my strip? A subwarp that has none must still meet the barrier of the block.
        position = int64(cuda.blockIdx.x) * ROWS + subwarp // SPLIT
        row = position
        first = int64(0)  # its first nonzero; int64, as offsets may be
        count = int32(0)  # its nonzeros, [0, TILE_NNZ]
        if position < positions:
            if SWIZZLE:  # New: bundle, bin, by_column and work, by a list, of strips without empty ones
                first, packed = lanes.load(work, 2 * position, 2)
                row, count = int64(int32(packed)), int32(packed >> 32)
            else:
                first = int64(lanes.load(offsets, row, 1)[0])
                count = int32(lanes.load(offsets, row + 1, 1)[0] - first)
            if not STRIPS:  # of a grid as wide as the longest row may be, where most strips are empty
                skip = cuda.blockIdx.y * TILE_NNZ
                first += skip
                count = int32(max(min(count - skip, TILE_NNZ), 0))
        batch = int64(cuda.blockIdx.z)

        acc = cuda.local.array(TILE_NNZ, SUM)  # registers
        rows = cuda.local.array(TILE_NNZ, INDEX)  # registers
        if TOGETHER or count > 0:
            for j in range(TILE_NNZ):
                acc[j] = SUM(0)

            staged = cuda.shared.array(STAGED, INDEX, 16)
            slot = int32(subwarp * TILE_NNZ)  # my slice of it
            for i in range(RESULTS):  # New: tile_nnz, columns are read once for the whole strip
                j = int32(lane + i * SUBWARP)
                if j < TILE_NNZ:
                    indices = lanes.load_if(j < count, columns, first + j, 1)
                    if PRESCALE:
                        indices = lanes.scale(indices, ld_rhs)
                    lanes.store(staged, slot + j, indices)
            cuda.syncwarp(mask)
            for j in range(0, TILE_NNZ, GROUP):
                lanes.put(lanes.load(staged, slot + j, GROUP), rows, j)

            # Parts take steps in turn, a vector of the inner dimension for each lane. What is left goes to
            # the part whose turn it is: vectors for some lanes, then single elements.
            left = lanes.place(lhs, batch * lhs_stride + row * ld_lhs)
            shift = batch * rhs_stride
            right = lanes.place(rhs, shift)
            whole = int32(k // STRIDE)
            for t in range(part, whole, int32(SPLIT)):
                s = int32(t * STRIDE + lane * VECTOR)  # New: vector
                add_products(VECTOR, left, s, rhs, shift, right, ld_rhs, rows, count, acc)
            if part == whole % SPLIT:
                s = int32(whole * STRIDE + lane * VECTOR)
                if s + VECTOR <= k:
                    add_products(VECTOR, left, s, rhs, shift, right, ld_rhs, rows, count, acc)
                for s in range(int32(k - k % VECTOR + lane), k, int32(SUBWARP)):
                    add_products(1, left, s, rhs, shift, right, ld_rhs, rows, count, acc)

            # Lanes add up their sums. That of nonzero lane + i * SUBWARP ends in acc[i * SUBWARP]. Groups of
            # SUBWARP sums, one after another, since the compiler would not unroll one loop over 64.
            for g in range(0, TILE_NNZ, SUBWARP):
                if HALVING:  # New: reduction, a lane sends half of its sums to its partner
                    for h in range(HALVINGS):
                        half = SUBWARP >> (h + 1)
                        upper = (lane & half) != 0  # whether it keeps the upper half
                        for j in range(half):
                            a, b = acc[g + j], acc[g + j + half]
                            given, kept = (a, b) if upper else (b, a)
                            acc[g + j] = kept + cuda.shfl_xor_sync(mask, given, half)
                else:  # every lane gets every sum
                    for j in range(min(SUBWARP, TILE_NNZ)):
                        total = acc[g + j]
                        for h in range(HALVINGS):
                            total += cuda.shfl_xor_sync(mask, total, SUBWARP >> (h + 1))
                        if j == lane:
                            acc[g] = total

        if SPLIT > 1:  # the sums of the parts, added in order
            partial = cuda.shared.array(PARTIAL, SUM)
            mine = int32(subwarp // SPLIT * (SPLIT - 1) * RESULTS * SUBWARP + lane)
            if part > 0 and count > 0:
                for i in range(RESULTS):
                    partial[mine + ((part - 1) * RESULTS + i) * SUBWARP] = acc[i * SUBWARP]
            cuda.syncthreads()
            if part == 0 and count > 0:
                for other in range(SPLIT - 1):
                    for i in range(RESULTS):
                        acc[i * SUBWARP] += partial[mine + (other * RESULTS + i) * SUBWARP]

        if part == 0:
            for i in range(RESULTS):
                j = int32(lane + i * SUBWARP)
                if j < count:
                    lanes.store(out, batch * out_stride + first + j, lanes.take(acc, i * SUBWARP, 1))

    return sddmm
