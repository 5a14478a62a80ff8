"""What pictures share: axes to draw on, shades and patterns that differ in grey, a claim for a title.

Needs matplotlib.
"""

import textwrap

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

MARKERS = "osD^vPX*<>pdh"
LINES = ("-", "--", "-.", ":")
MARGIN = 0.1  # inches
SMALL = 8  # points, of everything but the claim
LINE = 13  # points from line to line of that


def axes(ax, width, height):
    """`ax`, or the Axes of a new figure of so many inches."""
    if ax is None:
        figure, ax = plt.subplots(figsize=(width, height), layout="constrained")
        figure.get_layout_engine().set(w_pad=MARGIN, h_pad=MARGIN)
    ax.tick_params(labelsize=SMALL)
    return ax


def shades(count):
    """(count, 4) colours from dark to light that stay apart in grey."""
    return plt.colormaps["viridis"](np.linspace(0.2, 0.95, count))


def ink(colour):
    """Black on light colours, white on dark ones."""
    return "white" if np.dot(colour[:3], (0.3, 0.59, 0.11)) < 0.5 else "black"


def label(axis, x, y):
    """Names of the axes, with their units."""
    axis.set_xlabel(x, fontsize=SMALL)
    axis.set_ylabel(y, fontsize=SMALL)


def rows(axis, names):
    """A place from 0 on, downwards, for each of `names`, without ticks or frame."""
    axis.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.6))
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right", "left"]].set_visible(False)


def beside(axis, texts):
    """A column of texts right of the rows."""
    for row, text in enumerate(texts):
        place = dict(xy=(1, row), xycoords=axis.get_yaxis_transform(), xytext=(4, 0))
        axis.annotate(text, **place, textcoords="offset points", va="center", fontsize=SMALL)


def legend(axis, handles=None, title=None):
    """Right of the picture, where it hides nothing."""
    options = {} if handles is None else {"handles": handles}
    place = dict(loc="upper left", bbox_to_anchor=(1, 1), alignment="left", frameon=False)
    return axis.legend(**options, **place, title=title, fontsize=SMALL, title_fontsize=SMALL)


def legend_above(axis, handles=None):
    """In one line between the picture and its title, which has to go up by `LINE` points."""
    options = {} if handles is None else {"handles": handles, "ncols": len(handles)}
    place = dict(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.1, frameon=False)
    return axis.legend(**{"ncols": 2, **options}, **place, fontsize=SMALL)


def claim(axis, text, subject="", above=0):
    """The title: what the picture shows, and below it of what, as wide as the picture with its labels.

    above: points to keep free between picture and title. Comes last, since it asks the figure how wide all
    else is. Returns the Axes.
    """
    figure = axis.figure.canvas.figure
    figure.draw_without_rendering()
    outer = axis.get_tightbbox()
    left, up = outer.x0 / figure.bbox.width, above + 4
    if subject:
        place = dict(xy=(left, 1), xycoords=("figure fraction", "axes fraction"), va="bottom")
        below = axis.annotate(subject, **place, xytext=(0, up), textcoords="offset points", fontsize=SMALL)
        below.set_text(_wrapped(below, outer.width))
        up += LINE * (below.get_text().count("\n") + 1)
    title = axis.set_title(text, loc="left", x=left, fontsize=10, fontweight="bold")
    title.set_text(_wrapped(title, outer.width))
    raised = ScaledTranslation(0, (up + 2) / 72, figure.dpi_scale_trans)
    title.set_transform(blended_transform_factory(figure.transFigure, axis.transAxes) + raised)
    return axis


def _wrapped(text, width):
    """What `text` says, in lines of at most `width` pixels."""
    words = text.get_text()
    return textwrap.fill(words, int(0.96 * width / text.get_window_extent().width * len(words)))
