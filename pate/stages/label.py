"""The stage `label`: the one place where something PRIVATE becomes public, through a mechanism and a ledger."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

import pate
from pate.accounting.budget import Budget
from pate.accounting.ledger import Ledger
from pate.accounting.statement import check_budget, describe, make_statement
from pate.aggregators.base import Aggregator, Release
from pate.data.arrays import read_npz
from pate.mechanisms.noise import private_generator, seeded_generator
from pate.released import read_released, sealing_key, write_released
from pate.runs import LABEL, TEACHERS_FIT, TEACHERS_VOTE, Run, digest, labels_file, replacing, write_json, write_text
from pate.stages.ledger_file import open_ledger
from pate.validation import expect, expect_count
from pate.vote_store import VoteStore
from pate.votes import Panel, Votes, rows_of

_RELEASE = "release"  # in the stage's state and in the statement: the number of the labels that they speak of
_STATEMENT = "statement"  # in the stage's state: the digest of what was stated
_STATEMENT_BYTES = 1 << 20


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
    # labels that could not be sealed would be paid for and lost
    sealing_key(run)
    expect_count(1, num_queries=num_queries)
    expect_count(0, query_seed=query_seed, **({} if noise_seed is None else {"noise_seed": noise_seed}))
    store = VoteStore(run.root / TEACHERS_VOTE.outputs[0])
    manifest: Any = store.manifest()
    num_teachers, names = manifest["num_teachers"], manifest["label_names"]
    expect(num_queries <= len(manifest["ids"]), f"num_queries <= {len(manifest['ids'])}", num_queries=num_queries)
    needed = aggregator.needs_predictions
    expect(needed == (predictions is not None), f"predictions {'given' if needed else 'left out'}", given=predictions)
    chosen = np.random.default_rng(query_seed).permutation(len(manifest["ids"]))[:num_queries]
    # what the labels say of themselves, so that neither statement nor student has to ask elsewhere
    about = {
        "ids": np.array(manifest["ids"])[chosen],
        "label_names": np.array(names),
        "num_teachers": np.array(num_teachers),
        "delta": np.array(delta, dtype=np.float64),
        "aggregator": np.array(json.dumps(aggregator.describe())),
    }
    made_by = manifest["made_by"]
    todo = run.needs(LABEL, made_by)
    redo = run.overwrite and bool(run.changes(LABEL, made_by))
    released = None if redo else _find_labels(run, about)
    if released is None:
        released = _release(
            run,
            aggregator,
            about,
            store,
            chosen,
            made_by=made_by,
            max_epsilon=max_epsilon,
            noise_seed=noise_seed,
            predictions=predictions,
        )
    elif not todo and _is_stated(run):
        return
    _state(run, aggregator, released)
    run.finish(LABEL)


def _find_labels(run: Run, about: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]] | None:
    """Return the labels that this command left before, None where it left none yet.

    Raises ``ValueError`` on any others, unless they are to be overwritten.
    """
    state = run.state(LABEL)
    try:
        if not labels_file(run).is_file() and (state is None or not state["finished"]):
            return None
        released = read_released(run)
        differs = [name for name, value in about.items() if not np.array_equal(released[name], value)]
        known = state is not None and state.get(_RELEASE) == released["release"]
        expect(known and not differs, f"labels in {labels_file(run)} that this command left", others=differs or "all")
    except ValueError as error:
        if run.overwrite:
            return None
        raise ValueError(f"{error}. With --overwrite others are released, and paid for") from None
    return released


def _release(
    run: Run,
    aggregator: Aggregator,
    about: Mapping[str, NDArray[Any]],
    store: VoteStore,
    chosen: NDArray[np.int64],
    *,
    made_by: Mapping[str, Any],
    max_epsilon: float | None,
    noise_seed: int | None,
    predictions: Path | None,
) -> dict[str, NDArray[Any]]:
    """Reserve a release, draw its noise and leave its labels; return what they say.

    Whatever can fail is tried before the reservation. The old statement goes before the old labels, and those before
    the new ones come: nothing ever speaks of labels that are not there.
    """
    panel, count = Panel(int(about["num_teachers"]), len(about["label_names"])), len(chosen)
    delta, relation = float(about["delta"]), aggregator.neighboring_relation
    events = aggregator.events(panel)
    budget = None
    if max_epsilon is not None:
        budget = Budget(max_epsilon=max_epsilon, delta=delta, neighboring_relation=relation)
    predicted = (
        None if predictions is None else read_predictions(predictions, about["ids"], about["label_names"].tolist())
    )
    with ExitStack() as stack:
        ledger = open_ledger(run)
        with _naming_ledger(ledger):
            epsilon = check_budget(ledger.entries(), events, count=count, relation=relation, delta=delta)
            if budget is not None:
                within = epsilon <= budget.max_epsilon
                expect(within, f"epsilon <= {max_epsilon} with all earlier releases", epsilon=epsilon)
        votes, _ = store.load(rows=chosen, ballots=aggregator.needs_ballots)
        asked = replace(votes, predictions=predicted)
        rehearse(aggregator, panel, predictions=asked.predictions)
        file = _reserve_room(stack, run, about, count * panel.num_labels)
        with _naming_ledger(ledger):
            release = ledger.reserve(
                events,
                count=count,
                run=run.root.resolve().name,
                description=type(aggregator).__name__,
                seeded=noise_seed is not None,
                budget=budget,
                delta=delta,
            )
        generator = private_generator() if noise_seed is None else seeded_generator(noise_seed, release=release)
        found = aggregator.aggregate(asked, generator=generator)
        write_released(file, run, {**about, "release": np.array(release), **_arrays(found)})
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
        for statement in LABEL.outputs[:0:-1]:
            (run.root / statement).unlink(missing_ok=True)
        run.clear(LABEL)
        run.begin(LABEL, made_by)
        # labels count as this command's only under the number that it reserved
        write_json(run.root / LABEL.state, (run.state(LABEL) or {}) | {_RELEASE: release})
        # leaving renames the file to labels.npz
    return read_released(run)


def rehearse(aggregator: Aggregator, panel: Panel, *, predictions: NDArray[np.float64] | None = None) -> None:
    """Put constant votes to an aggregator and drop what it says, so that what it refuses is refused for free.

    No vote and no noise of a release is touched. None, one and several queries are put, because a screen may leave any
    number of them. Raises what the aggregator raises, and ``ValueError`` where its release is not of the votes' shape.
    """
    num_teachers, num_labels = panel.num_teachers, panel.num_labels
    levels = np.array([0, num_teachers, num_teachers // 2, 0, num_teachers, num_teachers // 2])
    for count in (0, 1, len(levels)):
        given = levels[:count]
        teachers = np.arange(num_teachers)[None, :, None] < given[:, None, None]
        guess = None
        if predictions is not None:
            guess = np.resize(predictions, (count, num_labels))
        votes = Votes(
            counts=np.repeat(given[:, None], num_labels, axis=1),
            num_teachers=num_teachers,
            ballots=np.repeat(teachers, num_labels, axis=2).astype(np.uint8) if aggregator.needs_ballots else None,
            predictions=guess,
        )
        found = aggregator.aggregate(votes, generator=np.random.Generator(np.random.Philox(key=0)))
        shape = (count, num_labels)
        shapes = {
            name: np.shape(array) for name, array in _arrays(found).items() if name in ("labels", "mask", "values")
        }
        expect(set(shapes.values()) == {shape}, f"a release of {count} queries and {num_labels} labels", **shapes)
        if found.tiers is not None:
            expect(found.tiers.shape == (count,), f"the tiers of {count} queries", shape=found.tiers.shape)
        aggregator.charges(found, panel)


def _reserve_room(stack: ExitStack, run: Run, about: Mapping[str, NDArray[Any]], entries: int) -> IO[bytes]:
    """Open the file that becomes labels.npz once ``stack`` is left, with room on disk for all that will be in it.

    Raises ``ValueError`` where the folders cannot be written, their files not be replaced, or the disk is full.
    """
    # labels, mask and noisy counts, tiers, and the statement
    size = 18 * entries + sum(array.nbytes for array in about.values()) + _STATEMENT_BYTES
    try:
        for old in run.public.glob(f".{labels_file(run).name}.*"):
            old.unlink()  # what a killed command was writing; nobody else has the lock
        for folder in (run.private, run.public, run.root):
            probe = folder / f".probe.{secrets.token_hex(8)}"
            probe.touch()
            probe.unlink()
        for left in (LABEL.state, LABEL.config, *LABEL.outputs):
            if (run.root / left).exists():
                # a second name is refused where the first may not be taken away
                probe = (run.root / left).with_name(f".probe.{secrets.token_hex(8)}")
                os.link(run.root / left, probe)
                probe.unlink()
        file: IO[bytes] = stack.enter_context(replacing(labels_file(run)))
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise ValueError(f"Expected a run that labels can be written to, got run={str(run.root)!r} ({error})") from None
    return file


@contextmanager
def _naming_ledger(ledger: Ledger) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        earlier = sorted({entry.run for entry in ledger.entries()})
        if not earlier:
            raise
        raise ValueError(
            f"{error}. The ledger {ledger.path} counts what runs on these private data released before"
            f" ({', '.join(earlier)}), deleted ones too: label other data, or, if the records are nobody's, as drawn"
            " faces are, delete it to begin anew"
        ) from None


def _state(run: Run, aggregator: Aggregator, released: Mapping[str, NDArray[Any]]) -> None:
    """Settle the release that is on disk, and write the statement of these labels."""
    panel = Panel(int(released["num_teachers"]), len(released["label_names"]))
    realised = None
    if "steps" in released:
        paid = Release(released["labels"], released["mask"], tiers=released["steps"])
        realised = aggregator.charges(paid, panel)
    ledger = open_ledger(run)
    ledger.settle(int(released["release"]), realised=realised)
    book = ledger.book()
    statement = make_statement(
        book,
        delta=float(released["delta"]),
        relation=aggregator.neighboring_relation,
        unit=_unit(run),
        aggregator=json.loads(str(released["aggregator"])),
        num_queries=len(released["ids"]),
        num_answered=int(released["mask"].any(axis=1).sum()),
        num_teachers=panel.num_teachers,
        num_labels=panel.num_labels,
        versions={"pate": pate.__version__} | {name: version(name) for name in ("numpy", "scipy", "torch")},
        of_this_run_alone=run.ledger is None,
    )
    write_json(run.root / LABEL.outputs[1], statement | {_RELEASE: int(released["release"])})
    write_text(run.root / LABEL.outputs[2], describe(statement))
    written = digest(*(run.root / output for output in LABEL.outputs[1:]))
    write_json(run.root / LABEL.state, (run.state(LABEL) or {}) | {_STATEMENT: written})


def _is_stated(run: Run) -> bool:
    """Whether the statement is there as it was written of the labels that are there."""
    files = [run.root / output for output in LABEL.outputs[1:]]
    state = run.state(LABEL) or {}
    return all(file.is_file() for file in files) and state.get(_STATEMENT) == digest(*files)


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


def _arrays(release: Release) -> dict[str, Any]:
    """Return what is kept of a release; what it has not is left out."""
    arrays: dict[str, Any] = {"labels": release.labels, "mask": release.mask}
    if release.values is not None:
        arrays |= {"values": release.values, "noise_std": release.noise_std}
    if release.tiers is not None:
        arrays["steps"] = release.tiers
    return arrays
