"""`scripts/verify.py` alone refuses forged statements, passes honest ones, and knows its limits."""

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from pate import LabelSettings, VoteShape, cli, label
from pate._core.accounting.history import EACH
from pate._core.accounting.statement import SCHEMA
from pate._core.validation import FloatArray
from pate._labeling.commands.check import _sign, check_run
from pate._labeling.runs.run import SIGNED
from pate.accounting import (
    BoundedRangeEvent,
    Budget,
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    GaussianThresholdEvent,
    Ledger,
    NeighboringRelation,
    PrivacyUnit,
    PureDPEvent,
    RDPAccountant,
    RepeatedEvent,
    Statement,
    gaussian_epsilon,
)
from pate.aggregators import (
    Canonical,
    ConfidentScreen,
    NoisyVotes,
    Peeling,
    PermuteAndFlip,
    ScoreVotes,
    StableTopK,
)
from scripts import verify
from tests.conftest import made_votes
from tests.statements import COMMON_KEYS, PUBLISHED, RECORDS

ROOT = Path(__file__).parents[3]
SHARED = REPLACE, TEACHER = tuple(NeighboringRelation)
Events = Mapping[NeighboringRelation, Event]
SHAPE = VoteShape(num_teachers=400, num_labels=9)


def event(kind: type[Event], field: str, x: float) -> Events:
    """Return events of a kind that cost twice as much under ``REPLACE_RECORD``."""
    doubled = x / 2 if field == "noise_multiplier" else 2 * x
    made = {REPLACE: doubled, TEACHER: x}.items()
    return {r: kind(neighboring_relation=r, **{field: value}) for r, value in made}


gauss = partial(event, GaussianEvent, "noise_multiplier")
threshold = partial(event, GaussianThresholdEvent, "noise_multiplier")
choice, pure = partial(event, BoundedRangeEvent, "eta"), partial(event, PureDPEvent, "epsilon")


def failure(x: float) -> Events:
    return {r: FailureEvent(neighboring_relation=r, delta=x, tail="constant") for r in SHARED}


def both(*parts: Events) -> Events:
    return {r: ComposedEvent(events=tuple(part[r] for part in parts)) for r in SHARED}


def times(count: int, part: Events) -> Events:
    return {r: RepeatedEvent(event=part[r], count=count) for r in SHARED}


@dataclass(frozen=True, eq=False)
class Case:
    """A ledger of releases (the events of a query, and the number of queries), and its options."""

    releases: tuple[tuple[Events, int], ...]
    budget: float | None = None
    delta: float = 1e-6
    unit: PrivacyUnit = RECORDS
    others: PrivacyUnit | None = None  # that of the second release, where it is another one
    teachers: int = 1
    seeded: bool = False
    paid: tuple[int, ...] = ()  # queries that are paid for in the end, where these are fewer
    labels: bytes = b"labels"
    release: int = 0  # which one is stated, from the last


@cache
def statement_of(case: Case) -> str:
    """Return the statement on a case, as JSON."""
    budget, facts = None, PUBLISHED | {"delta": case.delta, "unit": case.unit.unit}
    facts |= {"sha256": sha256(case.labels).hexdigest(), "max_teachers_per_unit": case.teachers}
    if case.budget is not None:
        budget = Budget(
            max_epsilon=case.budget,
            delta=case.delta,
            neighboring_relation=REPLACE,
            max_teachers_per_unit=case.teachers,
        )
    with TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.sqlite", max_teachers_per_unit=case.teachers)
        for number, (events, count) in enumerate(case.releases):
            made = ledger.reserve(
                events,
                count=count,
                run="run",
                description="Noise",
                seeded=case.seeded,
                delta=case.delta,
                privacy_unit=case.unit if number == 0 or case.others is None else case.others,
                budget=budget,
            )
            paid = [(events, case.paid[number])] if case.paid else None
            ledger.settle(made, realised=paid, published=facts)
        book = ledger.snapshot()
    return json.dumps(Statement.of(book, len(case.releases) - case.release).content)


