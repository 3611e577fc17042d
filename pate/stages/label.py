"""The stage `label`: the one place where something PRIVATE becomes public, through a mechanism and a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np

import pate
from pate.accounting.ledger import Ledger
from pate.accounting.relation import NeighboringRelation
from pate.accounting.statement import check_budget, describe, make_statement
from pate.aggregators.base import Aggregator
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
from pate.votes import Votes


def label(
    run: Run,
    aggregator: Aggregator,
    num_queries: int,
    delta: float,
    max_epsilon: float | None = None,
    query_seed: int = 0,
    noise_seed: int | None = None,
) -> None:
    """Label public samples through a private mechanism, and state what all releases from the private data cost.

    The cost is written to the ledger before the noise is drawn. Labelling again is a new release, and adds up.

    Args:
        run: the run's folder.
        aggregator: the mechanism.
        num_queries: how many public samples are labelled.
        delta: the delta of the statement, above what the mechanism's tests cost.
        max_epsilon: refuse, before anything is spent, a release that would take epsilon beyond it (under the
            aggregator's relation, with all earlier releases in the ledger).
        query_seed: seed of the public order in which samples are taken.
        noise_seed: a fixed seed of the noise, for tests and teaching: the result is NOT private. None for noise from
            the operating system's entropy.
    """
    run.require(TEACHERS_VOTE)
    expect_count(1, num_queries=num_queries)
    store = VoteStore(run.root / TEACHERS_VOTE.outputs[0])
    manifest: Any = store.manifest()
    num_teachers, names = manifest["num_teachers"], manifest["label_names"]
    expect(num_queries <= len(manifest["ids"]), f"num_queries <= {len(manifest['ids'])}", num_queries=num_queries)
    if max_epsilon is not None:
        expect(max_epsilon > 0, "max_epsilon > 0", max_epsilon=max_epsilon)
    events = {
        relation: aggregator.event(num_teachers=num_teachers, num_labels=len(names), neighboring_relation=relation)
        for relation in NeighboringRelation
    }
    relation = aggregator.neighboring_relation
    if not run.needs(LABEL, manifest["made_by"]):
        return
    ledger = Ledger(run.ledger_path)
    target = labels_file(run)
    if run.changes(LABEL, manifest["made_by"]) or not target.is_file():
        epsilon = check_budget(ledger.entries(), events, count=num_queries, relation=relation, delta=delta)
        if max_epsilon is not None:
            expect(
                epsilon <= max_epsilon, f"epsilon <= {max_epsilon} with all earlier releases", epsilon=round(epsilon, 4)
            )
    run.begin(LABEL, manifest["made_by"])
    if not target.is_file():
        votes, ids = store.load()
        chosen = np.random.default_rng(query_seed).permutation(len(ids))[:num_queries]
        asked = Votes.from_counts(votes.counts[chosen], num_teachers)
        release = ledger.reserve(
            events,
            count=num_queries,
            run=run.root.name,
            description=type(aggregator).__name__,
            seeded=noise_seed is not None,
        )
        generator = private_generator() if noise_seed is None else seeded_generator(noise_seed, release=release)
        labels, mask = aggregator.aggregate(asked, generator=generator)
        write_arrays(
            target,
            ids=np.array(ids)[chosen],
            labels=labels,
            mask=mask,
            label_names=np.array(names),
            release=np.array(release),
        )
    released = read_labels(run)
    ledger.settle(int(released["release"]))
    statement = make_statement(
        ledger.entries(),
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


def _describe_aggregator(aggregator: Aggregator) -> Mapping[str, Any]:
    cls = type(aggregator)
    return {"class_path": f"{cls.__module__}.{cls.__name__}", "init_args": asdict(aggregator)}
