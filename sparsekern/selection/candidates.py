"""The variants of which one is chosen: a list for each operation, one variant a line."""

from functools import cache
from pathlib import Path

from sparsekern.naming import parse_variant
from sparsekern.textfiles import read_text
from sparsekern.toggles import VariantError
from sparsekern.variants import check_op

MOST = 64  # candidates of an operation: each is timed on every problem of a sweep


@cache
def candidates(op):
    """The candidates of "spmm" or "sddmm", a tuple of variants: those in the file of that name here.

    Raises TypeError for another operation.
    """
    check_op(op)
    return tuple(read_variants(op, Path(__file__).with_name(f"{op}.txt")))


def read_variants(op, path):
    """The variants in the file at `path`, each once: one a line, as `format_variant` writes them.

    Empty lines, and those that start with #, say nothing. Raises VariantError, naming file and line, for one
    that is none, ValueError for a file without any, or that is not there or not UTF-8.
    """
    variants = []
    for number, line in enumerate(read_text(path, "list of variants").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            variants.append(parse_variant(op, line))
        except VariantError as error:
            raise VariantError(f"{path}, line {number}: {error}") from None
    if not variants:
        raise ValueError(f"{path} names no variant; it must have one a line, such as vector=4,stage=True")
    return list(dict.fromkeys(variants))
