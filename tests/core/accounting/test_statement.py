"""The statement: enough to compute epsilon by hand, in both of its forms."""

import json
import math
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath as mp
import pytest
from scipy.special import ndtr

from pate import VoteShape, cli
from pate._core.accounting.accountant import RenyiAccountant
from pate._core.accounting.charges import account
from pate._core.accounting.cost import format_epsilon
from pate._core.accounting.history import EACH
from pate._core.accounting.statement import AUDIT, AUDITED, WORLD
from pate.accounting import (
    DEFAULT_ORDERS,
    BoundedRangeEvent,
    Budget,
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    GaussianNoisyMaxEvent,
    Ledger,
    NeighboringRelation,
    PartiesEvent,
    PrivacyUnit,
    PureDPEvent,
    StabilityTestEvent,
    Statement,
    gaussian_epsilon,
    read_ledger,
)
from pate.aggregators import ConfidentScreen, Peeling
from tests.core.accounting.ledgers import REPLACE, bodies, forge, reserve
from tests.statements import COMMON_KEYS, PUBLISHED, edits

SIGMA, SCALE, DELTA_TEST, TEACHERS = 25.0, 30.0, 1e-9, 100


def stable(relation: NeighboringRelation, num_teachers: int = TEACHERS) -> Event:
    return ComposedEvent(
        events=(
            BoundedRangeEvent(eta=2 * relation.score_range / SCALE, neighboring_relation=relation),
            StabilityTestEvent(
                sigma=SIGMA,
                delta_test=DELTA_TEST,
                shift=2,
                num_teachers=num_teachers,
                neighboring_relation=relation,
            ),
        )
    )


EVENTS = {relation: stable(relation) for relation in NeighboringRelation}
GAUSSIAN = {
    relation: GaussianEvent(noise_multiplier=40.0, neighboring_relation=relation)
    for relation in EVENTS
}


def voters(unit: str) -> PrivacyUnit:
    """Return the unit of releases for which each unit votes for itself."""
    return PrivacyUnit(unit=unit, partition=EACH)


def released(
    book: Ledger, events: Mapping[NeighboringRelation, Event], count: int, **changes: Any
) -> int:
    """Reserve a release with its facts, which ``changes`` may change, and settle it as it was
    reserved."""
    named_options = {"realised", "budget", "seeded"} & set(changes)
    named = {name: changes.pop(name) for name in named_options}
    realised = named.pop("realised", None)
    published = PUBLISHED | changes
    options = {"seeded": False, "privacy_unit": voters(published["unit"]), **named}
    release = book.reserve(
        events,
        count=count,
        run="one",
        description="StableTopK",
        delta=published["delta"],
        **options,
    )
    book.settle(release, realised=realised, published=published)
    return release


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger(tmp_path / "ledger.sqlite")
    released(book, EVENTS, 50)
    reserve(book, GAUSSIAN, 7)
    return book


def statement(ledger: Ledger, release: int = 1) -> Statement:
    made = Statement.of(ledger.snapshot(), release)
    again = Statement.from_json(json.dumps(made.content, allow_nan=False))
    assert again == made
    return again


def by_hand(statement: Statement, relation: NeighboringRelation) -> float:
    """Epsilon from ``releases`` in the JSON alone, at the order it names, by plain definitions."""
    guarantee = statement["guarantees"][relation.value]
    a, rdp, survival = guarantee["order"], 0.0, 1.0
    for release in statement["releases"]:
        event, count = release["events"][relation.value], release["count"]
        for part in event.get("events", [event]):
            if part["type"] == "FailureEvent":
                survival *= (1 - part["delta"]) ** count
                continue
            vector = a / 2 / part["noise_multiplier"] ** 2
            m = part.get("num_candidates")
            rdp += (
                count * min(vector + math.log(m) / (a - 1), vector * m / 4) if m else count * vector
            )
    d = (guarantee["delta"] - (1 - survival)) / survival
    return rdp + math.log(1 - 1 / a) - (math.log(d) + math.log(a)) / (a - 1)


