"""The standings of a contest as text."""

from __future__ import annotations

import math

from pate._core.tables import text_table
from scripts.rivals.contest import Standings

_FIGURES = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "mAP": "mAP",
    "macro_f1_at_its_cut": "macro-F1, cut for it",
    "micro_f1_at_its_cut": "micro-F1, cut for it",
}


def table(standings: Standings) -> str:
    """Return all scores as text."""
    rows = [("rival", "epsilon", "noise", *_FIGURES.values())]
    for score in standings.scores:
        noise = f"{score.noise_multiplier:.3f}" if math.isfinite(score.epsilon) else ""
        figures = (f"{getattr(score, name):.4f}" for name in _FIGURES)
        rows.append((score.rival, f"{score.epsilon:.3f}", noise, *figures))
    return "\n".join([standings.notice, standings.title, "", *text_table(rows)]) + "\n"