def written(case: Case, folder: Path) -> Path:
    """Write a statement with labels and a student beside it."""
    (folder / "student" / "model").mkdir(parents=True)
    (folder / "student" / "model" / "model.safetensors").write_bytes(b"weights")
    (folder / "labels.npz").write_bytes(case.labels)
    (folder / "privacy.json").write_text(statement_of(case))
    return folder / "privacy.json"


GAUSSIAN = Case(((gauss(40), 60), (gauss(50), 40)))
MIXED = Case(((both(choice(0.05), gauss(60)), 20), (choice(0.1), 8)))
PERSON = PrivacyUnit(unit="patient", partition=EACH)
GROUP = PrivacyUnit(unit="group", grouping="patient", partition=EACH)
UNKNOWN = PrivacyUnit(unit="record")  # whose teachers are not known to be the same
RUNS = [PrivacyUnit(unit="record", partition=key) for key in ("2f", "7c")]


def aggregated(aggregator: Any) -> Case:
    return Case(((aggregator.events(SHAPE), 40),))


HONEST = {
    "one Gaussian": Case(((gauss(40), 60),)),
    "three Gaussian": Case(((gauss(40), 60), (gauss(50), 40), (gauss(300), 2000))),
    "the first of three": replace(
        GAUSSIAN, releases=(*GAUSSIAN.releases, (gauss(90), 9)), release=2
    ),
    "a small epsilon": Case(((gauss(4000), 9),)),
    "a large epsilon": Case(((gauss(1), 4),)),
    "an epsilon of 1,487": Case(((gauss(0.04), 1),)),
    "a delta of 1e-12": replace(GAUSSIAN, delta=1e-12),
    "a delta of .01": replace(GAUSSIAN, delta=0.01),
    "one choice": Case(((choice(0.5), 1),)),
    "choices": Case(((choice(0.05), 90),)),
    "many choices": Case(((choice(0.01), 4000),)),
    "one threshold": Case(((threshold(3), 1),)),
    "thresholds": Case(((threshold(30), 50),)),
    "many thresholds": Case(((threshold(90), 900),)),
    "one pure release": Case(((pure(0.4), 1),)),
    "a pure release of 50": Case(((pure(50.0), 1),)),
    "pure releases": Case(((pure(0.05), 200),)),
    "pure and Gaussian": Case(((pure(0.05), 30), (gauss(50), 40))),
    "failures": Case(((both(gauss(40), failure(1e-9)), 60),)),
    "repeated": Case(((times(3, choice(0.05)), 9), (gauss(70), 5))),
    "mixed": MIXED,
    "fewer paid": replace(GAUSSIAN, paid=(20, 40)),
    "a budget of 3": replace(GAUSSIAN, budget=3.0),
    "a budget of choices": Case(((choice(0.05), 30), (choice(0.05), 20)), budget=4.0),
    "two teachers": replace(GAUSSIAN, teachers=2),
    "patients": replace(GAUSSIAN, unit=PERSON),
    "groups": replace(GAUSSIAN, unit=GROUP),
    "unknown teachers": replace(GAUSSIAN, unit=UNKNOWN),
    "more than are listed": Case(((gauss(900), 6), (gauss(900), 6), (gauss(700), 4)) * 34),
    "two runs": replace(GAUSSIAN, unit=RUNS[0], others=RUNS[1]),
    "NoisyVotes": aggregated(NoisyVotes(sigma_votes=90.0)),
    "ScoreVotes": aggregated(ScoreVotes(multiplier_scores=30.0)),
    "ConfidentScreen": aggregated(
        ConfidentScreen(
            answers=NoisyVotes(sigma_votes=90.0), sigma_confident=60.0, threshold_confident=200.0
        )
    ),
    "Peeling": aggregated(Peeling(k=3, scale_peel=200.0)),
    "PermuteAndFlip": aggregated(PermuteAndFlip(k=2, scale_flip=200.0)),
    "Canonical": aggregated(Canonical(k=3, scale_canonical=200.0)),
}
FAST = [
    "more than are listed",
    "three Gaussian",
    "an epsilon of 1,487",
    "a pure release of 50",
    "two runs",
    "one choice",
    "thresholds",
    "failures",
    "a budget of 3",
]
"""Honest statements of the fast tests; the night has all."""


