"""Draws a curve in the terminal, in dots of braille: two across and four down in each character."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column


def log_chart(
    xs: Sequence[float],
    ys: Sequence[float],
    *,
    top: float,
    width: int,
    height: int,
    marked: tuple[float, float] | None,
    label: str,
) -> list[str]:
    """The lines of a chart of `ys` over the logarithm of `xs`, `width` characters wide.

    What is above `top` is cut off. `marked` is a part of the x axis that a bar below it shows, with a label.
    """
    bottom = min(ys)
    gutter = max(len(f"{value:.3f}") for value in (top, bottom)) + 2
    columns = width - gutter - 1
    left, right = math.log10(xs[0]), math.log10(xs[-1])

    def place(x: float) -> float:
        return (math.log10(x) - left) / (right - left)

    def row(y: float) -> int:
        return round((top - min(max(y, bottom), top)) / ((top - bottom) or 1) * (4 * height - 1))

    grid = [[0] * columns for _ in range(height)]
    dots = [(round(place(x) * (2 * columns - 1)), row(y)) for x, y in zip(xs, ys, strict=True) if x > 0]
    for (x0, y0), (x1, y1) in itertools.pairwise(dots):
        if y0 == y1 == 0 and top < max(ys):
            continue  # above the top
        for step in range(count := max(abs(x1 - x0), abs(y1 - y0), 1)):
            x, y = x0 + (x1 - x0) * step // count, y0 + (y1 - y0) * step // count
            grid[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    lines = []
    for number, cells in enumerate(grid):
        value = {0: top, height // 2: (top + bottom) / 2, height - 1: bottom}.get(number)
        shown = "" if value is None else f"{value:.3f}"
        axis = "│" if value is None else "┤"
        lines.append(f"{shown:>{gutter - 1}} {axis}" + "".join(chr(0x2800 + c) if c else " " for c in cells))
    ticks, words = ["─"] * columns, [" "] * (columns + 6)
    for power in range(math.ceil(left - 1e-9), math.floor(right + 1e-9) + 1):
        column = round(place(10.0**power) * (columns - 1))
        word = f"1e{power}"
        start = max(0, min(column - len(word) // 2, columns - len(word)))
        ticks[column] = "┬"
        if all(letter == " " for letter in words[max(0, start - 1) : start + len(word) + 1]):
            words[start : start + len(word)] = word
    lines += [" " * gutter + "└" + "".join(ticks), " " * (gutter + 1) + "".join(words)]
    if marked is not None:
        first, last = (round(min(max(place(x), 0), 1) * (columns - 1)) for x in marked)
        bar = f"├{f' {label} ':─^{max(0, last - first - 1)}}┤" if last - first > len(label) + 4 else "├─┤"
        lines.append(" " * (gutter + 1 + first) + bar)
    return [line.rstrip() for line in lines]
