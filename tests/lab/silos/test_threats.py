"""The threat table of docs/appendix/silo-parties.md: what each party learns is measured, and
is what the page says."""

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

from pate._core.mechanisms.noise import decode
from pate.accounting import GaussianEvent, NeighboringRelation, epsilon_of
from pate.aggregators import SiloVotes
from tests.lab.silos.exchanges import Hospitals
from tests.lab.silos.lists import opened_sums

PAGE = (Path(__file__).parents[3] / "docs" / "appendix" / "silo-parties.md").read_text()
RELATION = NeighboringRelation.REPLACE_RECORD
PARTIES = {
    "the world": "the world",
    "a silo, honest but curious": "one silo",
    "`colluding` silos together": "2 silos together",
    "the server": "the world",
    "who provides the folder, or writes to it": "the world",
    "a silo that cheats": "one silo",
    "a malicious server with `colluding` silos": "2 silos together",
}


def epsilon_at(noise: float) -> float:
    """Return the epsilon of noise in units of the stated one, where epsilon 2 is stated."""

    def epsilon(multiplier: float) -> float:
        event = GaussianEvent(noise_multiplier=multiplier, neighboring_relation=RELATION)
        return epsilon_of(event, count=1, delta=1e-6)

    stated = brentq(lambda multiplier: epsilon(multiplier) - 2, 0.5, 10)
    return epsilon(stated * noise)


@pytest.mark.slow
def test_the_page_has_what_is_measured(tmp_path: Path) -> None:
    """Of each party a row: the noise that remains in its best sum, within 4%, and the epsilon that
    follows from it."""
    hospitals = Hospitals(tmp_path, silos=5, colluding=2, dropouts=1, queries=5000)
    hospitals.reveal("mercy")
    total, shares = hospitals.server("mercy").open()
    stayed, terms = [*hospitals.teachers][:4], hospitals.exchange.invitation
    rows = [hospitals.ids.index(query) for query in terms.ids]
    measured = {}
    for party, known in (("the world", 0), ("one silo", 1), ("2 silos together", 2)):
        # as each could: it subtracts its own part from the released sum
        rest = total - hospitals.curators(*stayed[:known])[0] if known else total
        counts = sum(hospitals.counts[name][rows] for name in stayed[known:])
        noise = np.std(decode(rest, terms.mechanism.share_sigma, shares) - counts)
        measured[party] = float(noise) / terms.mechanism.sigma_silos
    rows_of_page = re.findall(
        r"^\| ([^|]+) \| [^|]+ \| (\d\.\d\d) \| (\d\.\d\d) \| [^|]+ \|$", PAGE, flags=re.MULTILINE
    )
    assert [party for party, *_ in rows_of_page] == [*PARTIES]
    for party, noise, epsilon in rows_of_page:
        found = measured[PARTIES[party]]
        assert (found, epsilon_at(found)) == pytest.approx((float(noise), float(epsilon)), rel=0.04)
    # all that is stated, and no more
    assert measured["2 silos together"] == pytest.approx(1, rel=0.04)


def accepted(silos: int, colluding: int, dropouts: int, *, single_sums: bool = False) -> bool:
    try:
        SiloVotes(
            sigma_silos=1.0,
            silos=silos,
            colluding=colluding,
            dropouts=dropouts,
            single_sums=single_sums,
        )
    except ValueError:
        return False
    return True


CASES = [
    (silos, colluding, dropouts)
    for silos, colluding, dropouts in (
        *product((2, 3, 4, 5), (1, 2, 3), (0, 1, 2)),
        *((5, 4, 0), (6, 2, 1), (6, 4, 1), (6, 3, 2)),
    )
    if dropouts <= (silos - 1) // 2 and silos - colluding - dropouts >= 1
]


def test_only_terms_that_allow_a_gain_are_refused() -> None:
    """All lists of up to five silos, and some of six. Those terms are refused that allow a gain, and
    no others."""
    single = set()
    for case in CASES:
        (silos, colluding, dropouts), opened = case, opened_sums(*case)
        enough = opened.fewest_silos >= silos - colluding - dropouts
        assert accepted(*case) == (enough and opened.most_sums <= 1), case
        assert accepted(*case) == (dropouts == 0 or dropouts * (dropouts + 1) < silos - colluding)
        # one who accepts that the counts of a silo are opened by themselves still has all the noise
        assert accepted(*case, single_sums=True) == enough, case
        if enough and opened.most_sums > 1:
            single.add(case)
    assert single == {(3, 1, 1), (4, 2, 1), (5, 2, 2), (5, 3, 1), (6, 3, 2), (6, 4, 1)}