def sampled(names: Iterable[str], fast: Sequence[str] = ()) -> list[Any]:
    """Return the names, all but some of them for the night: every third is fast, or those named."""
    listed = [*names]
    return [
        name if name in (fast or listed[::3]) else pytest.param(name, marks=pytest.mark.slow)
        for name in listed
    ]


def checked(path: Path, *keys: Path) -> subprocess.CompletedProcess[str]:
    """Run the script with the standard library alone: without the packages of the environment."""
    words = [sys.executable, "-I", "-S", str(ROOT / "scripts" / "verify.py"), str(path)]
    return subprocess.run([*words, *map(str, keys)], capture_output=True, text=True)


def passed(path: Path, *keys: Path) -> bool:
    """Return whether the script passes a statement; only what it catches is a refusal."""
    try:
        verify.main(path, *keys)
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError):
        return False
    return True


@pytest.mark.parametrize("name", sampled(HONEST, [*FAST, "ConfidentScreen"]))
def test_an_honest_statement_passes(name: str, tmp_path: Path) -> None:
    path = written(HONEST[name], tmp_path / "run")
    Statement.read(path).verify(released=path.with_name("labels.npz"))
    done = checked(path)
    assert done.returncode == 0, done.stderr
    content = json.loads(path.read_text())
    for relation, stated in content["guarantees"].items():
        if stated["fixed_by"] == "reservation":
            (line,) = (
                line
                for line in done.stdout.splitlines()
                if line.startswith("guarantees") and relation in line
            )
            low = float(line.split()[-1])
            # what this epsilon exceeds the one of the adversary by, at most
            assert low - 1e-4 <= stated["epsilon"] <= 1.03 * low + 1e-4


Content = dict[str, Any]
REPLACED, ADDED = REPLACE.value, TEACHER.value


def put(place: str, value: Any) -> Callable[[Content], None]:
    """Return an edit that sets a place of a statement, or changes it by a function."""

    def edit(content: Content) -> None:
        keys: list[Any] = [int(key) if key.isdecimal() else key for key in place.split()]
        inner: Any = content
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value(inner[keys[-1]]) if callable(value) else value

    return edit


def dropped(content: Content) -> None:
    del content["releases"][0]
    content["release"] = 1


def renumbered(content: Content) -> None:
    dropped(content)
    content["releases"][0]["release"] = 1


def never(content: Content) -> None:
    """Give a composition a number of times, which it has not, and the figures that would follow."""
    for release in content["releases"]:
        for event in release["events"].values():
            event["count"] = 0
    for part in ("guarantees", "this_release", "costs"):
        for figure in content[part].values():
            figure |= {"epsilon": 0.0, "delta0": 0.0}


def at_other_delta(content: Content) -> None:
    """State an epsilon that is true, at another delta than the one that was declared."""
    figure = content["guarantees"][REPLACED]
    figure |= {"delta": 1e-4, "epsilon": gaussian_epsilon(1e-4, figure["mu"])}


def audited(content: Content) -> None:
    content["ledger"]["counts"] = content["releases"][-1]["published"]["ledger"] = "audit"


def asked_less(content: Content) -> None:
    content["num_queries"] = content["releases"][1]["count"] = 10


def swapped(content: Content) -> None:
    stated = content["guarantees"]
    stated[REPLACED], stated[ADDED] = stated[ADDED], stated[REPLACED]


def budgeted(content: Content) -> None:
    """Claim a budget below what was spent."""
    content["budget"] = {
        "max_epsilon": 0.5,
        "delta": 1e-6,
        "neighboring_relation": REPLACED,
        "max_teachers_per_unit": 1,
    }
    content["filter"] = {"max_delta0": 0.0}
    content["guarantees"][REPLACED] |= {"epsilon": 0.5, "delta0": 0.0, "fixed_by": "budget"}


def totaled(content: Content) -> None:
    """Claim a total of teachers who are not known to be the same."""
    content["guarantees"][ADDED] = content["guarantees"][REPLACED] | {"unit": "record"}
    content["costs"][ADDED] = content["costs"][REPLACED]


def halved(epsilon: float) -> float:
    return epsilon / 2


