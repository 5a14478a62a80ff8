"""Seeded sparse matrices: uniform, power-law, banded, and look-alikes of pruned layers.

Every generator returns a `Csr` with sorted, distinct columns in each row, int32 offsets and columns
and standard normal float32 values. The same arguments and `seed` give the same matrix.
"""

import operator

import numpy as np

from sparsekern.formats import Csr

TOLERANCE = 0.1  # how far, relatively, the CoVs of a look-alike may be from those asked for
ROUNDING = 1e-4  # and absolutely: recorded CoVs have five decimals
ATTEMPTS, TAILS = 25, 9
TINY = 1e-300  # keeps logarithms finite


def uniform(m, k, sparsity, seed=0):
    """An (m, k) matrix of exactly `round((1 - sparsity) * m * k)` nonzeros, all positions equally likely.

    Raises ValueError for a size below 0 or a sparsity outside [0, 1].
    """
    m, k = _size("m", m), _size("k", k)
    if not 0 <= sparsity <= 1:
        raise ValueError(f"sparsity is {sparsity}; it must be in [0, 1]")
    rng = np.random.default_rng(seed)
    nnz = round((1 - sparsity) * m * k)
    at = np.sort(rng.choice(m * k, nnz, replace=False, shuffle=False)) if nnz else np.zeros(0, np.int64)
    rows, columns = np.divmod(at, max(k, 1))
    return _csr(np.bincount(rows, minlength=m), columns, k, rng)


def with_row_lengths(lengths, k, seed=0):
    """A (len(lengths), k) matrix whose row i has `lengths[i]` nonzeros in columns drawn at random.

    `seed` may also be a NumPy Generator. Raises ValueError for a length outside [0, k].
    """
    k, lengths = _size("k", k), np.array([_size("lengths", n) for n in lengths], np.int64)
    if lengths.max(initial=0) > k:
        row = int(np.argmax(lengths > k))
        raise ValueError(f"lengths[{row}] is {lengths[row]}; it must be in [0, {k}], the number of columns")
    rng = np.random.default_rng(seed)
    rows = [np.sort(rng.choice(k, n, replace=False, shuffle=False)) for n in lengths if n]
    return _csr(lengths, np.concatenate([np.zeros(0, np.int64), *rows]), k, rng)


def power_law(m, k, nnz, exponent=2.0, seed=0):
    """An (m, k) matrix of `nnz` nonzeros, a row of length n being about as likely as `n ** -exponent`.

    The i-th longest row has a length in proportion to `i ** (-1 / (exponent - 1))`, at most k; rows
    come in random order.

    Raises ValueError for nnz outside [0, m * k] or an exponent that is not above 1.
    """
    m, k, nnz = _sizes("m", m, "k", k, nnz)
    if not exponent > 1:
        raise ValueError(f"exponent is {exponent}; it must be above 1")
    rng = np.random.default_rng(seed)
    lengths = _apportion(-np.log(np.arange(1, m + 1)) / (exponent - 1), nnz, k)
    return with_row_lengths(rng.permutation(lengths), k, rng)


def banded(m, k, bandwidth, seed=0):
    """An (m, k) matrix with every entry where `abs(row - column) <= bandwidth`, and no others.

    Raises ValueError for a size or bandwidth below 0.
    """
    m, k, bandwidth = _size("m", m), _size("k", k), _size("bandwidth", bandwidth)
    diagonal = np.arange(m)
    first, last = np.clip(diagonal - bandwidth, 0, k), np.clip(diagonal + bandwidth + 1, 0, k)
    lengths = last - first
    columns = np.arange(lengths.sum()) + np.repeat(first - (np.cumsum(lengths) - lengths), lengths)
    return _csr(lengths, columns, k, np.random.default_rng(seed))


def like_dlmc(rows, cols, nnz, cov_row, cov_col, seed=0):
    """A (rows, cols) matrix of exactly `nnz` nonzeros, spread like those of a pruned layer.

    The coefficients of variation (population std / mean) of row lengths and of column counts come
    within 10% of `cov_row` and `cov_col`. Lengths and counts are gamma-shaped; given them, positions
    are random. Without nonzeros a CoV means nothing and is not looked at. Takes time and memory in
    proportion to rows * cols.

    Raises ValueError, with the bounds, for nnz outside [0, rows * cols], for a CoV that integers of
    that sum cannot have, and for two CoVs that no 0/1 matrix was found to have together.
    """
    rows, cols, nnz = _sizes("rows", rows, "cols", cols, nnz)
    rng = np.random.default_rng(seed)
    if nnz == 0:
        return _csr(np.zeros(rows, np.int64), np.zeros(0, np.int64), cols, rng)
    _check_cov("cov_row", cov_row, rows, cols, nnz)
    _check_cov("cov_col", cov_col, cols, rows, nnz)
    for attempt in range(ATTEMPTS):
        tail = attempt % TAILS
        lengths = _margin(rows, cols, nnz, cov_row, tail, rng)
        counts = _margin(cols, np.count_nonzero(lengths), nnz, cov_col, tail, rng)
        mask = _fill(lengths, counts, rng)
        if _near(_cov(lengths), cov_row) and _near(_cov(mask.sum(axis=0)), cov_col):
            return _csr(lengths, np.nonzero(mask)[1], cols, rng)
    raise ValueError(
        f"cov_row is {cov_row} and cov_col is {cov_col}; each is within its bounds, but of {ATTEMPTS} "
        f"({rows}, {cols}) matrices of {nnz} nonzeros none came within {TOLERANCE:.0%} of both"
    )


