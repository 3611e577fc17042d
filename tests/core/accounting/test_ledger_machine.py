"""The ledger against a plain model in memory, whatever happens in whatever order, crashes
included."""

import math
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pate._core.accounting import ledger as _ledger
from pate._core.accounting.accountant import RenyiAccountant
from pate._core.accounting.charges import Events, account
from pate._core.accounting.cost import gaussian_delta
from pate.accounting import (
    DEFAULT_ORDERS,
    Budget,
    GaussianEvent,
    Ledger,
    LedgerHead,
    NeighboringRelation,
    read_ledger,
    verify_ledger,
)
from tests.statements import RECORDS

REPLACE, TEACHER = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER
BUDGET = Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=REPLACE)
OTHER = Budget(max_epsilon=3.0, delta=1e-6, neighboring_relation=REPLACE)
NOISES = (30.0, 45.0, 90.0)
counts = st.sampled_from([1, 7, 60, 150, 400])
# of what was reserved; None to settle without a word
shares = st.sampled_from([None, 0.0, 0.3, 1.0, 1.2])
ONE_LINE = r"^Expected [^\n]*$"


def events(noise: float) -> Events:
    return {
        REPLACE: GaussianEvent(noise_multiplier=noise, neighboring_relation=REPLACE),
        TEACHER: GaussianEvent(noise_multiplier=2 * noise, neighboring_relation=TEACHER),
    }


@dataclass
class Release:
    """What the model remembers of one: charges as (noise, count)."""

    reserved: tuple[float, int]
    realised: tuple[tuple[float, int], ...] | None = None
    settled: bool = False

    @property
    def charges(self) -> tuple[tuple[float, int], ...]:
        return (self.reserved,) if self.realised is None else self.realised


class Crash(BaseException):
    """What nobody catches."""


