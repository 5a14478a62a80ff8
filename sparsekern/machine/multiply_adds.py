"""The multiply-adds of `machine.lanes`, compiled for this processor: what the emulator computes with.

With signatures, so that no first call waits. Numba's cache notices changes of this file, and not of `lanes`.
"""

from numba import float32, float64, int32, njit, void

from sparsekern.machine.lanes import fma


@njit(float32(float64, float64, float64), cache=True)
def fma_here(a, x, y):
    """`a * x + y` of three numbers that float32 can hold, rounded once."""
    return fma(float32(a), float32(x), float32(y))


@njit(void(float32[::1], float32[::1], int32[:, ::1], float32[::1]), cache=True)
def accumulate_here(multipliers, rows, spans, sums):
    """For each span in turn, and each of its multipliers: adds multiplier * row to the span's sums.

    multipliers, rows: (count,) and (count * width,) float32 of each span, one span after another. spans:
    (spans, 2) int32, count and width of each. sums: (sum of widths,) float32, updated, with one fused
    multiply-add an element.
    """
    multiplier = row = first = 0
    for span in range(len(spans)):
        count, width = spans[span]
        for _ in range(count):
            for j in range(width):
                sums[first + j] = fma(multipliers[multiplier], rows[row + j], sums[first + j])
            multiplier += 1
            row += width
        first += width