R, A = f"guarantees {REPLACED}", f"guarantees {ADDED}"
EVENT = "releases 0 events " + REPLACED
BUDGETED, FAILING, TWO_RUNS = HONEST["a budget of 3"], HONEST["failures"], HONEST["two runs"]
EDITS: dict[str, tuple[Case, Callable[[Content], None]]] = {
    "a release dropped": (GAUSSIAN, dropped),
    "a release dropped and numbered": (GAUSSIAN, renumbered),
    "another delta, and its epsilon": (GAUSSIAN, at_other_delta),
    "fewer queries of both": (GAUSSIAN, asked_less),
    "parts that never happen": (FAILING, never),
    "an audit": (GAUSSIAN, audited),
    "relations swapped": (GAUSSIAN, swapped),
    "a budget invented": (GAUSSIAN, budgeted),
    "a total invented": (replace(GAUSSIAN, unit=UNKNOWN), totaled),
    "a total of other teachers": (TWO_RUNS, totaled),
}
PLACES: list[tuple[Case, str, Any]] = [
    (GAUSSIAN, f"{R} epsilon", halved),
    (GAUSSIAN, f"this_release {ADDED} epsilon", halved),
    (GAUSSIAN, f"costs {REPLACED} epsilon", halved),
    (GAUSSIAN, f"{A} epsilon", lambda x: 0.9999 * x),
    (MIXED, f"{R} epsilon", halved),
    (MIXED, f"{R} epsilon", lambda x: 0.97 * x),
    (GAUSSIAN, f"this_release {REPLACED} epsilon", None),
    (GAUSSIAN, "guarantees", {}),
    (GAUSSIAN, f"{R} epsilon", math.nan),
    (GAUSSIAN, f"{R} delta", 1e-5),
    (BUDGETED, f"{R} delta", 1e-4),
    (BUDGETED, f"{R} epsilon", halved),
    (GAUSSIAN, "delta", 1e-5),
    (FAILING, f"{R} delta0", 0.0),
    (GAUSSIAN, "num_queries", 10),
    (GAUSSIAN, "releases 0 count", 10),
    (GAUSSIAN, "releases 0 count", -60),
    (GAUSSIAN, f"{EVENT} noise_multiplier", 80.0),
    (GAUSSIAN, f"{EVENT} noise_multiplier", 10.0),
    (GAUSSIAN, f"{EVENT} noise_multiplier", -20.0),
    (MIXED, f"releases 1 events {REPLACED} eta", 0.4),
    (HONEST["thresholds"], f"{EVENT} type", "GaussianEvent"),
    (MIXED, f"{EVENT} events", []),
    (GAUSSIAN, f"{EVENT} type", "FreeEvent"),
    (GAUSSIAN, f"{EVENT} neighboring_relation", ADDED),
    (GAUSSIAN, "releases 0 seeded", True),
    (replace(GAUSSIAN, seeded=True), "private", True),
    (GAUSSIAN, "ledger counts", "run"),
    (GAUSSIAN, "private", False),
    (GAUSSIAN, "unit", "patient"),
    (GAUSSIAN, f"{R} unit", "patient"),
    (GAUSSIAN, "releases 0 privacy_unit unit", "patient"),
    (GAUSSIAN, "neighboring_relation", ADDED),
    (replace(GAUSSIAN, teachers=2), "max_teachers_per_unit", 1),
    (replace(GAUSSIAN, unit=PrivacyUnit(unit="group")), f"{R} unit", "group"),
    (GAUSSIAN, "aggregator class_path", "Other"),
    (GAUSSIAN, "sha256", "1" * 64),
    (GAUSSIAN, "format", 1),
]
EDITS |= {
    f"{place}: {number}": (case, put(place, value))
    for number, (case, place, value) in enumerate(PLACES)
}
"""Edits of an honest statement that its figures betray: nobody needs a signature to see them."""


@pytest.mark.parametrize("name", sampled(EDITS))
def test_an_edit_that_the_events_betray_is_refused(name: str, tmp_path: Path) -> None:
    case, edit = EDITS[name]
    path = written(case, tmp_path / "run")
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))
    assert not passed(path)


