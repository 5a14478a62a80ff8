"""Shapes that are right or wrong at an edge of a tile, a block or a vector, each with its reason.

The sparse matrix is m x k; dense operands have n columns, which for SDDMM is the inner dimension. Rows are
given by their lengths, repeated as often as m needs, or by how sparse the matrix is.
"""

from typing import NamedTuple

import numpy as np

from sparsekern.generators import uniform, with_row_lengths


class Shape(NamedTuple):
    m: int
    k: int
    n: int
    rows: tuple | float  # lengths, or sparsity
    reason: str

    def matrix(self):
        if isinstance(self.rows, float):
            return uniform(self.m, self.k, self.rows)
        return with_row_lengths(np.resize(self.rows, self.m), self.k)


SHAPES = [
    Shape(1, 1, 1, (1,), "a single number times a single number"),
    Shape(33, 40, 32, (3, 0, 7), "one row more than a block of 32 has"),
    Shape(31, 40, 32, (3, 0, 7), "one row less than a block of 32 has"),
    Shape(6, 20, 129, (9, 1), "one column more than a warp of vectors takes at a time"),
    Shape(6, 20, 127, (9, 1), "one column less than a warp of vectors takes at a time"),
    Shape(
        7,
        16,
        49,
        0.7,
        "49 columns, as of a 7 x 7 picture: every fourth row is aligned",
    ),
    Shape(5, 70, 4, (64, 65, 63, 0, 1), "rows of the longest tile, and of one nonzero more and less"),
    Shape(3, 1200, 8, (1100, 0, 33), "few rows and a long one, which a GPU splits"),
    Shape(150, 12, 3, 0.9, "many short rows and fewer columns than a vector of 4"),
    Shape(2, 9, 600, (5, 9), "more columns than one strip of C takes, so that lanes have two vectors"),
    Shape(3, 9, 1030, (9, 2, 0), "an inner dimension beyond 1024, for which strips become wider"),
    Shape(17, 33, 16, 0.0, "nothing is zero, and sizes are no multiples of anything"),
    Shape(12, 30, 5, (0,), "no row has a nonzero"),
    Shape(4, 2, 6, (2, 1, 2), "fewer columns of the sparse matrix than a vector of A has"),
]