class LedgerMachine(RuleBasedStateMachine):
    """Two handles on one file, of which the model knows what was committed and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.path = self.folder / "ledger.sqlite"
        self.handles = [Ledger(self.path), Ledger(self.path)]
        self.releases: list[Release] = []
        self.budget: Budget | None = None
        self.heads = [self.handles[0].snapshot().head]

    def teardown(self) -> None:
        book = verify_ledger(self.path)
        assert len(book.entries) == len(self.releases) and all(map(book.follows, self.heads))
        shutil.rmtree(self.folder)

    # the model

    def mu_squared(self, *, reserved: bool = False) -> float:
        """What was spent, in squared mu under REPLACE_RECORD."""
        charges = [
            charge
            for each in self.releases
            for charge in ((each.reserved,) if reserved else each.charges)
        ]
        return math.fsum(count / noise**2 for noise, count in charges)

    def affordable(self, mu_squared: float) -> bool:
        """By the definition of the Gaussian trade-off, for a sum that is not just at the border."""
        left = 0.9 * BUDGET.delta  # by tests, which there are none of
        return gaussian_delta(BUDGET.max_epsilon, math.sqrt(mu_squared)) <= left

    def border(self, mu_squared: float) -> bool:
        return self.affordable(mu_squared * (1 - 1e-9)) and not self.affordable(
            mu_squared * (1 + 1e-9)
        )

    # what happens

    def reserve(self, which: int, noise: float, count: int, budget: Budget | None) -> int:
        named = {"run": "run", "description": "text", "seeded": False, "delta": 1e-6}
        named |= {"privacy_unit": RECORDS}
        return self.handles[which].reserve(events(noise), count=count, budget=budget, **named)  # type: ignore[arg-type]

    @rule(
        which=st.integers(0, 1), noise=st.sampled_from(NOISES), count=counts, declare=st.booleans()
    )
    def reserve_some(self, which: int, noise: float, count: int, declare: bool) -> None:
        budget = BUDGET if declare else None
        total = self.mu_squared() + count / noise**2
        if self.border(total) or self.border(self.mu_squared(reserved=True)):
            return
        if self.budget is None and declare and not self.affordable(self.mu_squared(reserved=True)):
            with pytest.raises(
                ValueError, match=r"^Expected epsilon <= 2 [^\n]* before this release, got epsilon="
            ):
                self.reserve(which, noise, count, budget)
            return
        if (declare or self.budget is not None) and not self.affordable(total):
            with pytest.raises(
                ValueError, match=r"^Expected epsilon <= 2 [^\n]* such queries can be paid$"
            ):
                self.reserve(which, noise, count, budget)
            return
        assert self.reserve(which, noise, count, budget) == len(self.releases) + 1
        self.releases.append(Release((noise, count)))
        self.budget = self.budget or budget
        self.heads.append(self.handles[which].snapshot().head)
        charges = self.handles[which].snapshot().charges()
        for relation, share in ((REPLACE, 1.0), (TEACHER, 0.25)):
            far = DEFAULT_ORDERS - 1
            overhead = (
                np.log1p(-1 / DEFAULT_ORDERS) - (math.log(1e-6) + np.log(DEFAULT_ORDERS)) / far
            )
            epsilon = max(0.0, float((share * total * DEFAULT_ORDERS / 2 + overhead).min()))
            by_curve = (
                account(charges, relation).guarantee(delta=1e-6, by=[RenyiAccountant()]).epsilon
            )
            assert by_curve == pytest.approx(epsilon, rel=1e-9)

    @precondition(lambda self: self.budget is not None)
    @rule(which=st.integers(0, 1))
    def reserve_under_another_budget(self, which: int) -> None:
        with pytest.raises(
            ValueError, match=r"^Expected the budget of the ledger, max_epsilon=2.0"
        ):
            self.reserve(which, 90.0, 1, OTHER)

    @precondition(lambda self: self.releases)
    @rule(which=st.integers(0, 1), back=st.integers(0, 3), share=shares)
    def settle_one(self, which: int, back: int, share: float | None) -> None:
        number = max(1, len(self.releases) - back)
        release = self.releases[number - 1]
        noise, count = release.reserved
        paid = None if share is None else ((noise, math.ceil(share * count)),)
        charges = None if paid is None else [(events(each), times) for each, times in paid]
        if release.settled and release.realised != paid:
            with pytest.raises(ValueError, match=f"^Expected release {number} settled once"):
                self.handles[which].settle(number, realised=charges)
        elif paid is not None and paid[0][1] > count and not release.settled:
            with pytest.raises(
                ValueError, match=f"^Expected at most what release {number} reserved"
            ):
                self.handles[which].settle(number, realised=charges)
        else:
            self.handles[which].settle(number, realised=charges)
            release.settled, release.realised = True, paid
            self.heads.append(self.handles[which].snapshot().head)

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.handles[which] = Ledger(self.path)
        with pytest.raises(
            ValueError, match=f"^Expected a release among the {len(self.releases)} of "
        ):
            self.handles[which].settle(len(self.releases) + 1)

    @rule(which=st.integers(0, 1), after=st.booleans(), settles=st.booleans())
    def crash(self, which: int, after: bool, settles: bool) -> None:
        """Break a call off before or after its row is in the transaction, and look at the files of
        that moment."""
        open_ones = [i for i, each in enumerate(self.releases, 1) if not each.settled]

        def call() -> None:
            if settles and open_ones:
                self.handles[which].settle(open_ones[0])
            else:
                self.reserve(which, 90.0, 1, None)

        if not (settles and open_ones) and not self.affordable(1.01 * self.mu_squared() + 1e-3):
            return
        found = self.folder / "found.sqlite"
        with crashing(after, lambda: copy_files(self.path, found)), pytest.raises(Crash):
            call()
        # what the next process finds where the power failed
        self.look(found)
        found.unlink()

    @precondition(lambda self: self.releases)
    @rule(data=st.data(), how=st.sampled_from(["time", "digest", "drop", "cut"]))
    def tamper(self, data: st.DataObject, how: str) -> None:
        forged = self.folder / "forged.sqlite"
        copy_files(self.path, forged)
        rows = self.heads[-1].rows
        row = data.draw(st.integers(1, rows))
        with closing(sqlite3.connect(forged)) as connection:
            (body,) = connection.execute("SELECT body FROM log WHERE row = ?", (row,)).fetchone()
            for change in ("UPDATE", "DELETE"):
                connection.execute(f"DROP TRIGGER log_{change}")
            if how == "time":
                connection.execute(
                    "UPDATE log SET body = ? WHERE row = ?",
                    (body.replace('"at": "2', '"at": "1'), row),
                )
            elif how == "digest":
                connection.execute("UPDATE log SET digest = 'ff' WHERE row = ?", (row,))
            else:
                connection.execute(
                    "DELETE FROM log WHERE row >= ?", (row if how == "cut" else rows,)
                )
            connection.commit()
        for use in (Ledger, read_ledger, verify_ledger):
            with pytest.raises(ValueError, match=ONE_LINE):
                use(forged)
        forged.unlink()

    @precondition(lambda self: len(self.heads) > 1)
    @rule(which=st.integers(0, 1), noise=st.sampled_from(NOISES))
    def put_back_an_older_copy(self, which: int, noise: float) -> None:
        """Whoever has it open notices; the newer file then comes back."""
        older, newer = self.folder / "older.sqlite", self.folder / "newer.sqlite"
        copy_files(self.path, older)
        if not self.affordable(1.01 * self.mu_squared() + 2e-3):
            return
        self.releases.append(Release((noise, 1)))
        self.reserve(which, noise, 1, None)
        self.heads.append(self.handles[which].snapshot().head)
        copy_files(self.path, newer)
        shutil.copyfile(older, self.path)
        for use in (self.handles[which].entries, lambda: self.handles[which].settle(1)):
            with pytest.raises(
                ValueError, match=r"^Expected a ledger at [^\n]* that continues row"
            ):
                use()
        assert not read_ledger(self.path).follows(self.heads[-1])
        shutil.copyfile(newer, self.path)
        self.handles[which].entries()

    # what holds at any time

    @invariant()
    def everybody_sees_what_was_committed(self) -> None:
        for handle in self.handles:
            entries = handle.entries()
            assert len(entries) == len(self.releases)
        self.look(self.path)

    def look(self, path: Path) -> None:
        """Read ``path`` as a new process would, and compare it with the model."""
        book = read_ledger(path)
        assert book.budget == self.budget and (book.filter is None) == (self.budget is None)
        for number, (entry, release) in enumerate(zip(book.entries, self.releases, strict=True), 1):
            noise, count = release.reserved
            assert (entry.release, entry.events, entry.count) == (number, events(noise), count)
            assert entry.settled == release.settled
            paid = (
                None
                if release.realised is None
                else tuple((events(each), n) for each, n in release.realised)
            )
            assert entry.realised == paid
        spent = self.mu_squared()
        for relation, share in ((REPLACE, 1.0), (TEACHER, 0.25)):
            total = book.spent(relation)
            assert total.mu_squared == pytest.approx(share * spent, rel=1e-12)
            np.testing.assert_allclose(total.rdp, share * spent * DEFAULT_ORDERS / 2, rtol=1e-12)
            assert total.delta0 == 0


def copy_files(path: Path, to: Path) -> None:
    """Copy a ledger with what SQLite keeps beside it."""
    for end in ("", "-journal"):
        Path(f"{to}{end}").unlink(missing_ok=True)
        if Path(f"{path}{end}").exists():
            shutil.copyfile(f"{path}{end}", f"{to}{end}")


@contextmanager
def crashing(after: bool, look: Callable[[], None]) -> Iterator[None]:
    """Break off whoever appends a row."""
    plain = _ledger.append_row

    def broken(connection: sqlite3.Connection, head: LedgerHead, text: str) -> LedgerHead:
        if after:
            plain(connection, head, text)
        look()
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ledger, "append_row", broken)
        yield


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=10,
    stateful_step_count=16,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


class LongerLedgerMachine(LedgerMachine):
    """The same, for longer."""


TestLongerLedgerMachine = pytest.mark.slow(LongerLedgerMachine.TestCase)
TestLongerLedgerMachine.settings = settings(
    TestLedgerMachine.settings, max_examples=60, stateful_step_count=30
)
