"""HTML of models, reports and sessions, for notebooks: what the `_repr_html_` of the package consists of."""
from __future__ import annotations

from html import escape
from typing import Any, Iterable, Mapping, Sequence

# Background of a cell, by its text; white text is readable on all of them.
COLOURS = {"fp16": "#2e7d32", "bf16": "#00695c", "fp32": "#b35900", "white": "#2e7d32", "gray": "#666", "clear": "#666",
           "black": "#222"}


def cell(value: Any, tag: str = "td") -> str:
    text = escape(str(value))
    if tag == "td" and str(value) in COLOURS:
        text = f'<span style="background:{COLOURS[str(value)]};color:#fff;padding:0 .4em;border-radius:.3em">{text}</span>'
    return f'<{tag} style="text-align:{"right" if isinstance(value, (int, float)) else "left"}">{text}</{tag}>'


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """A table; numbers are on the right, and the names of types and colours have their colour."""
    lines = ["<tr>" + "".join(cell(value) for value in row) + "</tr>" for row in rows]
    titled = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    return ("<table>" + titled + "<thead><tr>" + "".join(cell(h, "th") for h in head) + "</tr></thead><tbody>"
            + "".join(lines) + "</tbody></table>")


def section(title: str, *parts: str) -> str:
    """A block with a title over its parts."""
    return f"<div><b>{escape(title)}</b>{''.join(parts)}</div>"


def bar(shares: Mapping[str, float], width: int = 240) -> str:
    """A bar that is divided like these numbers, in the colours of their names."""
    total = sum(shares.values()) or 1
    parts = "".join(
        f'<span title="{escape(name)}: {value}" style="display:inline-block;height:.8em;'
        f'width:{width * value / total:.1f}px;background:{COLOURS.get(name, "#999")}"></span>'
        for name, value in shares.items() if value)
    return f'<div style="line-height:0;margin:.3em 0">{parts}</div>'
