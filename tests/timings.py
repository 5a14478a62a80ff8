"""Rows of records, made up, for the tests of what is done with them."""

from sparsekern.study.records import Row

PROVENANCE = {"gpu": "NVIDIA Test", "numba": "0.68", "date": "2026-11-30", "commit": "abc", "l2": "warm"}
NAME = "transformer/magnitude_pruning/0.9/layer.smtx"


def row(time_us=10.0, matrix=NAME, variant="plain", **columns):
    """A row of SpMM on a 100 x 100 matrix, 90% sparse unless nnz says otherwise, with n=256."""
    sizes = {"op": "spmm", "m": 100, "k": 100, "n": 256, "nnz": 1000, "spread": 0.01, "l2": "warm"}
    return Row(matrix=matrix, variant=variant, time_us=time_us, **{**sizes, **columns})