def test_epsilon_follows_from_the_json_and_from_the_text_by_hand(tmp_path: Path) -> None:
    def largest(relation: NeighboringRelation) -> Event:
        noise = GaussianNoisyMaxEvent(
            noise_multiplier=9.0, num_candidates=1000, neighboring_relation=relation
        )
        failure = FailureEvent(delta=1e-9, neighboring_relation=relation)
        return ComposedEvent(events=(noise, failure))

    ledger = Ledger(tmp_path / "ledger.sqlite")
    released(ledger, {relation: largest(relation) for relation in NeighboringRelation}, 50)
    released(ledger, GAUSSIAN, 7)
    made = statement(ledger)
    for relation in NeighboringRelation:
        epsilon = made["guarantees"][relation.value]["epsilon"]
        assert by_hand(made, relation) == pytest.approx(epsilon, rel=1e-9)
    text = made.text
    order = float(re.search(r"Renyi order a = (\S+):", text)[1])  # type: ignore[index]
    lines = re.findall(r"^ +(\d+) x \w+\(.*\): rdp = (\S+), delta0 = (\S+) each$", text, re.M)
    rdp = sum(int(count) * float(once) for count, once, _ in lines)
    survival = math.prod((1 - float(delta0)) ** int(count) for count, _, delta0 in lines)
    d = (1e-6 - (1 - survival)) / survival
    epsilon = rdp + math.log(1 - 1 / order) - (math.log(d) + math.log(order)) / (order - 1)
    assert len(lines) == 3 and "GaussianEvent(noise_multiplier=40.0)" in text
    assert f"all releases of these data {format_epsilon(epsilon)}:" in text


