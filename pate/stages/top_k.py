"""The private top k of a histogram: what is released, what it costs, and where that is written down."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from pate.accounting.budget import Budget
from pate.accounting.calibration import Target, calibrate_scale
from pate.accounting.charges import account
from pate.accounting.figures import epsilon_text, exact_text
from pate.accounting.ledger import Ledger, read_ledger
from pate.accounting.relation import NeighboringRelation
from pate.histogram import Histogram
from pate.mechanisms.base import TopKMechanism
from pate.mechanisms.canonical import CanonicalMechanism
from pate.mechanisms.joint import JointMechanism
from pate.mechanisms.noise import private_generator, seeded_generator
from pate.mechanisms.peeling import GumbelPeeling, PermuteAndFlipPeeling
from pate.mechanisms.success import gap_for_top_k
from pate.runs.files import write_json, write_text
from pate.validation import expect, expect_count, expect_open_unit, expect_positive
from pate.version import __version__

Choice = Literal["peeling", "permute_and_flip", "canonical", "joint"]
Neighbors = Literal["add_remove", "replace"]

_MECHANISMS: Mapping[str, type[TopKMechanism]] = {
    "peeling": GumbelPeeling,
    "permute_and_flip": PermuteAndFlipPeeling,
    "canonical": CanonicalMechanism,
    "joint": JointMechanism,
}
_RELATIONS: Mapping[str, NeighboringRelation] = {
    "add_remove": NeighboringRelation.ADD_REMOVE_TEACHER,
    "replace": NeighboringRelation.REPLACE_RECORD,
}
PROTECTS: Mapping[str, str] = {
    "add_remove": "all that one user contributes is there or not",
    "replace": "all that one user contributes is altered in any way",
}
_LIKELY = 0.9  # the probability for which the gap is told


@dataclass(frozen=True, kw_only=True)
class TopKSettings:
    """What is asked for.

    Args:
        k: how many items are chosen.
        mechanism: peeling or permute_and_flip, k choices of one item; canonical, one choice of a set; joint, one choice
            of a ranking.
        target_epsilon: epsilon of this release at delta, in place of a scale.
        scale: scale of the noise, in the unit of the counts.
        delta: the delta of every epsilon.
        neighbors: whose guarantee comes first: one user more or less (add_remove), or one user with other items
            (replace).
        noise_seed: a seed in place of noise, for tests; such a release is not private.

    Raises:
        ValueError: on numbers out of range, or unless either a target or a scale is given.
    """

    k: int
    mechanism: Choice = "peeling"
    target_epsilon: float | None = None
    scale: float | None = None
    delta: float = 1e-6
    neighbors: Neighbors = "add_remove"
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        expect_count(1, k=self.k)
        expect_open_unit(delta=self.delta)
        for name, kinds in (("mechanism", Choice), ("neighbors", Neighbors)):
            value = getattr(self, name)
            expect(value in get_args(kinds), f"a {name} among {', '.join(get_args(kinds))}", **{name: value})
        one = (self.target_epsilon is None) != (self.scale is None)
        expect(one, "either target_epsilon or scale", target_epsilon=self.target_epsilon, scale=self.scale)
        given = {name: getattr(self, name) for name in ("target_epsilon", "scale") if getattr(self, name) is not None}
        expect_positive(**given)
        if self.noise_seed is not None:
            expect_count(0, noise_seed=self.noise_seed)

    def generator(self, release: int) -> np.random.Generator:
        """Return the noise of a release, numbered from 1; 0 for what is drawn before there is one."""
        if self.noise_seed is None:
            return private_generator()
        return seeded_generator(self.noise_seed, release=release)

    @property
    def relation(self) -> NeighboringRelation:
        """The relation of the guarantee that comes first, a user being what a teacher is in votes."""
        return _RELATIONS[self.neighbors]

    def mechanism_for(self, histogram: Histogram) -> TopKMechanism:
        """Return the mechanism, its noise scaled to the target.

        Raises:
            ValueError: on too few items for k, or a target that no noise meets.
        """
        cls, num_items = _MECHANISMS[self.mechanism], len(histogram.items)
        most = num_items - cls.spare
        expect(self.k <= most, f"k <= {most} for {num_items} items and this mechanism", k=self.k)

        def made(scale: float) -> TopKMechanism:
            return cls(k=self.k, scale=scale, sensitivity=histogram.sensitivity)

        if self.scale is not None:
            return made(self.scale)
        assert self.target_epsilon is not None
        target = Target(
            epsilon=self.target_epsilon, delta=self.delta, num_queries=1, neighboring_relation=self.relation
        )
        return made(calibrate_scale(lambda scale: made(scale).event(self.relation), target))


def release_top_k(
    histogram: Histogram, settings: TopKSettings, *, output: Path, ledger: Path, max_epsilon: float | None = None
) -> dict[str, Any]:
    """Release the top k of a histogram, and return the statement.

    The cost is in the ledger before the noise is drawn: if the program is killed then, it counts in full, and the same
    call is another release.

    Args:
        histogram: the scores.
        settings: what is asked for.
        output: the file that is written, a ``.csv`` or a ``.json``; the statement is beside it, in
            ``<name>.privacy.json`` and ``<name>.privacy.txt``.
        ledger: the ledger of the private data, one for all releases from them; made if it is missing.
        max_epsilon: the limit on all releases of the ledger together, at ``delta`` under the first relation.

    Raises:
        ValueError: before anything is spent, on settings that cannot be met, files that cannot be written or exist
            already, or a budget that does not suffice.
    """
    mechanism = settings.mechanism_for(histogram)
    statement_file = output.with_suffix(".privacy.json")
    expect(output.suffix in (".csv", ".json"), "an output that is a .csv or a .json", output=str(output))
    folder = output.absolute().parent
    expect(folder.is_dir() and os.access(folder, os.W_OK), "a folder that can be written to", output=str(output))
    for path in (output, statement_file):
        expect(not path.exists(), "another output, because every release is paid for", existing=str(path))
    budget = None
    if max_epsilon is not None:
        budget = Budget(max_epsilon=max_epsilon, delta=settings.delta, neighboring_relation=settings.relation)
    book = Ledger(ledger, home=ledger.resolve())
    events = mechanism.events()
    release = book.reserve(
        events,
        count=1,
        run=output.absolute().stem,
        description=type(mechanism).__name__,
        seeded=settings.noise_seed is not None,
        budget=budget,
        delta=settings.delta,
    )
    chosen = mechanism(histogram.scores, generator=settings.generator(release))
    ordered = settings.mechanism != "canonical"
    items = [histogram.items[i] for i in chosen.tolist()]
    head = book.settle(release)
    held = read_ledger(ledger, rows=head.rows)  # whatever others add meanwhile
    statement: dict[str, Any] = {
        "private": not any(entry.seeded for entry in held.entries),
        "neighbors": settings.neighbors,
        "guarantees": {
            name: {
                "neighbors": f"{PROTECTS[name]} ({histogram.bound})",
                "this_release": account([(events, 1)], relation).guarantee(delta=settings.delta).to_dict(),
                "all_releases": account(held.charges(), relation).guarantee(delta=settings.delta).to_dict(),
                "event": events[relation].to_dict(),
            }
            for name, relation in _RELATIONS.items()
        },
        "max_epsilon": max_epsilon,
        "mechanism": {"class": type(mechanism).__name__}
        | {field.name: getattr(mechanism, field.name) for field in fields(mechanism)},
        "num_items": len(histogram.items),
        "ordered": ordered,
        "gap": {
            "counts": gap_for_top_k(mechanism, probability=_LIKELY, num_items=len(histogram.items)),
            "probability": _LIKELY,
        },
        "ledger": head._asdict() | {"name": ledger.name, "releases": len(held.entries)},
        "release": release,
        "versions": {"pate": __version__, "numpy": np.__version__},
    }
    write_json(statement_file, statement)
    write_text(output.with_suffix(".privacy.txt"), described(statement))
    # last, so that no list is anywhere without its statement
    if output.suffix == ".csv":
        write_text(output, _table(items, ordered))
    else:
        write_json(output, {"items": items, "ordered": ordered})
    return statement


def described(statement: Mapping[str, Any]) -> str:
    """Return the statement of a top k as readable text."""
    lines = [] if statement["private"] else ["NOT PRIVATE: the noise of at least one release has a fixed seed.", ""]
    mechanism, releases = statement["mechanism"], statement["ledger"]["releases"]
    parameters = ", ".join(f"{name}={value}" for name, value in mechanism.items() if name != "class")
    form = "in order" if statement["ordered"] else "as a set"
    lines += [f"The top {mechanism['k']} of {statement['num_items']:,} items {form}, by"]
    lines += [f"    {mechanism['class']}({parameters})."]
    first = statement["neighbors"]
    for _, found in sorted(statement["guarantees"].items(), key=lambda each: each[0] != first):
        epsilon, delta = epsilon_text(found["this_release"]["epsilon"], 4), exact_text(found["this_release"]["delta"])
        lines.append(f"epsilon = {epsilon} at delta = {delta} where {found['neighbors']}.")
        if releases > 1:
            together = epsilon_text(found["all_releases"]["epsilon"], 4)
            lines.append(f"    All {releases} releases of the ledger together: epsilon = {together}.")
    if statement["max_epsilon"] is not None:
        lines.append(f"The ledger admits releases up to epsilon = {exact_text(statement['max_epsilon'])} in all.")
    gap = statement["gap"]
    lines.append(
        f"Where the k-th count is {gap['counts']:.4g} ahead of the next one, these are the true top {mechanism['k']}"
        f" with probability {gap['probability']:g} or more."
    )
    lines.append("The list of all items is taken to be public: it must not follow from who the users are.")
    return "\n".join(lines) + "\n"


def _table(items: list[str], ordered: bool) -> str:
    """Return items as lines of a CSV, with their ranks where these were released."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("rank", "item") if ordered else ("item",))
    writer.writerows(enumerate(items, 1) if ordered else ((item,) for item in items))
    return text.getvalue()
