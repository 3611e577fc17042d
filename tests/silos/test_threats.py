"""The threat table of docs/silos.md: what each party learns is measured, and is what the page
says."""

import re
from itertools import product
from pathlib import Path

import pytest

from pate.aggregators import SiloVotes
from scripts.measure_silos import SMALL, fewest_opened, measure

PAGE = (Path(__file__).parents[2] / "docs" / "silos.md").read_text()
PARTIES = {
    "the world": "the world",
    "a silo, honest but curious": "one silo",
    "`colluding` silos together": "2 silos together",
    "the server": "the world",
    "who provides the folder, or writes to it": "the world",
    "a silo that cheats": "one silo",
    "a malicious server with `colluding` silos": "2 silos together",
}


def test_the_page_has_what_is_measured(tmp_path: Path) -> None:
    """Of each party a row: the noise that it faces within 4%, and the epsilon that follows from
    it."""
    measured = measure(tmp_path)
    rows = re.findall(
        r"^\| ([^|]+) \| [^|]+ \| (\d\.\d\d) \| (\d\.\d\d) \| [^|]+ \|$", PAGE, flags=re.MULTILINE
    )
    assert [party for party, *_ in rows] == [*PARTIES]
    for party, noise, epsilon in rows:
        assert measured[PARTIES[party]] == pytest.approx((float(noise), float(epsilon)), rel=0.04)
    # all that is stated, and no more
    assert measured["2 silos together"][0] == pytest.approx(1, rel=0.04)


def accepted(silos: int, colluding: int, dropouts: int) -> bool:
    try:
        SiloVotes(sigma_silos=1.0, silos=silos, colluding=colluding, dropouts=dropouts)
    except ValueError:
        return False
    return True


def test_no_list_opens_a_sum_with_less_noise_than_is_stated() -> None:
    """All lists for up to five silos, each as large as may be; where a server gains by one the
    mechanism is refused."""
    cases = [
        case
        for case in product((2, 3, 4, 5), (1, 2, 3), (0, 1, 2))
        if case[2] <= (case[0] - 1) // 2
    ]
    tried = [(case, fewest_opened(*case)) for case in cases if case[0] - case[1] - case[2] >= 1]
    assert {case for case, _ in tried} >= set(SMALL)
    for (silos, colluding, dropouts), opened in tried:
        enough = opened >= silos - colluding - dropouts
        assert enough == accepted(silos, colluding, dropouts), (silos, colluding, dropouts)
