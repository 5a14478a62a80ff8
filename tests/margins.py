"""Row lengths and column counts of a matrix, for tests."""

import numpy as np


def lengths_of(a):
    return np.diff(a.topology.offsets)


def counts_of(a):
    kept = slice(a.topology.offsets[0], a.topology.offsets[-1])
    return np.bincount(a.topology.columns[kept], minlength=a.shape[1])


def cov(margin):
    return np.std(margin) / np.mean(margin)
