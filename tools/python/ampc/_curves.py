"""What fit returns, and its curves as a picture."""
from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

if TYPE_CHECKING:
    from ._trainer import Evaluation, Step


class History:
    """The steps and evaluations of a training.

    Attributes:
        steps: a Step for each step. evaluations: an Evaluation for each evaluation.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.evaluations: list[Evaluation] = []

    def column(self, name: str) -> np.ndarray:
        """A member of all steps ("loss", "lr", "scale", ..) as an array [steps]."""
        return np.array([getattr(step, name) for step in self.steps])

    @property
    def losses(self) -> np.ndarray:
        """The losses of all steps, [steps]."""
        return self.column("loss")

    @property
    def skipped(self) -> int:
        """The number of skipped steps."""
        return sum(step.skipped for step in self.steps)

    def __repr__(self) -> str:
        if not self.steps:
            return "<ampc.History: no steps>"
        last = self.steps[-1]
        told = f"{len(self.steps)} steps, {self.skipped} skipped, loss {last.loss:.4g}"
        if self.evaluations:
            told += "; evaluated: " + ", ".join(f"{name} {value:.4g}" for name, value in self.evaluations[-1].items())
        return f"<ampc.History: {told}>"

    def _repr_html_(self) -> str:
        numbers = [s.step for s in self.steps]
        curves = [("loss", numbers, self.losses.tolist())]
        pictures = [plot("loss", curves + ([("validation", [e.step for e in self.evaluations],
                                             [e.loss for e in self.evaluations])] if self.evaluations else []))]
        names = [n for n in (self.evaluations[0] if self.evaluations else {}) if n != "loss"]
        if names:
            pictures.append(plot("metrics" if len(names) > 1 else names[0], [(n, [e.step for e in self.evaluations],
                                              [e.get(n, math.nan) for e in self.evaluations]) for n in names]))
        if any(s.scale != 1 for s in self.steps):
            pictures.append(plot("log2 of the loss scale", [
                ("scale", numbers, [math.log2(s.scale) if s.scale > 0 else math.nan for s in self.steps])]))
        return f"<div>{escape(repr(self)[1:-1])}<br>{''.join(pictures)}</div>"


COLOURS = ("#2f7ed8", "#e07b39", "#3a9d5d", "#b0508a", "#8a7a3b", "#6f6fd0")  # readable on white and on black
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 320, 190, 46, 20, 22


def plot(title: str, curves: Sequence[tuple[str, Sequence[float], Sequence[float]]]) -> str:
    """Curves (name, x, y) as SVG. Text has the colour of the page, so it is readable in dark notebooks too."""
    points = [(x, y) for _, xs, ys in curves for x, y in zip(xs, ys) if math.isfinite(y)]
    if not points:
        return ""
    x0, x1 = min(x for x, _ in points), max(x for x, _ in points)
    y0, y1 = min(y for _, y in points), max(y for _, y in points)
    if y0 == y1:
        y0, y1 = y0 - (abs(y0) or 1) / 2, y1 + (abs(y1) or 1) / 2

    def at(x: float, y: float) -> str:
        across = LEFT + (x - x0) / ((x1 - x0) or 1) * (WIDTH - LEFT - 8)
        return f"{across:.1f},{HEIGHT - BOTTOM - (y - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM):.1f}"

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" style="font:11px sans-serif">']

    def label(x: float, y: float, anchor: str, told: Any, fill: str = "currentColor") -> None:
        parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}">{escape(str(told))}</text>')

    parts.append(f'<path d="M{LEFT},{TOP}V{HEIGHT - BOTTOM}H{WIDTH - 8}" fill="none" stroke="currentColor" opacity=".4"/>')
    label(LEFT, 12, "start", title)
    for value, height in ((y1, TOP + 8), (y0, HEIGHT - BOTTOM)):
        label(LEFT - 4, height, "end", f"{value:.3g}")
    label(LEFT, HEIGHT - 6, "start", f"{x0:g}")
    label(WIDTH - 8, HEIGHT - 6, "end", f"step {x1:g}")
    for i, (name, xs, ys) in enumerate(curves):
        every = max(1, len(xs) // 600)
        drawn: list[str] = []
        for k, (x, y) in enumerate(zip(xs, ys)):
            if math.isfinite(y) and (k % every == 0 or k == len(xs) - 1):
                drawn.append(at(x, y))
        colour = COLOURS[i % len(COLOURS)]
        if len(drawn) == 1:
            cx, cy = drawn[0].split(",")
            parts.append(f'<circle cx="{cx}" cy="{cy}" r="2.5" fill="{colour}"/>')
        else:
            parts.append(f'<polyline points="{" ".join(drawn)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if len(curves) > 1:
            label(WIDTH - 8, TOP + 10 + 13 * i, "end", name, colour)
    return "".join(parts) + "</svg>"
