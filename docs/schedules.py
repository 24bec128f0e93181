"""Draw the learning-rate schedules: python docs/schedules.py writes docs/schedules.svg beside itself."""

from __future__ import annotations

from pathlib import Path

from hpsearch.trainer.config.models import LoraConfig
from hpsearch.trainer.config.training import SCHEDULERS
from hpsearch.trainer.optim.schedule import learning_rate

FILE = Path(__file__).with_suffix(".svg")
STEPS = 200
WARMUP, FLOOR = 0.1, 0.05
# Twenty validations: what the plateau goes by.
LOSSES = (
    3.0,
    2.5,
    2.2,
    2.0,
    1.9,
    1.85,
    1.86,
    1.85,
    1.85,
    1.7,
    1.65,
    1.64,
    1.64,
    1.65,
    1.66,
    1.6,
    1.6,
    1.6,
    1.6,
    1.6,
)
HISTORY = [(STEPS // 20 * number, loss) for number, loss in enumerate(LOSSES, 1)]

COLUMNS = 5
WIDTH, HEIGHT = 168, 90  # of a curve
CELL_WIDTH, CELL_HEIGHT = 190, 142
LEFT, TOP = 12, 34  # of a curve in its cell


def rates(scheduler: str) -> list[float]:
    """The rate of every step as a share of the peak; one_cycle rises by itself and has no warm-up here."""
    warmup = 0.0 if scheduler == "one_cycle" else WARMUP
    config = LoraConfig(
        max_steps=STEPS, learning_rate=1.0, lr_scheduler=scheduler, warmup_ratio=warmup, min_lr_ratio=FLOOR
    )
    return [learning_rate(config, step, HISTORY) for step in range(STEPS)]


def curve(scheduler: str) -> list[str]:
    """One cell: the name, the floor as a dashed line, the base line and the curve."""
    points = " ".join(
        f"{LEFT + WIDTH * (step + 0.5) / STEPS:.1f},{TOP + HEIGHT * (1 - rate):.1f}"
        for step, rate in enumerate(rates(scheduler))
    )
    floor, base, right = TOP + HEIGHT * (1 - FLOOR), TOP + HEIGHT, LEFT + WIDTH
    return [
        f'<text x="{LEFT}" y="{TOP - 12}">{scheduler}</text>',
        f'<path d="M{LEFT} {base}H{right}" stroke="#999"/>',
        f'<path d="M{LEFT} {floor:.1f}H{right}" stroke="#999" stroke-dasharray="3 3"/>',
        f'<polyline points="{points}" fill="none" stroke="#1f5fa8" stroke-width="2"/>',
    ]


def drawing() -> str:
    """All schedules with their default options, as SVG."""
    rows = -(-len(SCHEDULERS) // COLUMNS)
    width, height = COLUMNS * CELL_WIDTH, rows * CELL_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for number, scheduler in enumerate(SCHEDULERS):
        row, column = divmod(number, COLUMNS)
        lines += [
            f'<g transform="translate({column * CELL_WIDTH} {row * CELL_HEIGHT})">',
            *curve(scheduler),
            "</g>",
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    FILE.write_text(drawing(), encoding="utf-8")