@pytest.fixture(scope="module")
def stated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A ledger with a budget and three releases, of which one was settled for less, and the
    statement of the second."""
    book = Ledger(tmp_path_factory.mktemp("stated") / "ledger.sqlite")
    released(book, EVENTS, 50)
    budget = Budget(max_epsilon=20.0, delta=1e-6, neighboring_relation=REPLACE)
    released(book, GAUSSIAN, 7, budget=budget, realised=[(GAUSSIAN, 3)])
    reserve(book, GAUSSIAN, 2)
    return book.path, statement(book, 2).content


KEYS = [
    *COMMON_KEYS,
    *("num_teachers", "num_labels", "aggregator", "versions", "sha256", "num_answered"),
]


@pytest.mark.parametrize(
    "key",
    [pytest.param(key, marks=[pytest.mark.slow] if i % 3 else []) for i, key in enumerate(KEYS)],
)
def test_an_edit_is_noticed(stated: tuple[Path, dict[str, Any]], key: str) -> None:
    ledger, content = stated
    _, edited = next(edits(content[key]))
    assert not verifies(content | {key: edited}, ledger)


def test_all_keys_are_edited(stated: tuple[Path, dict[str, Any]]) -> None:
    ledger, content = stated
    assert set(content) == set(KEYS)
    assert verifies(content, ledger) and verifies(content, None)
    assert not verifies(content | {"epsilon": 0.1}, ledger)


@pytest.mark.slow
def test_every_edit_is_noticed(stated: tuple[Path, dict[str, Any]]) -> None:
    """Each value changed, each key left out, and a key that nobody knows put anywhere."""
    ledger, content = stated
    assert [place for place, edited in edits(content) if verifies(edited, ledger)] == []
    assert len(list(edits(content))) > 300


def verifies(content: dict[str, Any], ledger: Path | None) -> bool:
    try:
        Statement.from_json(content).verify(ledger=ledger)
    except ValueError as error:
        return re.fullmatch(r"Expected [^\n]*", str(error)) is None
    return True


INCOHERENT: dict[str, Any] = {
    "fewer rows than releases": lambda made: made["ledger"].update(rows=1),
    "settled for more": lambda made: made["releases"][0].update(
        realised=[{"events": made["releases"][0]["events"], "count": 51}]
    ),
    "a budget without a filter": lambda made: made.update(filter=None),
    "a budget for other units": lambda made: made.update(budget_unit={"unit": "patient"}),
    "a unit that is no text": lambda made: made["releases"][0].update(privacy_unit={"unit": []}),
    "releases beyond the budget": lambda made: made["releases"][0].update(count=10**6),
    "another number": lambda made: made["releases"][0].update(release=3),
    "not settled": lambda made: made["releases"][1].update(published=None),
}


@pytest.mark.parametrize("change", INCOHERENT)
def test_releases_that_no_ledger_could_hold_are_refused(
    stated: tuple[Path, dict[str, Any]], change: str
) -> None:
    content = json.loads(json.dumps(stated[1]))
    INCOHERENT[change](content)
    assert not verifies(content, None)


@pytest.mark.parametrize("teachers", [1, 5])
def test_units_that_reach_more_teachers(tmp_path: Path, teachers: int) -> None:
    """Figures are for as many as are declared, by events with wider windows; 1, 2 and 3 are shown
    always."""
    ledger = Ledger(tmp_path / "ledger.sqlite", max_teachers_per_unit=teachers)
    released(ledger, EVENTS, 5, max_teachers_per_unit=teachers, unit="patient")
    released(ledger, GAUSSIAN, 7, max_teachers_per_unit=teachers, unit="patient")
    made = statement(ledger)
    made.verify(ledger=ledger.path)
    wider = {relation: event.for_group_size(teachers) for relation, event in EVENTS.items()}
    for relation in NeighboringRelation:
        once = account([(wider, 5)], relation).get_epsilon(delta=1e-6)
        assert made["this_release"][relation.value]["epsilon"] == pytest.approx(once, rel=1e-12)
        total = made["guarantees"][relation.value]["epsilon"]
        rows = {row["teachers"]: row[relation.value] for row in made["reach"]}
        assert set(rows) == {1, teachers} and rows[teachers] == pytest.approx(total, rel=1e-12)
        assert (rows[teachers] > rows[1]) == (teachers > 1)
    table = f"    {teachers} " in made.text and "if a patient reaches m teachers:" in made.text
    assert ("which reaches" in made.text) == table == (teachers > 1)


def test_a_release_of_several_parties_has_two_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against those who know some of the noise, which is the guarantee, and to the world, next to
    other releases."""
    ledger = Ledger(tmp_path / "ledger.sqlite", max_teachers_per_unit=2)

    def wider(event: Event) -> Event:
        assert isinstance(event, GaussianEvent)
        return replace(event, noise_multiplier=1.5 * event.noise_multiplier)

    shared = {
        each: PartiesEvent(parties=event, world=wider(event)) for each, event in GAUSSIAN.items()
    }
    released(ledger, GAUSSIAN, 7, max_teachers_per_unit=2)
    assert "world" not in statement(ledger).content and "the world" not in statement(ledger).text
    released(ledger, shared, 50, max_teachers_per_unit=2)
    made = statement(ledger, 2)
    made.verify(ledger=ledger.path)
    for relation in NeighboringRelation:
        parties, world = (
            account([(seen, 50), (GAUSSIAN, 7)], relation)
            for seen in (GAUSSIAN, {each: wider(event) for each, event in GAUSSIAN.items()})
        )
        mu = [
            2 * math.sqrt(float(total.rdp[0] * 2 / DEFAULT_ORDERS[0])) for total in (parties, world)
        ]
        stated = [made[part][relation.value]["epsilon"] for part in ("guarantees", "world")]
        assert stated == pytest.approx([gaussian_epsilon(1e-6, each) for each in mu], rel=1e-6)
        assert stated[0] > stated[1]
    assert re.search(rf"{WORLD} it is [\d.]+ under", made.text)
    forged = Statement(made.content | {"world": made.content["guarantees"]})
    with pytest.raises(ValueError, match=r"^Expected .*world"):
        forged.verify()
    assert cli.main(["ledger", "show", str(ledger.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = next(number for number, line in enumerate(lines) if line.endswith(f"{WORLD} it is"))
    assert (
        "under REPLACE_RECORD" in lines[place + 1] and lines[place + 1] != f"    {lines[place - 2]}"
    )


def test_what_no_event_knows_is_unbounded(tmp_path: Path) -> None:
    """A failure without a tail: nothing is claimed for two teachers."""
    parts = {
        each: ComposedEvent(
            events=(GAUSSIAN[each], FailureEvent(delta=1e-9, neighboring_relation=each))
        )
        for each in NeighboringRelation
    }
    ledger = Ledger(tmp_path / "ledger.sqlite", max_teachers_per_unit=2)
    released(ledger, parts, 5, max_teachers_per_unit=2)
    made = statement(ledger)
    assert [row["replace_record"] is None for row in made["reach"]] == [False, True]
    assert "unbounded" in made.text
    made.verify(ledger=ledger.path)


def test_a_statement_is_on_the_whole_ledger(ledger: Ledger, tmp_path: Path) -> None:
    first = statement(ledger)
    older = tmp_path / "older.sqlite"
    shutil.copy(ledger.path, older)
    reserve(ledger, GAUSSIAN, 1)
    assert first.verify(ledger=ledger.path) == 1
    latest = statement(ledger)
    assert latest.verify(ledger=ledger.path) == 0 and len(latest["releases"]) == 3
    # a ledger that was put back to an older copy
    with pytest.raises(ValueError, match="it may be an older copy"):
        latest.verify(ledger=older)
    # or made anew with the same releases
    other = Ledger(tmp_path / "other.sqlite")
    for entry in ledger.entries():
        reserve(other, entry.events, entry.count)
    with pytest.raises(ValueError, match="it may be an older copy"):
        latest.verify(ledger=other.path)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of 240 releases: three of a kind, and one that was reserved, over and over."""
    folder, rows = tmp_path_factory.mktemp("many"), list[dict[str, Any]]()
    book = Ledger(folder / "few")
    released(book, EVENTS, 1)
    reserve(book, GAUSSIAN, 7)
    first, settled, second = bodies(book.path)
    for number in range(1, 241):
        again = settled | {"release": number}
        rows += [second] if number % 4 == 0 else [first, again]
    return forge(folder / "many", rows)


def test_many_releases_are_stated_by_kind_in_their_order(many: Path) -> None:
    made = Statement.of(read_ledger(many), 3)
    assert [each["release"] for each in made["releases"]] == [3, *range(221, 241)]
    assert len(made["kinds"]) == 2 and made["order"] == " ".join(["0x3 1x1"] * 60)
    for relation in NeighboringRelation:
        total = account([(EVENTS, 180), (GAUSSIAN, 7 * 60)], relation, in_order=False)
        epsilon = total.get_epsilon(delta=made["delta"])
        assert made["guarantees"][relation.value]["epsilon"] == pytest.approx(epsilon, rel=1e-12)
    assert made.verify(ledger=many) == Statement.from_json(json.dumps(made.content)).verify() == 0
    assert "holds 240 release(s) of 600 queries in all" in made.text
    assert "    420 of them were reserved by runs that were broken off" in made.text
    assert len(made.text.splitlines()) <= 200


@pytest.mark.parametrize(
    "edit",
    [
        lambda made: made["kinds"][1].update(count=6),
        lambda made: made["kinds"].append(made["kinds"][0]),
        lambda made: made.update(order="1x1 0x3" + made["order"][7:]),
        lambda made: made.update(order=made["order"].removesuffix(" 0x3 1x1")),
        lambda made: made.update(order=made["order"] + " 1x99999999999"),
        lambda made: made.update(order="1x-99999999999 1x99999999999"),
        lambda made: made.update(order=made["order"].replace("0x", "-2x")),
        lambda made: made.update(order=["0x3"]),
        lambda made: made["releases"].pop(),
        lambda made: made["releases"][0].update(count=2),
        lambda made: made["releases"].append(made["releases"][0]),
        lambda made: made.pop("kinds"),
    ],
)
def test_an_edited_statement_on_many_releases_is_refused(many: Path, edit: Any) -> None:
    content = json.loads(json.dumps(Statement.of(read_ledger(many), 3).content))
    edit(content)
    with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
        Statement(content).verify()


def test_what_was_reserved_is_the_guarantee_and_what_was_settled_a_cost(ledger: Ledger) -> None:
    before = statement(ledger)
    ledger.settle(2, realised=[(GAUSSIAN, 3)])
    after = statement(ledger)
    assert after["guarantees"] == before["guarantees"] and before["costs"][
        "replace_record"
    ].items() <= (before["guarantees"]["replace_record"].items())
    paid = account([(EVENTS, 50), (GAUSSIAN, 3)], REPLACE).get_epsilon(delta=1e-6)
    assert (
        after["costs"]["replace_record"]["epsilon"]
        == paid
        < after["guarantees"]["replace_record"]["epsilon"]
    )
    text = after.text
    reserved = format_epsilon(after["guarantees"]["replace_record"]["epsilon"])
    assert (
        f"REPLACE_RECORD: this release {format_epsilon(after['this_release']['replace_record']['epsilon'])};"
        in text
    )
    assert f"all releases of these data {reserved}:" in text
    assert "3 x GaussianEvent" not in text and "7 x GaussianEvent" in text
    assert (
        "No budget keeps this: it holds if no release decided the number, kinds or costs of later ones"
        in text
    )
    after.verify(ledger=ledger.path)


def test_no_epsilon_chosen_after_the_draw_is_printed_as_a_guarantee(tmp_path: Path) -> None:
    """What a refused query cost is far below what an attacker learns from whether it was
    refused."""
    aggregator = ConfidentScreen(
        answers=Peeling(k=1, scale_peel=1.0), sigma_confident=20.0, threshold_confident=0.0
    )
    shape = VoteShape(40, 2)
    events = aggregator.events(shape)
    refused = aggregator.events(shape, tier=0)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    released(ledger, events, 1, delta=1e-5, realised=[(refused, 1)])
    made = statement(ledger)
    promised = made["guarantees"]["replace_record"]["epsilon"]
    assert promised == account([(events, 1)], REPLACE).get_epsilon(delta=1e-5) > 1.5
    assert made["costs"]["replace_record"]["epsilon"] < 0.3
    # the exact delta at what the refusal cost, where the votes are nearly a tie: 15%, not 1e-5
    p, q = choices(aggregator, [21, 20]), choices(aggregator, [20, 21])
    at_cost = math.exp(made["costs"]["replace_record"]["epsilon"])
    assert sum(max(0.0, p[each] - at_cost * q[each]) for each in p) > 0.1
    at_promise = math.exp(promised)
    assert sum(max(0.0, p[each] - at_promise * q[each]) for each in p) <= 1e-5


def choices(aggregator: ConfidentScreen, counts: list[int]) -> dict[str, float]:
    """Law of what one query releases: nothing, or one of two labels."""
    asked = float(ndtr(sum(abs(count - 20) for count in counts) / 2 / aggregator.sigma_confident))
    first = 1 / (1 + math.exp(counts[1] - counts[0]))
    return {"refused": 1 - asked, "first": asked * first, "second": asked * (1 - first)}


def test_the_budget_is_the_guarantee(tmp_path: Path) -> None:
    for events, kind in ((EVENTS, "RenyiFilter"), (GAUSSIAN, "GaussianFilter")):
        ledger = Ledger(tmp_path / f"{kind}.sqlite")
        budget = Budget(max_epsilon=4.0, delta=1e-6, neighboring_relation=REPLACE)
        released(ledger, events, 5, delta=1e-5, budget=budget)
        made = statement(ledger)
        guarantee = made["guarantees"]["replace_record"]
        assert (guarantee["epsilon"], guarantee["delta"], guarantee["fixed_by"]) == (
            4.0,
            1e-6,
            "budget",
        )
        assert made["guarantees"]["add_remove_teacher"]["fixed_by"] == "reservation"
        assert made["costs"]["replace_record"]["epsilon"] < 4.0
        text = made.text
        assert text.startswith("epsilon = 4.000 at delta = 1e-06 under REPLACE_RECORD:")
        assert "no release is made beyond it" in text and f"is kept by {kind}" in text
        made.verify(ledger=ledger.path)
        (bound,) = {"max_rdp", "max_mu_squared"} & set(made["filter"])
        for change in ({"max_delta0": 1e-6}, {bound: 1e6}):
            with pytest.raises(ValueError, match=r"^Expected max_[^\n]*$"):
                Statement.from_json(made.content | {"filter": made["filter"] | change}).verify()


def test_gaussian_releases_are_stated_by_their_exact_trade_off(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    released(ledger, GAUSSIAN, 600)
    made = statement(ledger)
    guarantee = made["guarantees"]["replace_record"]
    mu = guarantee["mu"]
    assert mu == pytest.approx(math.sqrt(600) / 40, rel=1e-9) and "order" not in guarantee
    epsilon = mp.mpf(guarantee["epsilon"])
    with mp.workdps(40):
        delta = mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)
        assert float(delta) == pytest.approx(1e-6, rel=1e-6)
    by_curve = (
        account([(GAUSSIAN, 600)], REPLACE).guarantee(delta=1e-6, by=[RenyiAccountant()]).epsilon
    )
    assert guarantee["epsilon"] < 0.96 * by_curve
    text = made.text
    assert "in Gaussian differential privacy:" in text and "d = Phi(mu/2 - epsilon/mu)" in text
    squares = [
        int(n) * float(each)
        for n, each in re.findall(r"^ +(\d+) x .*: mu\^2 = (\S+),", text, re.MULTILINE)
    ]
    assert math.sqrt(sum(squares)) == pytest.approx(mu, rel=1e-12)
    made.verify(ledger=ledger.path)


def test_many_bits_are_stated_with_all_that_their_figure_needs(tmp_path: Path) -> None:
    """From the text alone, by the formula that it prints."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    # so many that a test can pass half of the time
    query = {relation: stable(relation, num_teachers=400) for relation in EVENTS}
    released(ledger, query, 600)
    made = statement(ledger)
    by_curve = (
        account([(query, 600)], REPLACE).guarantee(delta=1e-6, by=[RenyiAccountant()]).epsilon
    )
    assert made["guarantees"]["replace_record"]["epsilon"] < 0.97 * by_curve
    made.verify(ledger=ledger.path)
    text = made.text
    width = float(re.search(r"among many bits of width w = (\S+) at most:", text)[1])  # type: ignore[index]
    lines = re.findall(r"^ +(\d+) x .*: weight = (\S+), delta0 = (\S+) each$", text, re.MULTILINE)
    total = sum(int(count) * float(weight) for count, weight, _ in lines)
    stated = re.search(
        r"weights t = (\S+) of n = (\d+) bits, mu = (\S+), delta0 = .* = (\S+)$", text, re.MULTILINE
    )
    assert (
        stated is not None
        and float(stated[1]) == pytest.approx(total, rel=1e-12)
        and int(stated[2]) == 1200
    )
    v = total / width - 5
    at_most = min(v, 512) * width
    mu_squared = (
        total + (math.pi / 2 - 1) * min(total, 5 * width) + width * math.log1p(at_most / width)
    )
    mu_squared += (v * width - at_most) / 513
    assert mu_squared == pytest.approx(float(stated[3]) ** 2, rel=1e-9)
    delta0 = float(stated[4])
    d = (1e-6 - delta0) / (1 - delta0) - 2 * 1200 * float(ndtr(math.sqrt(mu_squared + 1) / 2 - 8))
    epsilon = gaussian_epsilon(d, float(stated[3]))
    assert epsilon == pytest.approx(made["guarantees"]["replace_record"]["epsilon"], rel=1e-9)
    other = made.content["guarantees"]["replace_record"] | {"width": width * 2}
    guarantees = made.content["guarantees"] | {"replace_record": other}
    with pytest.raises(ValueError, match=r"^Expected guarantees.replace_record.width="):
        Statement.from_json(made.content | {"guarantees": guarantees}).verify(ledger=ledger.path)


def test_equal_rounds_are_stated_by_their_exact_composition(tmp_path: Path) -> None:
    """From the text alone, by the formula that it prints; beside anything else the sum is
    stated."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    query = {
        relation: PureDPEvent(epsilon=0.05, neighboring_relation=relation)
        for relation in NeighboringRelation
    }
    released(ledger, query, 100)
    made = statement(ledger)
    made.verify(ledger=ledger.path)
    times, once = re.search(
        r"^ +(\d+) x PureDPEvent\(epsilon=(\S+)\): delta0 = 0.0 each$", made.text, re.M
    ).groups()  # type: ignore[union-attr]
    n, e, epsilon = int(times), mp.mpf(once), made["guarantees"]["replace_record"]["epsilon"]
    assert (
        f"sum: n = {n} rounds, delta0" in made.text
        and "Kairouz, Oh & Viswanath (2017), Theorem 3.3" in made.text
    )
    d = sum(
        mp.binomial(n, k)
        * max(0, mp.exp((n - k) * e) - mp.exp(epsilon + k * e))
        / (1 + mp.exp(e)) ** n
        for k in range(n // 2)
    )
    assert float(d) == pytest.approx(made["guarantees"]["replace_record"]["delta"], rel=1e-6)
    reserve(ledger, GAUSSIAN, 1)
    both = statement(ledger)
    assert both["this_release"] == {
        name: {
            key: value
            for key, value in guarantee.items()
            if key not in ("neighbors", "missing", "unit", "fixed_by")
        }
        for name, guarantee in made["guarantees"].items()
    }
    assert (
        "rounds" not in both["guarantees"]["replace_record"]
        and "Theorem 3.3" not in both.text.split("What was")[-1]
    )
    assert both["guarantees"]["replace_record"]["epsilon"] > epsilon


def test_what_is_not_a_release_of_the_ledger_has_no_statement(ledger: Ledger) -> None:
    release: Any
    for release in (0, -1, 3, True, 1.0, "1", None):
        with pytest.raises(
            ValueError, match=r"^Expected a release among the 2 of the ledger, got release="
        ):
            Statement.of(ledger.snapshot(), release)
    stated = statement(ledger)
    assert stated.verify() == stated.verify(ledger=ledger.path) == 0
    assert stated != Statement(stated.content | {"delta": 1e-5}) and stated != stated.content
    kind: Any
    for kind in ("none", ["labels"], 3, None):
        with pytest.raises(ValueError, match=r"^Expected a statement of the kind labels, "):
            Statement.from_json({"kind": kind, "format": 1})


@pytest.mark.parametrize(
    ("seeded", "counts"), [((True, False), "run"), ((False, True), "run"), ((False, False), AUDIT)]
)
def test_nothing_is_private_beside_noise_from_a_seed_or_canaries(
    tmp_path: Path, seeded: tuple[bool, bool], counts: str
) -> None:
    ledger = Ledger(tmp_path / "seeded.sqlite")
    for flag in seeded:
        released(ledger, GAUSSIAN, 1, seeded=flag, ledger=counts)
    assert [statement(ledger, release)["private"] for release in (1, 2)] == [False, False]
    told = (
        AUDITED
        if counts == AUDIT
        else "NOT PRIVATE: the noise of at least one release was drawn from a fixed seed."
    )
    assert statement(ledger).text.startswith(f"{told}\n\n")
    private = Ledger(tmp_path / "private.sqlite")
    released(private, GAUSSIAN, 1, ledger="run")
    assert statement(private)["private"] is True
    # no budget was declared
    assert statement(private).verify() == 0
    assert not verifies(statement(private).content | {"declared_after": 1}, None)
