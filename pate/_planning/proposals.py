"""Which aggregators are worth comparing, and what they are called.

Classes of other packages say so themselves where they like, by class methods
``proposals(outlook)``, ``variants(outlook)`` and ``for_target(target, shape, delta_test=,
answered=)`` and a property ``marks``; none of these is part of `Aggregator`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

from pate._planning.gaps import split_noise
from pate._planning.outlook import Outlook
from pate._validation import require
from pate._votes import VoteShape
from pate.accounting._calibration import COARSE_ORDERS, Target
from pate.aggregators import (
    Aggregator,
    Canonical,
    ClippedVotes,
    ConfidentScreen,
    FixedStableTopK,
    InteractiveScreen,
    LimitedDomainTopK,
    NoisyVotes,
    PeeledVotes,
    Powerset,
    Rounds,
    StableMajority,
    StableTopK,
    TauVoting,
    TopStableTopK,
    registered,
)
from pate.aggregators._powerset import MOST_LABELS
from pate.aggregators._top_k import LabelSets

Settings = Mapping[str, Any]

_FIRST = 0.25  # share of the budget of the first of two rounds

_WORDS: Mapping[str, Callable[[Any], str]] = {
    "k": "k={}".format,
    "soft": lambda soft: "soft" if soft else "hard",
    "min_lead": "min_lead={:g}".format,
    "norm": str.upper,
    "around_predictions": lambda _: "around a student",
    "noise_law": lambda law: law.replace("_", "-"),
    "test_law": "{} test".format,
    "loss": "{} loss".format,
    "regularizer": lambda _: "regularized",
    "kbar": "kbar={}".format,
    "fallback": lambda _: "fallback",
    "peel_by_root": lambda _: "by root",
}
"""The word for a public setting that is not the default, in the order of titles."""

_LAWS = ("noise_law", "loss", "test_law", "over")
_SWITCHES = ("fallback", "peel_by_root", "soft")


def _rounds(outlook: Outlook) -> list[Settings]:
    around = ClippedVotes(
        multiplier_clipped=1.0, around_predictions=True, neighboring_relation=outlook.relation
    )
    return [{"rounds": two_rounds(around, outlook).rounds}]


def _tau_voting(outlook: Outlook) -> list[Settings]:
    # three that hardly clip a ballot of k labels, or one that differs from a student in k labels
    half, root = outlook.shape.num_teachers / 2, math.sqrt(outlook.k)
    choices: list[Settings] = [
        {"tau": 1.25 * root},
        {"tau": outlook.k, "norm": "l1"},
        {"tau": root, "around_predictions": True},
    ]
    return [{"threshold_tau": half, **choice} for choice in choices]


def _stable_top_k(outlook: Outlook) -> list[Settings]:
    return [{"delta_test": outlook.delta_test, "noise_law": law} for law in ("gumbel", "gaussian")]


def _fixed_stable_top_k(outlook: Outlook) -> list[Settings]:
    settings = {
        "k": outlook.k,
        "pull": outlook.shape.num_teachers / 20,
        "delta_test_fixed": outlook.delta_test,
    }
    return [{**settings, "fallback": fallback} for fallback in (False, True)]


def _sets(outlook: Outlook, *, spare: int = 0) -> list[Settings]:
    return [{"k": outlook.k}] if outlook.k <= outlook.shape.num_labels - spare else []


def _domain(outlook: Outlook) -> list[Settings]:
    k, most = outlook.k, outlook.shape.num_labels - 1
    return [{"k": k, "kbar": min(2 * k, most)}] if k <= most else []


def _screen(outlook: Outlook, threshold: str, share: float) -> list[Settings]:
    answers = NoisyVotes(sigma_votes=1.0, neighboring_relation=outlook.relation)
    return [{"answers": answers, threshold: outlook.shape.num_teachers / share}]


_PROPOSED: Mapping[type[Aggregator], Callable[[Outlook], Sequence[Settings]]] = {
    Rounds: _rounds,
    NoisyVotes: lambda o: [
        {},
        {"soft": False},
        {"soft": False, "min_lead": o.shape.num_teachers / 10},
    ],
    TauVoting: _tau_voting,
    StableTopK: _stable_top_k,
    StableMajority: lambda o: [{"delta_majority": o.delta_test}],
    FixedStableTopK: _fixed_stable_top_k,
    LabelSets: _sets,
    Canonical: lambda o: _sets(o, spare=1),
    PeeledVotes: _sets,
    LimitedDomainTopK: lambda o: [
        {**domain, "delta_domain": o.delta_test} for domain in _domain(o)
    ],
    TopStableTopK: lambda o: [
        {**domain, "delta_stable": o.delta_test, "fallback": True} for domain in _domain(o)
    ],
    ConfidentScreen: lambda o: _screen(o, "threshold_confident", 3),
    InteractiveScreen: lambda o: _screen(o, "threshold_interactive", 8),
    Powerset: lambda o: [{}] if o.shape.num_labels <= MOST_LABELS else [],
}
"""The settings that a class proposes for an outlook; their tests and thresholds may take half of delta."""


def title(aggregator: Aggregator) -> str:
    """Return the name of a class with what tells its instances apart in brackets: settings, and aggregators within."""
    marks = aggregator.marks if hasattr(aggregator, "marks") else _marks(aggregator)
    named = ", ".join(
        title(mark) if isinstance(mark, Aggregator) else mark for mark in marks if mark
    )
    return type(aggregator).__name__ + (f" ({named})" if named else "")


def proposals(cls: type[Aggregator], outlook: Outlook) -> tuple[Aggregator, ...]:
    """Return the instances of a class worth comparing on the votes that ``outlook`` describes, under its relation.

    By default they are one instance if it needs nothing but noise. Noise that they lack is 1: only
        its proportions
    matter.
    """
    proposed: Sequence[Aggregator]
    propose_settings = next((_PROPOSED[base] for base in cls.__mro__ if base in _PROPOSED), None)
    if hasattr(cls, "proposals"):
        proposed = cls.proposals(outlook)
    elif propose_settings is not None:
        proposed = [
            cls.blank(neighboring_relation=outlook.relation, **settings)
            for settings in propose_settings(outlook)
        ]
    else:
        proposed = [cls.blank()] if set(cls.required) <= set(cls.noise_parameters) else []
    return tuple(_with_unit_noise(aggregator, outlook) for aggregator in proposed)


def propose(outlook: Outlook) -> list[Aggregator]:
    """Return the proposals of all registered aggregators; those that need predictions as the last of two `Rounds`."""
    return [with_first_round(aggregator, outlook) for aggregator in all_proposals(outlook)]


def all_proposals(outlook: Outlook) -> list[Aggregator]:
    """Return the proposals of all registered aggregators as they are, without rounds before those that need them."""
    return [aggregator for cls in registered().values() for aggregator in proposals(cls, outlook)]


def with_first_round(aggregator: Aggregator, outlook: Outlook) -> Aggregator:
    """Return an aggregator as the last of two rounds if it needs predictions, otherwise as it is."""
    return two_rounds(aggregator, outlook) if "predictions" in aggregator.needs else aggregator


def two_rounds(last: Aggregator, outlook: Outlook) -> Rounds:
    """Return two rounds: `ClippedVotes`, then ``last``, which needs predictions.

    Each has twice the noise at which it alone meets epsilon 1 if it is the first, and that noise
    over the root of three quarters if it is the last: of mechanisms that compose as Gaussian ones
    do, the first takes a quarter of any budget. Only the proportions matter.

    Raises:
        ValueError: if no noise of ``last`` meets epsilon 1 at the delta of ``outlook``.
    """
    target, relation = outlook.target(epsilon=1.0), outlook.relation
    start = ClippedVotes(multiplier_clipped=1.0, neighboring_relation=relation)
    first = start.calibrated(target, outlook.shape, orders=COARSE_ORDERS)
    final = last.calibrated(target, outlook.shape, orders=COARSE_ORDERS)
    require(
        final is not None, "a last round whose noise can meet a target", last=type(last).__name__
    )
    assert first is not None
    assert final is not None
    rounds = (first.scaled(_FIRST**-0.5), final.scaled((1 - _FIRST) ** -0.5))
    return Rounds(rounds=rounds, neighboring_relation=relation)


def variants(cls: type[Aggregator], outlook: Outlook) -> Mapping[str, Sequence[Any]]:
    """Return the public settings that give a class another form: all values worth comparing, by field.

    Each value suits any instance of the class on the shape of ``outlook``, and none needs more of
    the votes than the others.
    """
    if hasattr(cls, "variants"):
        values: Mapping[str, Sequence[Any]] = cls.variants(outlook)
        return values
    types, num_labels = get_type_hints(cls), outlook.shape.num_labels
    values = {name: get_args(types[name]) for name in _LAWS if name in types}
    if "allow_empty" in types and num_labels > 1:  # of one label there are no other sets
        values["allow_empty"] = (True, False)
    if issubclass(cls, StableTopK) and outlook.labels_per_sample is not None and num_labels > 1:
        values["kbar"] = (min(2 * outlook.labels_per_sample, num_labels - 1),)
    return values | {name: (False, True) for name in _SWITCHES if name in types}


def forms(aggregator: Aggregator, outlook: Outlook) -> dict[str, Aggregator]:
    """Return an aggregator with one field changed to another of its `variants`, by ``field=value``."""
    changed: dict[str, Aggregator] = {}
    for name, values in variants(type(aggregator), outlook).items():
        for value in values:
            change: dict[str, Any] = {name: value}
            if value != getattr(aggregator, name):
                changed[f"{name}={value}"] = replace(aggregator, **change)
    return changed


def splits_noise(cls: type[Aggregator]) -> bool:
    """Return whether a class splits its noise by the target, rather than scale a proposal by one factor."""
    return issubclass(cls, StableTopK) or hasattr(cls, "for_target")


def for_target(
    cls: type[Aggregator],
    target: Target,
    shape: VoteShape,
    *,
    delta_test: float | None = None,
    answered: float = 0.9,
) -> Aggregator | None:
    """Return the instance of a class that meets a target; None if no noise does.

    `StableTopK`, and classes with a ``for_target`` of their own, split their noise by
    ``delta_test``, what each stability test adds to delta, and ``answered``, the probability with
    which a query is to be answered. Of others it is the first proposal, calibrated.

    Raises:
        ValueError: if the class proposes no settings, or the tests alone cost the target's delta.
    """
    if hasattr(cls, "for_target"):
        chosen: Aggregator | None = cls.for_target(
            target, shape, delta_test=delta_test, answered=answered
        )
        return chosen
    if issubclass(cls, StableTopK):
        return split_noise(cls, target, shape, delta_test=delta_test, answered=answered)
    name = cls.__name__
    require(delta_test is None, f"no delta_test for {name}", delta_test=delta_test)
    proposed = proposals(cls, Outlook.at(target, shape))
    require(
        proposed,
        f"settings of {name}, which proposes none for {shape.num_labels} labels",
        aggregator=name,
    )
    return proposed[0].calibrated(target, shape)


def _marks(aggregator: Aggregator) -> list[str | Aggregator]:
    """Return the names of aggregators within, and of settings that differ from their defaults."""
    values = {field.name: getattr(aggregator, field.name) for field in fields(aggregator)}
    parts = [
        part
        for value in values.values()
        for part in (value if isinstance(value, tuple) else (value,))
    ]
    changed = [field.name for field in fields(aggregator) if values[field.name] != field.default]
    within: list[str | Aggregator] = [part for part in parts if isinstance(part, Aggregator)]
    return within + [word(values[name]) for name, word in _WORDS.items() if name in changed]


def _with_unit_noise(aggregator: Aggregator, outlook: Outlook) -> Aggregator:
    missing = [name for name in aggregator.noise_parameters if name in aggregator.missing]
    settings: dict[str, Any] = dict.fromkeys(missing, 1.0)
    return replace(aggregator, neighboring_relation=outlook.relation, **settings)
