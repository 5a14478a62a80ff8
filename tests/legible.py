"""Whether a picture can be read: all text inside the figure, none over other text, every axis named."""

from itertools import combinations

from matplotlib.text import Text

SLACK = 1  # pixels by which boxes of text may run into each other


def complaints(figure):
    """What is wrong with a matplotlib figure, a list of sentences."""
    figure.canvas.draw()
    boxes = [(text, text.get_window_extent()) for text in texts(figure)]
    found = [f"{text.get_text()!r} leaves the figure" for text, box in boxes if not _inside(box, figure.bbox)]
    for (one, a), (other, b) in combinations(boxes, 2):
        width, height = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if width > SLACK and height > SLACK:
            found.append(f"{one.get_text()!r} and {other.get_text()!r} overlap")
    for axis in _axes(figure):
        if axis.get_ticklocs().size and not axis.get_label_text():
            found.append(f"the {axis.axis_name} axis of {axis.axes.get_title('left')!r} has no label")
    return found


def texts(figure):
    """The texts that are drawn: of ticks only those that lie within their axis."""
    ticks = [(axis, tick) for axis in _axes(figure) for tick in _ticks(axis)]
    undrawn = {text for axis, tick in ticks if not _within(axis, tick) for text in (tick.label1, tick.label2)}
    undrawn |= {text for axes in figure.axes if not axes.axison for text in _texts(axes.xaxis, axes.yaxis)}
    seen = [text for text in _texts(figure) if text.get_visible() and text.get_text().strip()]
    return [text for text in seen if text not in undrawn]


def _texts(*artists):
    return [text for artist in artists for text in artist.findobj(Text)]


def _axes(figure):
    return [axis for axes in figure.axes if axes.axison for axis in (axes.xaxis, axes.yaxis)]


def _ticks(axis):
    return (*axis.get_major_ticks(), *axis.get_minor_ticks())


def _within(axis, tick):
    low, high = sorted(axis.get_view_interval())
    return low <= tick.get_loc() <= high


def _inside(box, canvas):
    return box.x0 >= canvas.x0 and box.x1 <= canvas.x1 and box.y0 >= canvas.y0 and box.y1 <= canvas.y1
