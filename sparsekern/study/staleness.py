"""Whether a record is of today's kernels, and of the variants that `select` chooses today."""

from sparsekern.naming import format_variant
from sparsekern.select import select
from sparsekern.study.provenance import kernel_hash
from sparsekern.study.records import provenance_in, read_begun, resident_warps
from sparsekern.study.row_lengths import problems_of, read_row_lengths
from sparsekern.study.studies import STUDIES


def stale(study, path):
    """Why the record of a study at `path` must not be gone on with, in words; None if it may be.

    Raises RecordError if it is none, or, where variants were chosen, lacks what that takes: see `chosen_now`.
    """
    study = STUDIES[study]
    record = read_begun(path) if study.grows else None
    if study.grows and record is None:
        return None
    origin = record.provenance if record else provenance_in(path)
    if origin.get("kernels_sha256") != kernel_hash():
        return "it is of other kernels than today's"
    differ = chosen_now(record, study.choice) if study.choice else []
    if differ:
        row, variant = differ[0]
        others = f", and so in {len(differ) - 1} more" if differ[1:] else ""
        return (
            f"select chooses otherwise today: for {row.op} of {row.matrix} at width {row.width} "
            f"{variant}, not {row.variant}{others}"
        )
    return None


def chosen_now(record, which):
    """[(row, what `select` chooses today)] of rows of a `Record` that are of another variant.

    which: a `Study.choice`. Raises RecordError if the provenance lacks the number of SMs, or for a matrix
    whose row lengths are not known.
    """
    rows = record.rows if which == "every" else {row.problem: row for row in reversed(record.rows)}.values()
    warps = resident_warps(record)
    chosen = [format_variant(select(p, warps)[0]) for p in problems_of(rows, read_row_lengths())]
    return [(row, variant) for row, variant in zip(rows, chosen, strict=True) if row.variant != variant]
