"""Audits of imported votes and of silos that mask theirs: honest ones pass, faults are found."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pate
from pate import VoteShape, cli
from pate._core.mechanisms.noisy_counts import NoisyMoments
from pate._labeling.runs.run import Run
from pate._labeling.runs.vote_store import VoteStore
from pate.aggregators import Canonical, NoisyVotes, SiloVotes
from pate.lab.audit.isolation import masked_isolation, masked_noise, vote_isolation_tests
from pate.lab.audit.laws import Gaussians, Outcomes, p_values
from pate.lab.audit.releases import noise_of_moments
from pate.lab.audit.tables import verdict_of
from pate.mechanisms import add_gaussian, private_generator, seeded_generator

moments: Any = import_module("pate._core.mechanisms.noisy_counts")
MECHANISM = SiloVotes(sigma_silos=20.0, silos=5, colluding=2, dropouts=1)
SHAPE = VoteShape(250, 6)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of the votes of 60 teachers, in two silos."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    silos = [
        pate.NamedVotes(
            ids=np.char.mod("s%02d", np.arange(12)),
            label_names=("a", "b", "c"),
            ballots=(generator.random((12, 30, 3)) < [0.9, 0.5, 0.1]).astype(np.uint8),
        )
        for _ in range(2)
    ]
    settings = pate.LabelSettings(
        pate.Partial(Canonical, k=1), delta=1e-6, target_epsilon=4.0, num_queries=12
    )
    pate.label(silos, settings, run=tmp_path / "run")
    return Run(tmp_path / "run", ledger=tmp_path / "run" / "ledger.sqlite")


@pytest.mark.slow
def test_imported_votes_are_audited_by_a_command(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in run.root.rglob("*") if path.is_file()}
    assert cli.main(["audit", "run"]) == 0
    printed = capsys.readouterr().out
    assert "NOT PRIVATE" in printed and "Nothing is refuted." in printed
    assert "teachers where one record is altered: the bits of 60 teachers" in printed
    assert "exact leakage: the laws of all answers" in printed
    assert Path("audits/run/audit.json").is_file()
    # neither the run nor its ledger is touched
    assert {path: path.read_bytes() for path in run.root.rglob("*") if path.is_file()} == before


def test_an_import_that_lets_teachers_see_others_is_found(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = vote_isolation_tests(run)
    assert verdict_of(honest) == "passed" and "1 of 60 differ" in honest[0].result
    save = VoteStore.save_chunk

    def faulty(store: VoteStore, teachers: range, votes: Any, **more: Any) -> None:
        save(store, teachers, votes ^ votes.sum(axis=0, dtype=np.uint8), **more)

    monkeypatch.setattr(VoteStore, "save_chunk", faulty)
    assert verdict_of(vote_isolation_tests(run)) == "refuted"


@pytest.mark.slow
def test_votes_of_which_only_counts_are_known_have_no_isolation(tmp_path: Path) -> None:
    votes = pate.NamedVotes(
        ids=np.array(["a", "b"]),
        label_names=("x",),
        counts=np.array([[3], [50]]),
        num_teachers=60,
    )
    settings = pate.LabelSettings(pate.Partial(NoisyVotes), delta=1e-6, target_epsilon=4.0)
    pate.label(votes, settings, run=tmp_path / "run")
    (row,) = vote_isolation_tests(Run(tmp_path / "run"))
    assert row.verdict == "not tested" and row.result == "no ballot of a teacher is known"


@pytest.fixture
def member() -> Any:
    """The module of silos, another folder of the lab."""
    return pytest.importorskip("pate.lab.silos.member")


def least(noise: list[Gaussians | Outcomes]) -> float:
    stacked = np.stack([part.normals(np.random.default_rng(0)) for part in noise])
    return min(p_values(stacked, ("releases", "rows", "columns")[: stacked.ndim]).values())


@pytest.mark.slow
def test_masked_silos_add_the_stated_noise(
    member: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run")
    assert least(masked_noise(run, MECHANISM, SHAPE)) > 1e-6
    monkeypatch.setattr(member, "private_generator", lambda _: private_generator(7))
    assert least(masked_noise(run, MECHANISM, SHAPE)) < 1e-10
    assert not list(tmp_path.glob(".run*"))


@pytest.mark.slow
def test_a_masked_vector_depends_on_its_own_silo(
    member: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, counts = Run(tmp_path / "run"), member.Member._counts
    assert verdict_of(masked_isolation(run, MECHANISM, SHAPE)) == "passed"

    def faulty(silo: Any) -> Any:
        first = silo.votes.parents[1] / "silo-00" / "votes.npz"
        return counts(silo) + counts(replace(silo, votes=first))

    monkeypatch.setattr(member.Member, "_counts", faulty)
    assert verdict_of(masked_isolation(run, MECHANISM, SHAPE)) == "refuted"


def test_moments_of_public_samples_have_the_stated_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = NoisyMoments(noise_multiplier=3.0)

    def found() -> float:
        seen: list[Gaussians | Outcomes] = [
            noise_of_moments(mechanism, 4, seeded_generator(seed)) for seed in range(100)
        ]
        return least(seen)

    assert found() > 1e-4

    def faulty(values: Any, *, sigma: float, generator: np.random.Generator) -> Any:
        return add_gaussian(values, sigma=0.7 * sigma, generator=generator)

    monkeypatch.setattr(moments, "add_gaussian", faulty)
    assert found() < 1e-10
