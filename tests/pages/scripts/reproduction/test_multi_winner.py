"""Costs of multi-winner voting by hand and against exact divergences, and the script in a small
form."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from pate.accounting import NeighboringRelation
from scripts.reproduction import Verdict, multi_winner as w
from scripts.reproduction.__main__ import main
from scripts.reproduction.data_dependent import private_rdp_table
from scripts.reproduction.findings import kept
from tests.pages.scripts.reproduction.small import attributes_table

pytestmark = pytest.mark.slow

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD


def test_noise_on_both_counts_is_noise_on_one() -> None:
    # the label is given where h + N(0, s^2) exceeds T - h + N(0, s^2)
    generator = np.random.default_rng(0)
    draws = 29 + 7 * generator.standard_normal(200_000) > 21 + 7 * generator.standard_normal(
        200_000
    )
    assert draws.mean() == pytest.approx(
        norm.cdf((29 - 25) / w.one_noise(7.0)), abs=5 * 0.5 / math.sqrt(200_000)
    )


def test_theorem_6_holds_in_its_direction_and_a_bound_of_both_covers_the_other() -> None:
    worst = w.one_way(50, 7.0)
    assert worst.stated <= 1 < 1.5 < worst.ratio
    assert worst.exact_other == pytest.approx(worst.ratio * worst.bound)
    noise = w.one_noise(7.0)
    both = private_rdp_table(worst.order, sigma=noise, num_teachers=50)
    assert both[worst.votes] >= worst.exact_other
    # by hand: one of fifty votes less, in the direction that is the larger
    p, q = (norm.cdf((each - 25) / noise) for each in (worst.votes, worst.votes - 1))
    both_ways = [
        math.log(
            a**worst.order * b ** (1 - worst.order)
            + (1 - a) ** worst.order * (1 - b) ** (1 - worst.order)
        )
        / (worst.order - 1)
        for a, b in ((p, q), (q, p))
    ]
    assert (worst.exact_stated, worst.exact_other) == pytest.approx(tuple(both_ways), rel=1e-6)
    assert both_ways[0] < worst.bound < both_ways[1]


def test_the_script_in_a_small_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATE_DATA", str(attributes_table(tmp_path / "data")))
    main(["dziedzic_multi_winner", "--output", str(tmp_path / "found")])
    (found,) = kept(tmp_path / "found")
    unknown, bound, number, quality, tau = [claim.verdict for claim in found.claims]
    assert unknown is number is quality is Verdict.UNTESTABLE and bound is tau is Verdict.REPRODUCED
    assert w.TEACHERS == 50
