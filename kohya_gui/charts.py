"""Small line charts as SVG text: no plotting library in the server, nothing to load in the browser."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 460, 190
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 24
MOST_POINTS = 500  # more than the chart has pixels adds nothing


@dataclass(frozen=True)
class Line:
    """A curve: its name, its look ("faint", "strong" or "line-<n>") and points (step, value)."""

    name: str
    look: str
    points: Sequence[tuple[float, float]]


def chart(title: str, lines: Sequence[Line], *, log_scale: bool = False) -> str:
    """An SVG with axes and a legend; values that are not finite are left out. Without a point it is a line of text."""
    lines = [Line(line.name, line.look, _thin(_finite(line.points, log_scale))) for line in lines]
    points = [point for line in lines for point in line.points]
    if len(points) < 2:
        wait = '<p class="quiet">The curve comes with the first steps.</p>'
        return f'<div class="chart"><h4>{html.escape(title)}</h4>{wait}</div>'
    x0, x1 = _span([x for x, _ in points])
    y0, y1 = _span([_scaled(y, log_scale) for _, y in points], margin=0.05)

    def place(x: float, y: float) -> str:
        across = LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - (_scaled(y, log_scale) - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM)
        return f"{across:.1f},{down:.1f}"

    curves = "".join(
        f'<polyline class="{line.look}" points="{" ".join(place(x, y) for x, y in line.points)}"/>' for line in lines
    )
    legend = "".join(
        f'<span class="{line.look}">{html.escape(line.name)}: <b>{line.points[-1][1]:.4g}</b></span>'
        for line in lines
        if line.points
    )
    return (
        f'<div class="chart"><h4>{html.escape(title)}</h4><div class="legend">{legend}</div>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">'
        f"{_axes(x0, x1, y0, y1, log_scale)}{curves}</svg></div>"
    )


def _axes(x0: float, x1: float, y0: float, y1: float, log_scale: bool) -> str:
    parts = []
    for y in _ticks(y0, y1, 4):
        down = HEIGHT - BOTTOM - (y - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM)
        label = f"{10**y:.2g}" if log_scale else f"{y:.3g}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{down:.1f}" y2="{down:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{down + 4:.1f}" text-anchor="end">{label}</text>')
    for x in _ticks(x0, x1, 6):
        across = LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT)
        parts.append(f'<text x="{across:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{x:g}</text>')
    return "".join(parts)


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between two values."""
    raw = (high - low) / about
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first = math.ceil(low / step)
    return [round(k * step, 12) for k in range(first, math.floor(high / step) + 1)]


def _span(values: Sequence[float], margin: float = 0.0) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low == high:
        pad = abs(low) * 0.1 or 1.0
        return low - pad, high + pad
    pad = (high - low) * margin
    return low - pad, high + pad


def _finite(points: Sequence[tuple[float, float]], positive: bool) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if y is not None and math.isfinite(y) and (y > 0 or not positive)]


def _scaled(value: float, log_scale: bool) -> float:
    return math.log10(value) if log_scale else value


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `MOST_POINTS`, evenly taken, the last one kept."""
    stride = math.ceil(len(points) / MOST_POINTS)
    return points if stride <= 1 else [*points[:-1:stride], points[-1]]