def test_other_labels_are_refused(tmp_path: Path) -> None:
    path = written(GAUSSIAN, tmp_path / "run")
    path.with_name("labels.npz").write_bytes(b"others")
    assert not passed(path)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Private keys of the owner and of a stranger."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    folder = tmp_path_factory.mktemp("keys")
    for name in ("owner", "stranger"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]
        subprocess.run([*words, str(folder / name)], check=True, capture_output=True)
    return folder / "owner", folder / "stranger"


def public(key: Path) -> Path:
    return key.with_suffix(".pub")


LIES: dict[str, Case] = {
    "sigma raised throughout": Case(((gauss(80), 60), (gauss(50), 40))),
    "a release never named": Case((GAUSSIAN.releases[1],)),
    "fewer queries throughout": Case(((gauss(40), 10), (gauss(50), 40))),
    "delta changed throughout": replace(GAUSSIAN, delta=1e-5),
    "unit changed throughout": replace(GAUSSIAN, unit=PERSON),
    "other labels throughout": replace(GAUSSIAN, labels=b"others"),
    "teachers halved throughout": GAUSSIAN,
    "seeded noise denied": GAUSSIAN,
}
"""Statements that follow from the events that they list, in place of the true ones."""
TRUTHS = {
    "seeded noise denied": replace(GAUSSIAN, seeded=True),
    "teachers halved throughout": replace(GAUSSIAN, teachers=2),
}


@pytest.mark.parametrize("name", sampled(LIES))
def test_a_lie_throughout_is_found_out_by_its_signature_alone(
    name: str, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    owner, stranger = keys
    true = written(TRUTHS.get(name, GAUSSIAN), tmp_path / "true")
    _sign(true, owner)
    lie = written(LIES[name], tmp_path / "lie")
    assert passed(lie)  # what the page says of statements without a signature
    assert not passed(lie, public(owner))
    for file in SIGNED:
        shutil.copy(true.with_name(file.name), lie.parent)
    assert not passed(lie, public(owner))
    _sign(lie, stranger)
    assert not passed(lie, public(owner)) and passed(lie, public(stranger))


def change(*place: str, value: Any) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        content = json.loads(path.read_text())
        put(" ".join(place), value)(content)
        path.write_text(json.dumps(content))

    return edit


def change_weights(path: Path) -> None:
    (path.parent / "student" / "model" / "model.safetensors").write_bytes(b"others")


change_words = change(R, "neighbors", value="nobody is protected")


def change_digests(path: Path) -> None:
    """Sign what was changed by another's hand: the digests fit, the signature does not."""
    change_words(path)
    file = path.with_name(SIGNED[0].name)
    content = json.loads(file.read_text())
    for each in content["subject"]:
        each["digest"]["sha256"] = sha256((path.parent / each["name"]).read_bytes()).hexdigest()
    file.write_text(json.dumps(content))


def remove(*names: str) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        for name in names:
            (path.parent / name).unlink()

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        change_weights,
        change_words,
        change("reach 0", REPLACED, value=0.1),
        change_digests,
        remove("labels.npz"),
        remove(SIGNED[0].name),
        remove(SIGNED[1].name),
    ],
)
def test_a_change_after_the_signature_is_refused(
    edit: Callable[[Path], None], keys: tuple[Path, Path], tmp_path: Path
) -> None:
    path = written(GAUSSIAN, tmp_path / "run")
    _sign(path, keys[0])
    assert passed(path, public(keys[0])) and not passed(path, public(keys[1]))
    edit(path)
    assert not passed(path, public(keys[0]))


