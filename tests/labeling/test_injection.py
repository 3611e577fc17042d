"""`pate label`, `pate run` and the estimator on a disk that fails, and killed, at any operation."""

import hashlib
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from pate import PateClassifier, ReleasedLabels, cli
from tests.conftest import make_arrays, recipe
from tests.injection import EVERYWHERE, MODES, Case, Ended, Injector, injector, try_points
from tests.processes import run_here

CASES = ("label", "run", "fit", "classifiers")


def fit(folder: Path, *, classifiers: bool = False) -> None:
    """Fit an estimator, and print the digest of its release."""
    generator = np.random.default_rng(0)
    X, public = generator.normal(size=(90, 3)), generator.normal(size=(20, 3))
    teacher = None
    if classifiers:
        from sklearn.naive_bayes import GaussianNB

        teacher = GaussianNB()
    made = PateClassifier(
        epsilon=20,
        delta=1e-4,
        teacher=teacher,
        n_teachers=10 if classifiers else None,
        ledger=folder / "ledger.sqlite",
        random_state=0,
    ).fit(X, (X[:, :2] > 0).astype(int), X_public=public)
    print(digest_of(made.released_))


def fit_classifiers(folder: Path) -> None:
    fit(folder, classifiers=True)


def first_cases(folder: Path) -> None:
    """Go through two commands, for what they import; the others import it as they are tried."""
    for name in CASES[::2]:
        place = folder / name
        place.mkdir()
        case = case_of(name, place)
        case.begin()
        if isinstance(case.work, list):
            with chdir(case.place):
                assert cli.main([*case.work]) == 0
        else:
            globals()[case.work.split(":")[1]](case.place)


def digest_of(labels: ReleasedLabels) -> str:
    parts = (labels.labels, labels.mask, labels.noisy_counts)
    return hashlib.sha256(
        b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
    ).hexdigest()


def of_run(place: Path, ended: Ended) -> str:
    return digest_of(ReleasedLabels.load(place / "run"))


def of_fit(place: Path, ended: Ended) -> str:
    return ended.err.splitlines()[-1]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injector]:
    with injector(tmp_path_factory.mktemp("injector"), f"{__name__}:first_cases") as server:
        yield server


def case_of(name: str, folder: Path) -> Case:
    before, place = folder / "before", folder / "place"
    if name == "label":
        before.mkdir()
        ballots = np.random.default_rng(0).integers(0, 2, (12, 20, 3)).astype(np.uint8)
        ids, names = np.array([f"s{row}" for row in range(12)]), np.array(list("abc"))
        np.savez(before / "votes.npz", ids=ids, label_names=names, ballots=ballots)
        words = ["label", "--votes=votes.npz", "--run=run", "--aggregator=NoisyVotes"]
        words += ["--aggregator.sigma_votes=4", "--num_queries=5", "--delta=1e-6"]
    elif name == "run":
        recipe(before, Path("data.npz"))
        np.savez(before / "data.npz", **make_arrays(150))  # type: ignore[arg-type]
        (before / "label.yaml").write_text("target_epsilon: 20\nnum_queries: 10\ndelta: 0.001\n")
        (before / "student.yaml").write_text("model:\n  network: pate.models.Linear\n")
        words = ["run", ".", "--run=run"]
    else:
        before.mkdir()
        work = f"{__name__}:{'fit' if name == 'fit' else 'fit_classifiers'}"
        # once its files are gone, the fit is done
        return Case(
            work, before, place, of_fit, lambda place: not list(place.glob("*.fits/[!.]*")), False
        )

    def stated(place: Path) -> bool:
        seeds = place.glob("run/private/label/*.json")
        return (place / "run" / "public" / "privacy.txt").is_file() and not list(seeds)

    return Case(words, before, place, of_run, stated)


@pytest.mark.parametrize(("name", "most"), [("label", 3), ("fit", 2)])
def test_a_sample_of_operations_pays_once(
    name: str, most: int, run: Injector, tmp_path: Path
) -> None:
    assert try_points(run, case_of(name, tmp_path), MODES[1:], most=most) == most


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("name", CASES)
def test_every_operation_pays_once(name: str, mode: str, run: Injector, tmp_path: Path) -> None:
    most = None if mode in EVERYWHERE and name != "classifiers" else 40
    assert try_points(run, case_of(name, tmp_path), [mode], most=most) > 10


def test_a_mask_of_permissions_names_the_place_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under umask 0777 the rehearsal is the first that cannot read what it wrote."""
    case = case_of("label", tmp_path)
    case.begin()

    def closed(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/tmp/pate0/run/private/votes_import.json")

    monkeypatch.setattr("pate._labeling.stages.rehearsal.import_votes", closed)
    assert isinstance(case.work, list)
    ended = run_here(*case.work, folder=case.place)
    assert ended.code == 2 and ended.err.count("\n") == 1
    assert ended.err.startswith("pate label: Expected access to run, got: Permission denied")