def _fill(lengths, counts, rng):
    """(m, k) bool: a random 0/1 matrix with these row lengths and, if it can be, these column counts.

    Longest row first, each row takes the columns that score highest: log odds of what a column still
    needs among the rows left, plus logistic noise. A column that needs all rows left has infinite
    odds. Such columns are never more than the row is long, as it is no shorter than the mean, so the
    counts come out exact unless a row finds too few columns in need.
    """
    mask = np.zeros((len(lengths), len(counts)), bool)
    left = np.count_nonzero(lengths)
    with np.errstate(divide="ignore"):
        log = np.log(np.arange(left + 1))
    for row in np.argsort(-lengths, kind="stable")[:left]:
        score = log[counts] - log[left - counts] + rng.logistic(size=len(counts))
        mask[row, np.argpartition(-score, lengths[row] - 1)[: lengths[row]]] = True
        left -= 1
        counts = np.clip(counts - mask[row], 0, left)
    return mask


def _margin(parts, cap, total, cov, tail, rng):
    """(parts,) integers in [0, cap] that add up to `total`, with a CoV close to `cov`.

    With tail 0 they are about gamma-distributed. With 1, 2, ... they are ever closer to one large part
    among equal small ones, which leaves the fewest parts empty: skewed margins may need that to fit
    each other.
    """
    shape = 1 / np.clip(cov, 0.02, 2) ** 2  # a gamma distribution of this shape has this CoV
    size = np.sort(rng.standard_gamma(shape, parts) + TINY)[::-1]
    log_weights = np.log(size) if tail == 0 else (size / size[0]) ** tail
    low, high = 0.0, 1.0  # exponent of the weights: at 0 all parts are alike, at infinity CoV is largest
    while high < 1e6 and _cov(_apportion(high * log_weights, total, cap)) < cov:
        low, high = high, 2 * high
    tried = []
    for _ in range(40):
        middle = (low + high) / 2
        margin = _apportion(middle * log_weights, total, cap)
        miss = _cov(margin) - cov
        tried.append((abs(miss), margin))
        if abs(miss) <= 1e-3 * cov:
            break
        low, high = (middle, high) if miss < 0 else (low, middle)
    return rng.permutation(min(tried, key=lambda pair: pair[0])[1])


def _apportion(log_weights, total, cap):
    """(parts,) integers in [0, cap] that add up to `total`, in proportion to descending weights.

    A part that would pass `cap` gets `cap` and the others share the rest; the units that rounding down
    leaves over go to the largest fractions.
    """
    parts = len(log_weights)
    if total == 0:
        return np.zeros(parts, np.int64)
    pivot = log_weights[min(total // cap, parts - 1)]  # parts before it may be capped: keep it near 1
    weights = np.exp(np.clip(log_weights - pivot, -600, 600))
    rest = np.cumsum(weights[::-1])[::-1]
    scale = (total - cap * np.arange(parts)) / rest  # of the weights, if so many parts are capped
    capped = np.argmax(scale * weights <= cap)
    share = scale[capped] * weights
    share[:capped] = cap
    whole = np.floor(share + 1e-9).astype(np.int64)
    left_over = total - whole.sum()
    whole[np.argsort(whole - share, kind="stable")[:left_over]] += 1
    return whole


def _cov(margin):
    return float(np.std(margin) / np.mean(margin))


def _near(got, wanted):
    return abs(got - wanted) <= TOLERANCE * wanted + ROUNDING


def _check_cov(name, cov, parts, cap, total):
    each, more = divmod(total, parts)  # most even: `more` parts are one above the others
    full, rest = divmod(total, cap)  # least even: `full` parts at the cap, one holds the rest
    squares = more * (each + 1) ** 2 + (parts - more) * each**2, full * cap**2 + rest**2
    low, high = (max(square * parts / total**2 - 1, 0) ** 0.5 for square in squares)
    if not low - ROUNDING <= cov <= high + ROUNDING:
        raise ValueError(
            f"{name} is {cov}; it must be in [{low:.5f}, {high:.5f}], "
            f"as {parts} integers in [0, {cap}] add up to {total}"
        )


def _size(name, value):
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it must be an integer") from None
    if value < 0:
        raise ValueError(f"{name} is {value}; it must not be negative")
    return value


def _sizes(m_name, m, k_name, k, nnz):
    m, k, nnz = _size(m_name, m), _size(k_name, k), _size("nnz", nnz)
    if nnz > m * k:
        raise ValueError(f"nnz is {nnz}; a matrix of shape ({m}, {k}) has room for {m * k}")
    return m, k, nnz


def _csr(lengths, columns, k, rng):
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    values = rng.standard_normal(len(columns), dtype=np.float32)
    return Csr.from_arrays(offsets, columns.astype(np.int32), values, (len(lengths), k))
