"""Quick linear teachers, their votes, and the utility column on a small table and a few faces."""

from pathlib import Path

import numpy as np
import pytest

from pate import VoteShape
from pate.accounting import NeighboringRelation, epsilon_of
from pate.aggregators import StableTopK
from scripts.reproduction import Verdict, tasks, zhu_wang_utility as z
from scripts.reproduction.__main__ import main
from scripts.reproduction.findings import kept
from scripts.reproduction.zhu_wang_privacy import DELTA, NUM_QUERIES, PUBLISHED
from tests.pages.scripts.reproduction.small import attributes_table

pytestmark = pytest.mark.slow

SAMPLES = tasks.Samples(
    np.random.default_rng(1).normal(size=(60, 3)),
    (np.random.default_rng(2).random((60, 2)) < 0.5).astype(np.uint8),
)


def test_a_teacher_is_a_ridge_regression_on_its_own_part() -> None:
    weights = tasks.ridge_weights(SAMPLES, 4, generator=np.random.default_rng(0))
    rows = np.random.default_rng(0).permutation(60).reshape(4, 15)[2]
    x, y = SAMPLES.features[rows], SAMPLES.labels[rows].astype(float)
    # an intercept that is not shrunk: least squares on rows of the root of the penalty
    design = np.block([[x, np.ones((15, 1))], [np.sqrt(3) * np.eye(3), np.zeros((3, 1))]])
    expected = np.linalg.lstsq(design, np.concatenate((y, np.zeros((3, 2)))), rcond=None)[0]
    np.testing.assert_allclose(weights[2], expected, atol=1e-10)


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_all_methods_cost_the_published_epsilon(relation: NeighboringRelation) -> None:
    stable = StableTopK.for_target(z.published_target(relation), VoteShape(200, 20))
    assert isinstance(stable, StableTopK)
    compared = z.methods(VoteShape(100, 20), stable, relation)
    for each in (each for name, each in compared.items() if name != z.AS_WIDE):
        spent = epsilon_of(each.event(VoteShape(100, 20), relation), count=NUM_QUERIES, delta=DELTA)
        assert 0.99 * PUBLISHED < spent <= PUBLISHED * (1 + 1e-9)


def test_the_script_in_a_small_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATE_DATA", str(attributes_table(tmp_path / "data", 40_000)))
    monkeypatch.setattr(z, "_FEW_FACES", 14_000)
    monkeypatch.setattr(z, "_ENSEMBLES", {False: (400, 800)})
    faces = tasks.celeba_attributes(tmp_path / "data" / tasks.ATTRIBUTES)._replace(
        name="rendered faces"
    )
    monkeypatch.setattr(z, "rendered_faces", lambda *_, **__: faces)
    main(["zhu_wang_table2_utility", "--output", str(tmp_path / "found")])
    (found,) = kept(tmp_path / "found")
    assert [claim.verdict for claim in found.claims] == [Verdict.UNTESTABLE] * 3
    assert (tmp_path / "found" / "zhu_wang_table2_utility.png").is_file()
