"""Laws of report-noisy-max by hand, neighbors as the mechanism sees them, and the accountings of Table 2."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from pate.accounting.curves import gaussian_noisy_max_rdp
from pate.accounting.relation import NeighboringRelation
from scripts.reproduction import Effort, Verdict
from scripts.reproduction import zhu_wang_privacy as z
from scripts.reproduction.__main__ import main
from scripts.reproduction.noisy_max import Pair, composed_delta, composed_epsilon, gaps_of, group_law, worst_pair

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD


def test_laws_of_groups_by_hand() -> None:
    first = group_law([1, 1], [3.0, 1.0], 2.0)[0]
    assert first == pytest.approx(norm.cdf((3 - 1) / (2 * math.sqrt(2))), abs=1e-13)
    np.testing.assert_allclose(group_law([2, 3, 5], [4.0] * 3, 1.0), [0.2, 0.3, 0.5], rtol=1e-12)
    alone = group_law([1] * 6, [0.0, 0.0, 1.0, 1.0, 1.0, -2.0], 1.5)
    grouped = group_law([2, 3, 1], [0.0, 1.0, -2.0], 1.5)
    np.testing.assert_allclose(grouped, [alone[:2].sum(), alone[2:5].sum(), alone[5]], rtol=1e-12)


def test_a_law_is_that_of_draws() -> None:
    noisy = np.array([0, 0, 2, 2, 2]) + 1.5 * np.random.default_rng(0).standard_normal((200_000, 5))
    share = (noisy.argmax(axis=1) < 2).mean()
    assert share == pytest.approx(group_law([2, 3], [0.0, 2.0], 1.5)[0], abs=5 * 0.5 / math.sqrt(200_000))


@pytest.mark.parametrize(
    "pair",
    [
        Pair(up=1, down=1, sd=5.0),
        Pair(up=20, down=19, sd=50.0),
        Pair(up=2, down=3, above=-3, sd=5.0),
        Pair(up=3, down=2, still=4, above=4, still_above=-1, sd=5.0),
    ],
)
def test_pairs_are_neighbors_of_the_mechanism(pair: Pair) -> None:
    before, after = pair.counts()
    assert set((after - before).tolist()) <= {0, 1} and len(before) == pair.num_candidates + 1
    moves = gaps_of(after, 2000) - gaps_of(before, 2000)
    assert (int((moves == 1).sum()), int((moves == -1).sum())) == (pair.up, pair.down)
    narrow = set(gaps_of(before, 2000)[moves == 1].tolist())
    wide = set(gaps_of(before, 2000)[moves == -1].tolist())
    assert wide == {each + pair.above for each in narrow}


def test_gaps_that_one_teacher_cannot_move_are_refused() -> None:
    with pytest.raises(ValueError, match="in turn"):
        Pair(up=3, down=1, sd=1.0)


@pytest.mark.slow
def test_the_proven_curve_covers_the_exact_one_and_the_published_one_does_not() -> None:
    orders = np.geomspace(1.1, 200, 20)
    for m in (2, 10, 39):
        exact = worst_pair(m, 50.0, 2.0).renyi(orders)
        assert (exact <= gaussian_noisy_max_rdp(orders, 25.0, m)).all()
        assert exact[0] > 1.2 * orders[0] / (2 * 50.0**2)


def test_deltas_of_a_few_queries_by_enumeration() -> None:
    pair = Pair(up=2, down=1, sd=1.0)
    p, q = pair.laws
    both = []
    for one, other in ((p, q), (q, p)):
        words = itertools.product(range(2), repeat=3)
        laws = [(float(np.prod(one[list(word)])), float(np.prod(other[list(word)]))) for word in words]
        both.append(sum(max(0.0, a - math.exp(0.4) * b) for a, b in laws))
    assert composed_delta(pair, 0.4, 3) == pytest.approx(max(both), rel=1e-12)
    assert composed_delta(pair, composed_epsilon(pair, 1e-3, 3), 3) == pytest.approx(1e-3, rel=1e-4)
    assert composed_delta(pair, 50.0, 3) == 0


def test_proven_epsilons_are_above_the_exact_one_and_the_published_one_is_not() -> None:
    exact = composed_epsilon(z.EXACT, z.DELTA, z.NUM_QUERIES)
    gaussian = next(iter(z.released().values()))
    assert z.PUBLISHED < z.as_published(4e-7) < exact < z.epsilon(gaussian, ADD, "tightest")
    assert z.as_published(1e-6) == pytest.approx(3.555, abs=1e-3)


@pytest.mark.slow
def test_noise_of_voting() -> None:
    binary, tau = z.voting(1.0)
    found = {name: z.noise_for(aggregator, 3.6, REPLACE) for name, aggregator in z.voting(1.0).items()}
    assert found[tau] == pytest.approx(found[binary] * math.sqrt(20 / 40), rel=1e-5)
    assert z.epsilon(z.voting(found[tau])[tau], REPLACE, "tightest") == pytest.approx(3.6, rel=1e-5)


@pytest.mark.slow
def test_the_script(tmp_path: Path) -> None:
    main(["zhu_wang_table2_privacy", "--output", str(tmp_path / "found")])
    assert {path.suffix for path in (tmp_path / "found").iterdir()} == {".csv", ".json", ".png"}
    verdicts = [claim.verdict for claim in z.claims(z.measured(Effort()))]
    assert verdicts[:3] == [Verdict.REPRODUCED, Verdict.REFUTED, Verdict.REFUTED]
