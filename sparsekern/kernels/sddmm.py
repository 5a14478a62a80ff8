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
    ROWS, SPLIT = variant.rows_per_block, variant.split
    STRIPS, HALVING = variant.work == "strips", variant.reduction == "halving"
    SWIZZLE = STRIPS or variant.bundle or variant.bin
    INDEX, SUM = (getattr(numba, name) for name in (types.index, types.acc))

    RESULTS = variant.results  # sums that a lane stores, of nonzeros lane, lane + SUBWARP, ...
    STAGED = ROWS * SPLIT * TILE_NNZ  # words of shared memory for columns
    PARTIAL = ROWS * (SPLIT - 1) * RESULTS * SUBWARP  # words of shared memory for the sums of other parts
    GROUP = min(TILE_NNZ, 4)  # columns in one read of shared memory
    HALVINGS = SUBWARP.bit_length() - 1
    PER_WARP = 32 // SUBWARP  # subwarps in a warp
    SUBWARP_MASK = lanes.FULL_MASK >> (32 - SUBWARP)  # the lanes of the first subwarp of a warp

    @njit(inline="always")
    def add_products(width, left, right, lhs, rhs, ld_rhs, staged, slot, count, acc):
        """acc[j] += lhs[left : left + width] . rhs[right + column j * ld_rhs :], for each nonzero j.

        Positions are int64, since n * ld_rhs can pass 2**31: `right` and `ld_rhs` carry the sum along.
        """
        x = lanes.load(lhs, left, width)
        for j in range(0, TILE_NNZ, GROUP):
            indices = lanes.load(staged, slot + j, GROUP)
            for u in range(GROUP):
                y = lanes.load_if(j + u < count, rhs, right + indices[u] * ld_rhs, width)
                lanes.dot(x, y, acc, j + u)

    def sddmm(
        order, starts, offsets, columns, lhs, ld_lhs, rhs, ld_rhs, out, positions, k,
        lhs_stride, rhs_stride, out_stride,
    ):  # fmt: skip
        # Who am I?
        lane = int32(cuda.threadIdx.x)  # New: subwarp, [0, SUBWARP)
        subwarp = int32(cuda.threadIdx.y)  # New: rows_per_block, [0, ROWS * SPLIT)
        part = int32(subwarp % SPLIT)  # New: split, [0, SPLIT), its share of the inner dimension
        mask = SUBWARP_MASK << (subwarp % PER_WARP * SUBWARP)

        # Where is my strip? A subwarp that has none must still meet the barrier of the block.
        position = int64(cuda.blockIdx.x) * ROWS + subwarp // SPLIT
        row = position
        first = int64(0)  # its first nonzero; int64, as offsets may be
        count = int32(0)  # its nonzeros, [0, TILE_NNZ]
        if position < positions:
            if SWIZZLE:  # New: bundle, bin, and the rows of a list
                (index,) = lanes.load(order, position, 1)
                row = int64(index)
            if STRIPS:  # New: work, of a list that has no empty strip
                first = int64(lanes.load(starts, position, 1)[0])
            else:  # of a grid as wide as the longest row may be, where most strips are empty
                first = int64(lanes.load(offsets, row, 1)[0]) + cuda.blockIdx.y * TILE_NNZ
            stop = int64(lanes.load(offsets, row + 1, 1)[0])
            count = int32(max(min(stop - first, TILE_NNZ), 0))
        batch = int64(cuda.blockIdx.z)

        acc = cuda.local.array(TILE_NNZ, SUM)  # registers
        if count > 0:
            for j in range(TILE_NNZ):
                acc[j] = SUM(0)

            staged = cuda.shared.array(STAGED, INDEX, 16)
            slot = int32(subwarp * TILE_NNZ)  # my slice of it
            for i in range(RESULTS):  # New: tile_nnz, columns are read once for the whole strip
                j = int32(lane + i * SUBWARP)
                if j < TILE_NNZ:
                    lanes.store(staged, slot + j, lanes.load_if(j < count, columns, first + j, 1))
            cuda.syncwarp(mask)

            # Parts take steps in turn, a vector of the inner dimension for each lane, as many for all lanes
            # of a subwarp; then what is left.
            left = batch * lhs_stride + row * ld_lhs
            right = batch * rhs_stride
            vectors = int32(k // VECTOR)
            for t in range(part, (vectors + SUBWARP - 1) // SUBWARP, SPLIT):
                v = int32(t * SUBWARP + lane)
                if v < vectors:
                    s = int32(v * VECTOR)  # New: vector
                    add_products(VECTOR, left + s, right + s, lhs, rhs, ld_rhs, staged, slot, count, acc)
            for s in range(vectors * VECTOR + part * SUBWARP + lane, k, SPLIT * SUBWARP):
                add_products(1, left + s, right + s, lhs, rhs, ld_rhs, staged, slot, count, acc)

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
            place = int32(subwarp // SPLIT * (SPLIT - 1) * RESULTS * SUBWARP + lane)
            if part > 0 and count > 0:
                for i in range(RESULTS):
                    partial[place + ((part - 1) * RESULTS + i) * SUBWARP] = acc[i * SUBWARP]
            cuda.syncthreads()
            if part == 0 and count > 0:
                for other in range(SPLIT - 1):
                    for i in range(RESULTS):
                        acc[i * SUBWARP] += partial[place + (other * RESULTS + i) * SUBWARP]

        if part == 0:
            for i in range(RESULTS):
                j = int32(lane + i * SUBWARP)
                if j < count:
                    lanes.store(out, batch * out_stride + first + j, lanes.take(acc, i * SUBWARP, 1))

    return sddmm
