"""The stage `label`: the one place where something PRIVATE becomes public, through a mechanism and a ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pate
from pate.accounting.budget import Budget
from pate.accounting.events import Event
from pate.accounting.ledger import Ledger
from pate.accounting.relation import NeighboringRelation
from pate.accounting.statement import check_budget, describe, make_statement
from pate.aggregators.base import Aggregator, Release
from pate.data.arrays import read_npz
from pate.mechanisms.noise import private_generator, seeded_generator
from pate.runs import (
    LABEL,
    TEACHERS_FIT,
    TEACHERS_VOTE,
    Run,
    labels_file,
    read_labels,
    write_arrays,
    write_json,
    write_text,
)
from pate.teachers.voting import VoteStore
from pate.validation import expect, expect_count
from pate.votes import rows_of


def label(
    run: Run,
    aggregator: Aggregator,
    num_queries: int,
    delta: float,
    max_epsilon: float | None = None,
    query_seed: int = 0,
    noise_seed: int | None = None,
    predictions: Path | None = None,
) -> None:
    """Label public samples through a private mechanism, and state what all releases from the private data cost.

    The cost is written to the ledger before the noise is drawn. Labelling again is a new release, and adds up.

    Args:
        run: the run's folder.
        aggregator: the mechanism.
        num_queries: how many public samples are labelled.
        delta: the delta of the statement, above what the mechanism's tests cost.
        max_epsilon: the budget of the ledger, at this delta and under the aggregator's relation. A release that would
            take all of them together beyond it is refused before anything is spent. The first one given is final.
        query_seed: seed of the public order in which samples are taken.
        noise_seed: a fixed seed of the noise, for tests and teaching: the result is NOT private. None for noise from
            the operating system's entropy.
        predictions: an ``.npz`` with ``ids`` and ``probabilities``, what a student that was trained on an earlier
            release predicts of public samples, for an aggregator that asks for it.
    """
    run.require(TEACHERS_VOTE)
    expect_count(1, num_queries=num_queries)
    store = VoteStore(run.root / TEACHERS_VOTE.outputs[0])
    manifest: Any = store.manifest()
    num_teachers, names = manifest["num_teachers"], manifest["label_names"]
    expect(num_queries <= len(manifest["ids"]), f"num_queries <= {len(manifest['ids'])}", num_queries=num_queries)
    needed = aggregator.needs_predictions
    expect(needed == (predictions is not None), f"predictions {'given' if needed else 'left out'}", given=predictions)
    events = {
        relation: aggregator.event(num_teachers=num_teachers, num_labels=len(names), neighboring_relation=relation)
        for relation in NeighboringRelation
    }
    relation = aggregator.neighboring_relation
    budget = None
    if max_epsilon is not None:
        budget = Budget(max_epsilon=max_epsilon, delta=delta, neighboring_relation=relation)
    if not run.needs(LABEL, manifest["made_by"]):
        return
    ledger = Ledger(run.ledger_path)
    target = labels_file(run)
    if run.changes(LABEL, manifest["made_by"]) or not target.is_file():
        epsilon = check_budget(ledger.entries(), events, count=num_queries, relation=relation, delta=delta)
        if budget is not None:
            within = epsilon <= budget.max_epsilon
            expect(within, f"epsilon <= {max_epsilon} with all earlier releases", epsilon=round(epsilon, 4))
        ids = np.array(manifest["ids"])
        chosen = np.random.default_rng(query_seed).permutation(len(ids))[:num_queries]
        predicted = None if predictions is None else read_predictions(predictions, ids[chosen], names)
        votes, _ = store.load(ballots=aggregator.needs_ballots)
        asked = replace(votes[chosen], predictions=predicted)
        release = ledger.reserve(
            events,
            count=num_queries,
            run=run.root.name,
            description=type(aggregator).__name__,
            seeded=noise_seed is not None,
            budget=budget,
            delta=delta,
        )
        run.begin(LABEL, manifest["made_by"])
        generator = private_generator() if noise_seed is None else seeded_generator(noise_seed, release=release)
        found = aggregator.aggregate(asked, generator=generator)
        write_arrays(
            target,
            ids=ids[chosen],
            label_names=np.array(names),
            release=np.array(release),
            **_arrays(found, num_teachers),
        )
    released = read_labels(run)
    realised = None
    if "steps" in released:
        realised = realised_charges(aggregator, released["steps"], num_teachers=num_teachers, num_labels=len(names))
    ledger.settle(int(released["release"]), realised=realised)
    book = ledger.book()
    statement = make_statement(
        book,
        delta=delta,
        relation=relation,
        unit=_unit(run),
        aggregator=_describe_aggregator(aggregator),
        num_queries=num_queries,
        num_answered=int(released["mask"].any(axis=1).sum()),
        num_teachers=num_teachers,
        num_labels=len(names),
        versions={"pate": pate.__version__} | {name: version(name) for name in ("numpy", "scipy", "torch")},
    )
    write_json(run.public / "privacy.json", statement)
    write_text(run.public / "privacy.txt", describe(statement))
    run.finish(LABEL)


def _unit(run: Run) -> str:
    state = run.state(TEACHERS_FIT)
    assert state is not None
    return str(state["config"].get("unit", "record"))


def read_predictions(path: Path, wanted: NDArray[np.str_], label_names: Sequence[str]) -> NDArray[np.float64]:
    """Return the probabilities ``[Q, C]`` that a student gives to the samples ``wanted`` ``[Q]``.

    Raises ``ValueError`` where the file, a sample or a label is missing.
    """
    arrays = read_npz(path, ("ids", "probabilities", "label_names"))
    found = [str(name) for name in arrays["label_names"]]
    expect(found == list(label_names), f"predictions of {', '.join(label_names)}", label_names=found)
    return np.asarray(arrays["probabilities"][rows_of(wanted, arrays["ids"])], dtype=np.float64)


def realised_charges(
    aggregator: Aggregator, steps: NDArray[np.integer], *, num_teachers: int, num_labels: int
) -> list[tuple[dict[NeighboringRelation, Event], int]]:
    """Return what queries cost that went ``steps`` ``[Q]`` far: events under either relation, and how often."""
    return [
        (
            {
                relation: aggregator.realised_event(
                    step, num_teachers=num_teachers, num_labels=num_labels, neighboring_relation=relation
                )
                for relation in NeighboringRelation
            },
            count,
        )
        for step, count in zip(*(each.tolist() for each in np.unique(steps, return_counts=True)), strict=True)
    ]


def _arrays(release: Release, num_teachers: int) -> dict[str, Any]:
    """Return what is kept of a release; what it has not is left out."""
    arrays: dict[str, Any] = {"labels": release.labels, "mask": release.mask}
    if release.values is not None:
        arrays |= {"values": release.values, "noise_std": release.noise_std, "num_teachers": num_teachers}
    if release.steps is not None:
        arrays["steps"] = release.steps
    return arrays


def _describe_aggregator(aggregator: Aggregator) -> Mapping[str, Any]:
    cls = type(aggregator)
    parameters = {field.name: getattr(aggregator, field.name) for field in fields(aggregator)}
    plain = {
        name: _describe_aggregator(value) if isinstance(value, Aggregator) else value
        for name, value in parameters.items()
    }
    return {"class_path": f"{cls.__module__}.{cls.__name__}", "init_args": plain}