@pytest.mark.parametrize("name", ["privacy.json", "labels.npz"])
def test_a_signature_of_other_files_is_none(
    name: str, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    path = written(GAUSSIAN, tmp_path / "run")
    _sign(path, keys[0])
    file, signature = (path.with_name(each.name) for each in SIGNED)
    content = json.loads(file.read_text())
    content["subject"] = [each for each in content["subject"] if each["name"] != name]
    file.write_text(json.dumps(content))
    signature.unlink()
    words = ["ssh-keygen", "-q", "-Y", "sign", "-n", "pate", "-f", str(keys[0]), str(file)]
    subprocess.run(words, check=True, capture_output=True)
    assert not passed(path, public(keys[0]))


def test_the_owner_cannot_sign_half_of_an_epsilon(keys: tuple[Path, Path], tmp_path: Path) -> None:
    path = written(GAUSSIAN, tmp_path / "run")
    content = json.loads(path.read_text())
    put(f"{R} epsilon", halved)(content)
    path.write_text(json.dumps(content))
    _sign(path, keys[0])
    assert not passed(path, public(keys[0]))


def test_the_command_signs_what_it_has_verified(
    keys: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label(
        made_votes(),
        LabelSettings(NoisyVotes(sigma_votes=30.0), num_queries=9, delta=1e-6),
        run=tmp_path,
    )
    path = tmp_path / "public" / "privacy.json"
    assert cli.main(["verify", str(path), "--sign", str(keys[0])]) == 0
    assert "signed by" in capsys.readouterr().out
    assert passed(path, public(keys[0])) and check_run(tmp_path).problems == ()
    done = checked(path, public(keys[0]))
    assert done.stdout.splitlines()[-1] == "signed: labels.npz, privacy.json, privacy.txt"
    assert cli.main(["verify", str(path), "--sign", str(tmp_path / "no key")]) == 2
    error = capsys.readouterr().err
    assert "a signature by" in error and len(error.splitlines()) == 1
    path.write_text(path.read_text().replace('"num_queries": 9', '"num_queries": 8'))
    before = path.with_name(SIGNED[1].name).read_bytes()
    assert cli.main(["verify", str(path), "--sign", str(keys[1])]) == 2
    assert path.with_name(SIGNED[1].name).read_bytes() == before


def test_a_kind_that_the_script_does_not_know_is_never_passed(tmp_path: Path) -> None:
    aggregator = StableTopK(scale_gap=39.0, sigma_test=60.0, delta_test=1e-9)
    path = written(aggregated(aggregator), tmp_path / "run")
    done = checked(path)
    assert done.returncode == 1 and done.stderr.startswith("refused: expected a known event")
    assert len(done.stderr.splitlines()) == 1 and not done.stdout


def test_the_script_needs_the_standard_library_alone_and_is_short() -> None:
    text = (ROOT / "scripts" / "verify.py").read_text()
    assert len(text.splitlines()) < 150
    names = re.findall(r"^(?:from|import) (\w+)", text, flags=re.MULTILINE)
    assert names and set(names) <= sys.stdlib_module_names


def lower(*parts: tuple[str, float, int], delta: float) -> float:
    """Return the lower end of the script for basic events (kind, parameter, number)."""
    figure = {"epsilon": math.inf, "delta": delta, "delta0": 0.0}
    charges = []
    for kind, x, n in parts:
        event = {"type": kind, verify.FIELDS[kind]: x, "neighboring_relation": REPLACED}
        charges.append({"events": {REPLACED: event}, "count": n})
    with pytest.raises(ValueError, match=r"epsilon in \S+ \.\. ") as refused:
        verify.follow(figure, charges, REPLACED, 1)
    return float(str(refused.value).split()[3])


def exact(laws: list[tuple[FloatArray, FloatArray]], delta: float) -> float:
    """Return the epsilon of a product of two-outcome laws, by all of their outcomes."""
    p = q = np.ones(1)
    for one, other in laws:
        p, q = np.outer(p, one).ravel(), np.outer(q, other).ravel()
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        reached = np.maximum(p - math.exp(middle) * q, 0).sum()
        low, high = (low, middle) if reached <= delta else (middle, high)
    return high


def bit(p: float, q: float) -> tuple[FloatArray, FloatArray]:
    return np.array([p, 1 - p]), np.array([q, 1 - q])


def randomized(loss: float) -> tuple[FloatArray, FloatArray]:
    return bit(1 / (1 + math.exp(-loss)), 1 / (1 + math.exp(loss)))


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.1])
def test_the_lower_end_is_the_epsilon_of_pure_releases(delta: float) -> None:
    """Randomized response is the worst of them, so that this is exact, and so of two kinds at once."""
    rounds = [randomized(0.4)] * 9
    assert lower(("PureDPEvent", 0.4, 9), delta=delta) == pytest.approx(
        exact(rounds, delta), rel=3e-6
    )
    two = exact([*rounds, *[randomized(0.3)] * 5], delta)
    reached = lower(("PureDPEvent", 0.4, 9), ("PureDPEvent", 0.3, 5), delta=delta)
    assert 0.99 * two <= reached <= two * (1 + 1e-6)


