"""Times beside what hardware allows: a ladder as shares of a bound, and the roofline. Needs matplotlib."""

import numpy as np
from matplotlib.patches import Patch

from sparsekern.study import canvas


def ladder_bars(steps, bound="L1", subject="", ax=None):
    """Each step of a ladder as a share of its bound; steps that are slower than the one before are hatched.

    steps: [(what the step adds, measured microseconds, microseconds that the bound implies)], from the
    plainest on; `Bounds.us[name]` or `Bounds.bound_us` of `study.cost` gives the last. bound: its name.
    subject: the problem and GPU, a line below the claim. Returns the Axes.

    Raises ValueError without steps, or for a time that is not above 0.
    """
    steps = [(name, float(us), float(bound_us)) for name, us, bound_us in steps]
    if not steps:
        raise ValueError("steps is empty; a ladder has at least one step")
    for name, us, bound_us in steps:
        if not (us > 0 and bound_us > 0):
            raise ValueError(f"steps has {name!r} with {us} and {bound_us} µs; both must be above 0")
    names, times, bounds = zip(*steps, strict=True)
    shares = 100 * np.array(bounds) / times
    slower = [False, *(after > before for before, after in zip(times, times[1:], strict=False))]

    axis = canvas.axes(ax, 6.5, 1.3 + 0.24 * len(steps))
    dark, light = canvas.shades(2)
    for row, (share, worse) in enumerate(zip(shares, slower, strict=True)):
        look = dict(color=light, hatch="////", edgecolor="0.3") if worse else dict(color=dark)
        axis.barh(row, share, 0.75, **look)
    canvas.rows(axis, names)
    axis.set_xlim(0, max(100, 1.02 * shares.max()))
    axis.axvline(100, color="black", linewidth=1.5, linestyle="--")
    canvas.beside(axis, [f"{share:.0f}%, {us:.4g} µs" for share, us in zip(shares, times, strict=True)])
    canvas.label(axis, f"share of the {bound} bound (%)", "step")
    if any(slower):  # else one look says all
        handles = [
            Patch(color=dark, label="as fast as the step before, or faster"),
            Patch(facecolor=light, hatch="////", edgecolor="0.3", label="slower than the step before"),
        ]
        canvas.legend_above(axis, handles)
    above = canvas.LINE if any(slower) else 0
    return canvas.claim(axis, _ladder_claim(names, times, shares, bound), subject, above)


def _ladder_claim(names, times, shares, bound):
    best = int(np.argmin(times))
    text = f"{names[best]} reaches {shares[best]:.0f}% of the {bound} bound"
    return f"{text}: {times[0] / times[best]:.1f}x as fast as {_kernel(names[0])}" if best else text


def _kernel(name):
    return "the plain kernel" if name == "plain" else name


def roofline(gpu, points, memory="L1", subject="", ax=None):
    """Speeds under the roofs of a GPU: the bandwidths of L1, L2 and HBM, and the fp32 peak.

    gpu: a `Gpu`. points: [(name, flops, bytes, microseconds)]. memory: "L1", "L2" or "HBM", where the bytes
    were counted, and so the roof that they stand under. subject: a line below the claim. Returns the Axes.

    Raises ValueError for no points, one that is not above 0, and a memory whose bandwidth is not known.
    """
    roofs = {"L1": gpu.l1_bytes_per_second, "L2": gpu.l2_bytes_per_second, "HBM": gpu.hbm_bytes_per_second}
    roofs = {name: speed / 1e12 for name, speed in roofs.items() if speed}  # TB/s
    if memory not in roofs:
        raise ValueError(
            f"memory is {memory!r}; of {gpu.name} the bandwidths of {', '.join(roofs)} are known"
        )
    if not points:
        raise ValueError("points is empty; a roofline needs at least one")
    for name, *sizes in points:
        if min(sizes) <= 0:
            raise ValueError(f"points has {name!r} with flops, bytes, µs {sizes}; all must be above 0")
    peak = 2 * gpu.fp32_per_second / 1e12  # TFLOP/s
    at = [(name, flops / size, flops / us / 1e6) for name, flops, size, us in points]
    intensities = [intensity for _, intensity, _ in at] + [peak / speed for speed in roofs.values()]
    lowest = min([speed for _, _, speed in at] + [peak])

    axis = canvas.axes(ax, 7, max(4, 1.5 + 0.17 * len(points)))
    axis.set(xscale="log", yscale="log")
    low, high = min(intensities) / 4, max(intensities) * 4
    for line, (name, speed) in zip(canvas.LINES, roofs.items(), strict=False):
        style = dict(color="0.35", linestyle=line, linewidth=2 if name == memory else 1.2)
        axis.plot([low, peak / speed], [low * speed, peak], label=f"{name}: {speed:.3g} TB/s", **style)
    first = peak / max(roofs.values())
    axis.plot([first, high], [peak, peak], color="black", linewidth=2, label=f"fp32: {peak:.3g} TFLOP/s")
    for number, ((name, x, y), colour) in enumerate(zip(at, canvas.shades(len(at)), strict=True)):
        marker = canvas.MARKERS[number % len(canvas.MARKERS)]
        style = dict(color=colour, markeredgecolor="black", linestyle="", markersize=7)
        axis.plot(x, y, marker, label=f"{name}: {_sig(y)} TFLOP/s", **style)
    axis.set(xlim=(low, high), ylim=(lowest / 2, 2 * peak))
    axis.grid(which="major", color="0.9")
    canvas.label(axis, f"arithmetic intensity (flop per byte at {memory})", "speed (TFLOP/s)")
    canvas.legend(axis)
    name, x, y = max(at, key=lambda point: point[2])
    roof = min(peak, x * roofs[memory])
    limit = "the fp32 peak" if roof == peak else f"what {memory} allows"
    text = f"{name} runs at {_sig(y)} TFLOP/s, {y / roof:.0%} of {limit} at {x:.2g} flop/byte"
    return canvas.claim(axis, text, subject)


def _sig(number):
    return f"{number:.3g}"
