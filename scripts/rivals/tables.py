"""The standings of a contest as text and as comma-separated values."""

from __future__ import annotations

import csv
import math
from dataclasses import asdict
from pathlib import Path

from pate._runs import replacing
from scripts.rivals.contest import Score, Standings

_FIGURES = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "mAP": "mAP",
    "macro_f1_at_its_cut": "macro-F1, cut for it",
    "micro_f1_at_its_cut": "micro-F1, cut for it",
}


def table(standings: Standings) -> str:
    """Return all scores as text."""
    width = max(len(score.rival) for score in standings.scores) + 2
    head = "".join(f"{title:>{len(title) + 4}}" for title in _FIGURES.values())
    lines = [standings.notice, standings.title, "", f"{'rival':<{width}}{'epsilon':>9}{'noise':>10}{head}"]
    for score in standings.scores:
        noise = f"{score.noise_multiplier:>10.3f}" if math.isfinite(score.epsilon) else f"{'':>10}"
        figures = "".join(f"{getattr(score, name):>{len(title) + 4}.4f}" for name, title in _FIGURES.items())
        lines.append(f"{score.rival:<{width}}{score.epsilon:>9.3f}{noise}{figures}")
    return "\n".join(lines) + "\n"


def write_csv(path: Path, standings: Standings) -> None:
    """Write all scores, below a comment on whether they may be published."""
    with replacing(path, "w") as file:
        file.write(f"# {standings.notice}\n")
        writer = csv.DictWriter(file, fieldnames=list(Score.__dataclass_fields__))
        writer.writeheader()
        writer.writerows(asdict(score) for score in standings.scores)
