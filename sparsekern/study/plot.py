"""Pictures: each takes a result and returns the Axes that it drew on. Needs matplotlib.

The title of a picture is what it shows, with the numbers; patterns, marks and lines say in grey what colours
say. `python -m sparsekern.study.gallery DIR` draws them all.
"""

from sparsekern.study.bound_pictures import ladder_bars, roofline
from sparsekern.study.change_pictures import counts_change, occupancy_bars
from sparsekern.study.lane_picture import lane_map, trace
from sparsekern.study.record_pictures import crossover
from sparsekern.study.work_pictures import row_lengths, sm_timeline

__all__ = [
    "counts_change",
    "crossover",
    "ladder_bars",
    "lane_map",
    "occupancy_bars",
    "roofline",
    "row_lengths",
    "sm_timeline",
    "trace",
]
