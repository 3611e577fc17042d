"""The private top k of a histogram, and the settings of `pate topk` for its mechanism."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from pate._core.accounting.accountant import Target, calibrate_scale
from pate._core.accounting.charges import Budget, FilterName
from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.history import LedgerEntry
from pate._core.accounting.ledger import Ledger, read_ledger
from pate._core.accounting.statement import Statement
from pate._core.files.reading import digest
from pate._core.files.writing import cell, locked_output, remove_drafts, write_text
from pate._core.mechanisms.base import FACTS, Mechanism, NotStatedError, choice, own_choices
from pate._core.mechanisms.limited_domain import LimitedDomain
from pate._core.mechanisms.noise import draw_key, private_generator
from pate._core.release.histogram import Histogram, HistogramSource
from pate._core.release.transaction import (
    PendingRelease,
    Releasable,
    ReleaseOutcome,
    ReservationRequest,
    pending_release,
    release,
    request_text,
    require_promise,
)
from pate._core.validation import (
    given,
    require,
    require_count,
    require_in_open_unit_interval,
    require_positive,
)
from pate._core.version import __version__

Neighbors = Literal["add_remove", "replace"]

_RELATIONS: Mapping[str, NeighboringRelation] = {
    "add_remove": NeighboringRelation.ADD_REMOVE_TEACHER,
    "replace": NeighboringRelation.REPLACE_RECORD,
}
_SETTINGS = frozenset({"k", "kbar", "delta", "delta_test", "rank_penalty", "allow_empty"})
"""Fields of mechanisms that get their values from the settings of a top k."""
_CANDIDATES_PER_CHOICE = 10  # places of a limited domain for each item of the list
_MOST_CANDIDATES = 1_000_000  # places of a domain of unknown items: each takes noise


@dataclass(frozen=True, kw_only=True)
class TopKSettings:
    """The mechanism of a top k, its noise or target, and the limit on all releases.

    Args:
        k: number of items to choose.
        mechanism: {mechanisms}.
        target_epsilon: epsilon of this release at delta, in place of a scale.
        scale: scale of the noise, in the unit of the counts.
        delta: the delta of every epsilon, at most 1e-3.
        kbar: with limited_domain and top_stable, how many of the largest counts may be listed; 10 k
            by default.
        delta_domain: with limited_domain, stable, stable_fixed and top_stable, the probability of
            listing an item that neighboring data could not list, a part of delta; a tenth of it by
            default.
        neighbors: the relation of the primary guarantee: one user more or less (add_remove), or one
            user with other items (replace).
        noise_seed: a seed in place of noise, for tests; such a release is not private.
        max_epsilon: limit on all releases of the ledger together, at delta under the primary
            relation. The first limit given is final.
        max_delta0: the part of delta that this limit reserves for failures, such as a limited
            domain's. A tenth by default, or the amount that this release would need if it were
            repeated until the limit is reached.
        budget_filter: the filter that keeps this limit: renyi, gaussian or mixed; by default the
            one that admits this release most often. A mixed filter admits hundreds of releases of
            all kinds, each at about the price that its own filter would take.
        max_teachers_per_unit: how many users one unit may be, such as a person with several
            accounts. The target, the limit and the statement's figures are for such units.

    Raises:
        ValueError: on numbers out of range, or unless either a target or a scale is given.
    """

    k: int
    mechanism: str = "peeling"
    target_epsilon: float | None = None
    scale: float | None = None
    delta: float = 1e-6
    kbar: int | None = None
    delta_domain: float | None = None
    neighbors: Neighbors = "add_remove"
    noise_seed: int | None = None
    max_epsilon: float | None = None
    max_delta0: float | None = None
    budget_filter: FilterName | None = None
    max_teachers_per_unit: int = 1

    def __post_init__(self) -> None:
        require_count(1, k=self.k, max_teachers_per_unit=self.max_teachers_per_unit)
        require_promise(self.delta)
        needed = {
            field.name
            for field in fields(self._class)
            if field.default is MISSING and field.default_factory is MISSING
        }
        unknown = needed - FACTS - _SETTINGS - {*self._class.noise_parameters}
        require(
            not unknown,
            f"defaults of all other fields of the mechanism {self.mechanism}",
            fields=sorted(unknown),
        )
        require(
            self.neighbors in get_args(Neighbors),
            f"a neighbors among {', '.join(get_args(Neighbors))}",
            neighbors=self.neighbors,
        )
        noise = {"target_epsilon": self.target_epsilon, "scale": self.scale}
        require(len(given(**noise)) == 1, "either target_epsilon or scale", **noise)
        require_positive(**given(**noise))
        require_count(0, **given(noise_seed=self.noise_seed))
        if not {"k", "kbar"} & self._fields:
            require(self.k == 1, f"k = 1 with the mechanism {self.mechanism}", k=self.k)
        if "kbar" in self._fields and "k" in self._fields:
            require_count(1, kbar=self.num_candidates)
            require(self.k <= self.num_candidates, f"kbar >= k = {self.k}", kbar=self.kbar)
        else:
            self._require_none("kbar")
        if {"delta", "delta_test"} & self._fields:
            failure = self.failure_probability
            require_in_open_unit_interval(delta_domain=failure)
            require(
                failure < self.delta, f"delta_domain < delta = {self.delta:g}", delta_domain=failure
            )
        else:
            self._require_none("delta_domain")
        _ = self.budget  # checks its parts

    @property
    def budget(self) -> Budget | None:
        """The limit on all releases together, or None."""
        return Budget.declared(
            self.max_epsilon,
            delta=self.delta,
            neighboring_relation=self.relation,
            max_delta0=self.max_delta0,
            budget_filter=self.budget_filter,
            max_teachers_per_unit=self.max_teachers_per_unit,
        )

    @property
    def num_candidates(self) -> int:
        """How many of the largest counts of a limited domain may be listed.

        The default depends only on k, because private facts may not decide. The threshold rises by
        only 0.7 scales if the domain is twice as wide, and falls with the count below the domain:
        on counts that fall like a power of the rank, slowly or steeply, 10 k finds nearly as many
        of the top k as the best width does.
        """
        return _CANDIDATES_PER_CHOICE * self.k if self.kbar is None else self.kbar

    @property
    def failure_probability(self) -> float:
        """The probability that a limited domain lists an item that a neighbor could not list.

        These add up over releases, and the ledger's total is finite as long as their sum is below
        delta.
        """
        return self.delta / 10 if self.delta_domain is None else self.delta_domain

    def require_public_items(self, *, public: bool) -> None:
        """Raise ``ValueError`` if the mechanism needs a public list of items and there is none."""
        require(
            public or not self._class.needs_public_items,
            "`items` with `pairs`, a public list (an item that one user alone has would tell of"
            " that user), or `mechanism` limited_domain, which needs none",
            mechanism=self.mechanism,
        )

    @property
    def relation(self) -> NeighboringRelation:
        """The relation of the primary guarantee. A user takes the place of a teacher."""
        return _RELATIONS[self.neighbors]

    @property
    def ordered(self) -> bool:
        """Whether the order of the items is released, not only their set."""
        return self._class.ordered

    def mechanism_for(self, histogram: Histogram) -> Mechanism[Any]:
        """Return the mechanism, with its noise scaled to the target.

        Nothing in it depends on items that are not public. All noise has one scale.

        Raises:
            ValueError: on too few public items for k, a list that is not public with a mechanism
                that needs one, or a target that no noise meets.
        """
        self.require_public_items(public=histogram.public)
        settings = self._settings_for(histogram)
        if self.scale is not None:
            return self._with_noise(self.scale, settings, histogram)
        assert self.target_epsilon is not None
        target = Target(
            epsilon=self.target_epsilon,
            delta=self.delta,
            num_queries=1,
            neighboring_relation=self.relation,
            max_teachers_per_unit=self.max_teachers_per_unit,
        )
        scale = calibrate_scale(
            lambda scale: self._with_noise(scale, settings, histogram).event(self.relation), target
        )
        return self._with_noise(scale, settings, histogram)

    @property
    def _class(self) -> type[Mechanism[Any]]:
        return choice(self.mechanism)

    @property
    def _fields(self) -> set[str]:
        return {field.name for field in fields(self._class)}

    def _require_none(self, name: str) -> None:
        value = getattr(self, name)
        require(value is None, f"no {name} with the mechanism {self.mechanism}", **{name: value})

    def _settings_for(self, histogram: Histogram) -> dict[str, Any]:
        """Return the settings of the mechanism, without noise, for the items of a histogram."""
        kbar, most, num_items = self.num_candidates, _MOST_CANDIDATES, len(histogram.items)
        domain = {"k", "kbar"} <= self._fields
        if histogram.public:
            spare = 1 if domain else getattr(self._class, "spare", 0)
            require(
                self.k <= num_items - spare,
                f"k <= {num_items - spare} for {num_items} items and this mechanism",
                k=self.k,
            )
            most = num_items - 1
            kbar = kbar if self.kbar is not None else min(kbar, most)
        if domain:
            require(kbar <= most, f"kbar <= {most}", kbar=kbar)
        settings = {
            "k": self.k,
            # a mechanism without a k chooses how many items it lists, at most k
            "kbar": kbar if domain else self.k,
            "delta": self.failure_probability,
            "delta_test": self.failure_probability,
            "rank_penalty": histogram.sensitivity,
            # a histogram has no majorities of teachers
            "allow_empty": False,
        }
        assert settings.keys() == _SETTINGS
        return {name: value for name, value in settings.items() if name in self._fields}

    def _with_noise(
        self, scale: float, settings: Mapping[str, Any], histogram: Histogram
    ) -> Mechanism[Any]:
        facts = {
            # far above any count: counts are clipped here, and gaps are still exact
            "num_teachers": 2.0**32 * scale,
            "num_labels": len(histogram.items),
            "num_items": len(histogram.items),
            # the wider window: both guarantees hold at delta, for one more sensitivity on the
            # threshold
            "relation": NeighboringRelation.REPLACE_RECORD,
            "shift": 2 * histogram.sensitivity,
            "sensitivity": histogram.sensitivity,
            "integer_scores": False,
        }
        return self._class.of(
            facts, **settings, **dict.fromkeys(self._class.noise_parameters, scale)
        )


# the help of `pate topk` is made of this docstring
TopKSettings.__doc__ = (TopKSettings.__doc__ or "").replace(
    "{mechanisms}", "; ".join(f"{name}, {cls.short_help}" for name, cls in own_choices().items())
)

_LIKELY = 0.9  # the probability of an answer at the stated gap


def release_top_k(
    source: HistogramSource, settings: TopKSettings, *, output: Path, ledger: Path
) -> Statement:
    """Release the top k of a histogram, and return the statement.

    The cost is in the ledger before the noise is drawn. After a kill, the same call (files,
    settings and output) continues with its reservation and its noise: it neither pays nor draws
    twice. Until then the seed of its noise is kept next to the ledger, in a folder with the suffix
    ``.pending``. Once finished, the same call returns the existing statement, provided that the
    files are older than the list.

    Args:
        source: the source of the histogram.
        settings: the mechanism and the budget.
        output: the file to write, a ``.csv`` or a ``.json``. The statement is next to it, in
            ``<name>.privacy.json`` and ``<name>.privacy.txt``.
        ledger: the ledger of the private data, one for all releases from them; created if it is
            missing.

    Raises:
        ValueError: before anything is spent, on settings that cannot be met, files that cannot be
            written or belong to another call, or a budget that does not suffice.
    """
    settings.require_public_items(public=source.public)
    require(
        output.suffix in (".csv", ".json"),
        "an output that is a .csv or a .json",
        output=str(output),
    )
    folder = output.absolute().parent
    require(
        folder.is_dir() and os.access(folder, os.W_OK),
        "a folder that can be written to",
        output=str(output),
    )
    with locked_output(output.resolve()):
        suffixes = (output.suffix, ".privacy.json", ".privacy.txt")
        remove_drafts(folder.glob(".*"), [output.stem + suffix for suffix in suffixes])
        publication = _TopK(source, settings, output, ledger)
        return publication.finished() or release(publication)


def top_k_statement_fields(
    settings: TopKSettings, mechanism: Mechanism[Any], histogram: Histogram, unit: str | None
) -> dict[str, Any]:
    """Return the published facts of a top k and its mechanism, by the keys of their statement."""
    # the number of items counts only if they are public
    num_ranks = len(histogram.items) if histogram.public else getattr(mechanism, "kbar", 0) + 1
    try:
        gap = {
            "counts": mechanism.gap_to_answer(probability=_LIKELY, num_items=num_ranks),
            "probability": _LIKELY,
        }
    except NotStatedError:
        gap = None
    return {
        "kind": "topk",
        "neighboring_relation": settings.relation.value,
        "delta": settings.delta,
        "contributions": histogram.bound,
        "unit": unit,
        "max_teachers_per_unit": settings.max_teachers_per_unit,
        "mechanism": {"class": type(mechanism).__name__}
        | {field.name: getattr(mechanism, field.name) for field in fields(mechanism)},
        "num_items": len(histogram.items) if histogram.public else None,
        "ordered": settings.ordered,
        "listing": mechanism.listing()._asdict(),
        "gap": gap,
        "versions": {"pate": __version__, "numpy": np.__version__},
    }


class _TopK(Releasable):
    """A list of items."""

    _histogram: Histogram
    _mechanism: Mechanism[Any]
    _facts: Mapping[str, Any]
    _text: str

    def __init__(
        self, source: HistogramSource, settings: TopKSettings, output: Path, ledger: Path
    ) -> None:
        self._source, self._settings, self._ledger = source, settings, ledger
        self.file, self.statement_file = output, output.with_suffix(".privacy.json")
        self.seeds = ledger.resolve().with_suffix(".pending")
        self.noise_seed = settings.noise_seed

    def request_digest(self) -> str:
        """Return a digest of the request and of the path of its output."""
        facts = self._source.facts() | vars(self._settings) | {"output": self.file.resolve()}
        return digest(request_text(facts), *self._source.files)

    @contextmanager
    def prepared(
        self, pending: PendingRelease, generator: np.random.Generator
    ) -> Iterator[ReservationRequest]:
        settings = self._settings
        self.require_new(pending, self._ledger)
        self._histogram = self._source.read(generator)
        # the noise belongs to the files as they were digested
        require(
            self.request_digest() == pending.file.stem,
            "files that nobody writes while they are read",
            changed=str(self._source.path),
        )
        self._mechanism = settings.mechanism_for(self._histogram)
        # fails before anything is paid if the list could not be stated
        self._facts = top_k_statement_fields(
            settings, self._mechanism, self._histogram, self._source.privacy_unit.unit
        )
        yield ReservationRequest(
            ledger=Ledger(
                self._ledger,
                home=self._ledger.resolve(),
                max_teachers_per_unit=settings.max_teachers_per_unit,
            ),
            events=self._mechanism.events(),
            count=1,
            relation=settings.relation,
            delta=settings.delta,
            budget=settings.budget,
            run=self.file.absolute().stem,
            description=type(self._mechanism).__name__,
            privacy_unit=self._source.privacy_unit,
        )

    def finished(self) -> Statement | None:
        """Return the statement of this release if it is finished, or None.

        The ledger holds the request but nothing of private files, so none of these may be newer
        than the list.
        """
        outputs = (self.statement_file, self.statement_file.with_suffix(".txt"), self.file)
        begun = pending_release(self.seeds, self.request_digest(), draw_key()).file.is_file()
        if begun or not all(path.is_file() for path in (*outputs, self._ledger)):
            return None
        written = self.file.stat().st_mtime_ns
        if any(path.stat().st_mtime_ns > written for path in self._source.files):
            return None
        histogram = self._source.read(private_generator())
        mechanism = self._settings.mechanism_for(histogram)
        try:
            statement = Statement.read(self.statement_file)
            facts = top_k_statement_fields(
                self._settings, mechanism, histogram, self._source.privacy_unit.unit
            )
            if statement.get("listing") is None:  # of an earlier version
                del facts["listing"]
            statement.verify(ledger=self._ledger, released=self.file, facts=facts)
        except ValueError:
            return None  # of another call
        book, budget = read_ledger(self._ledger), self._settings.budget
        entry = book.entries[statement["release"] - 1]
        same = entry.events == mechanism.events() and entry.seeded == (self.noise_seed is not None)
        return statement if same and budget in (None, book.budget) else None

    def draw(self, release: int, generator: np.random.Generator) -> None:
        items = _chosen(self._mechanism, self._histogram, generator)
        ordered = self._settings.ordered
        # the same draw gives the same text, so that a killed call settles the same again
        if self.file.suffix == ".csv":
            self._text = _table(items, ordered)
        else:
            self._text = json.dumps({"items": items, "ordered": ordered}, indent=2) + "\n"

    def settlement(self, entry: LedgerEntry) -> ReleaseOutcome:
        settled = (entry.published or {}).get("ledger")
        return ReleaseOutcome(
            published={
                **self._facts,
                "ledger": settled or self._source.counted_by(self._ledger),
                "sha256": hashlib.sha256(self._text.encode()).hexdigest(),
            }
        )

    def publish(self) -> None:
        """Write the list last, so that no list exists without its statement."""
        write_text(self.file, self._text)


def _chosen(
    mechanism: Mechanism[Any], histogram: Histogram, generator: np.random.Generator
) -> list[str]:
    """Return the names of the chosen items: k of them, with some mechanisms fewer or none."""
    if histogram.public or not isinstance(mechanism, LimitedDomain):
        chosen = mechanism.choose(histogram.scores, generator=generator)
    else:
        chosen = mechanism.choose_unknown(histogram.scores, generator=generator)
    return [histogram.items[i] for i in chosen.tolist()]


def _table(items: list[str], ordered: bool) -> str:
    """Return items as lines of a CSV, with their ranks if these were released."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("rank", "item") if ordered else ("item",))
    cells = [cell(item) for item in items]
    writer.writerows(enumerate(cells, 1) if ordered else ((item,) for item in cells))
    return text.getvalue()