@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_the_lower_end_is_the_epsilon_of_the_worst_single_bit(delta: float) -> None:
    """For one threshold, and one choice, all laws are tried."""
    x = np.linspace(-9, 9, 20_001)

    def worst(p: FloatArray, q: FloatArray) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.nanmax(np.log((p - delta) / q)))

    reached = lower(("GaussianThresholdEvent", 2.0, 1), delta=delta)
    of_all = worst(norm.cdf(x + 0.25), norm.cdf(x - 0.25))
    assert 0.97 * of_all <= reached <= of_all * (1 + 1e-6)
    reached = lower(("BoundedRangeEvent", 1.0, 1), delta=delta)
    of_all = worst(1 / (1 + np.exp(-x - 0.5)), 1 / (1 + np.exp(-x + 0.5)))
    assert 0.97 * of_all <= reached <= of_all * (1 + 1e-6)


@pytest.mark.parametrize("mu", [0.01, 0.5, 4.0])
def test_both_ends_are_the_epsilon_of_gaussian_noise(mu: float) -> None:
    assert lower(("GaussianEvent", 10 / mu, 100), delta=1e-6) == pytest.approx(
        gaussian_epsilon(1e-6, mu), rel=3e-6
    )


@pytest.mark.slow
def test_the_lower_end_is_never_above_a_proven_epsilon() -> None:
    """On random ledgers of all kinds it is below the package's, which no adversary exceeds."""
    generator = np.random.default_rng(0)
    kinds: list[tuple[Any, tuple[float, float]]] = [
        *((GaussianEvent, (5, 80)), (GaussianThresholdEvent, (2, 80))),
        *((BoundedRangeEvent, (0.01, 0.6)), (PureDPEvent, (0.01, 0.4))),
    ]
    for _ in range(60):
        parts, accountant = [], RDPAccountant(relation=REPLACE, in_order=True)
        number = generator.integers(1, 4)
        for i in generator.choice(len(kinds), size=number, replace=False).tolist():
            kind, ends = kinds[i]
            x, n = math.exp(generator.uniform(*np.log(ends))), int(generator.integers(1, 60))
            parts.append((kind.__name__, x, n))
            field = {verify.FIELDS[kind.__name__]: x}
            accountant.compose(kind(neighboring_relation=REPLACE, **field), n)
        delta = float(10 ** generator.uniform(-9, -2))
        assert lower(*parts, delta=delta) <= accountant.get_epsilon(delta=delta) * (1 + 1e-6), (
            parts,
            delta,
        )


def test_the_schema_has_all_statements_and_no_other(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    with (files("pate") / "_core/accounting/statement.schema.json").open() as file:
        schema = json.load(file)
    assert schema["$id"] == SCHEMA
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    names = "mixed", "a budget of 3", "groups", "unknown teachers", "fewer paid"
    for number, case in enumerate((GAUSSIAN, *(HONEST[name] for name in names))):
        content = json.loads(written(case, tmp_path / str(number)).read_text())
        validator.validate(content)
    for key in COMMON_KEYS:
        assert not validator.is_valid({name: part for name, part in content.items() if name != key})
    wrong = (
        *(put("format", 1), put("delta", 2), put("extra", 1), put("releases", [])),
        put(f"{R} epsilon", "1"),
    )
    for edit in wrong:
        other = deepcopy(content)
        edit(other)
        assert not validator.is_valid(other)


@pytest.mark.parametrize("version", [1, 3, "2", None])
def test_another_version_is_refused_in_one_line(version: object, tmp_path: Path) -> None:
    content = json.loads(written(GAUSSIAN, tmp_path / "run").read_text()) | {"format": version}
    with pytest.raises(
        ValueError, match=rf"^Expected format 2 in a statement, [^\n]* got format={version!r}$"
    ):
        Statement.from_json(content)
