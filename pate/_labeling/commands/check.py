"""The commands that read a run and its ledger, compute them again, and change neither.

`pate verify` computes a run, a statement or a ledger again. It tells what stands in a run, and
whether it is as its commands left it, and signs a statement with an SSH key. `pate
ledger show` adds up the releases of a ledger.
"""

import json
import shlex
import stat
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from pate._core.accounting.charges import Charge, account, merged, to_world
from pate._core.accounting.cost import NeighboringRelation, format_epsilon, format_exact
from pate._core.accounting.history import LedgerSnapshot
from pate._core.accounting.ledger import read_ledger, verify_ledger
from pate._core.accounting.statement import (
    FIXED_BEFOREHAND,
    SCHEMA,
    WORLD,
    Total,
    describe_budget,
    describe_missing_total,
    describe_reach,
    describe_state,
    sha256,
)
from pate._core.files.reading import digest, opened
from pate._core.files.writing import write_text
from pate._core.validation import (
    Faults,
    expecting,
    given,
    one_line,
    require,
    require_in_open_unit_interval,
)
from pate._labeling.commands.parsing import FLAG, run_command
from pate._labeling.commands.places import with_options
from pate._labeling.release.between_runs import require_ledger
from pate._labeling.release.labels import require_stated, verify_published
from pate._labeling.runs.released import require_student
from pate._labeling.runs.run import (
    LABEL,
    METRICS,
    MODEL,
    REPORT,
    SIGNED,
    STUDENT,
    TEACHERS_FIT,
    TEACHERS_VOTE,
    VOTES_IMPORT,
    Run,
    Stage,
    first_stage,
    load_ledger,
    read_key,
    require_data_config,
)

_LAST = 20  # releases that are printed, and kinds of them


@dataclass(frozen=True)
class RunCheck:
    """The state of a run.

    Attributes:
        finished: the commands of finished stages.
        problems: one line for each fault, with its remedy.
        notes: one line for each stage that has begun and not finished, and for releases elsewhere
            that call for the next command.
    """

    finished: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check_run(root: Path) -> RunCheck:
    """Check the digests of a run's files, the seal of its labels, its ledger and its statement.

    Ledger and statement are computed again from their events. Nothing is written.

    Raises:
        ValueError: if ``root`` is not the folder of a run.
    """
    run, faults = Run(root), Faults()
    require(
        run.data_config.is_file() or (root / first_stage(run).state).is_file(),
        "the folder of a run, with its data.yaml",
        path=str(root),
    )
    if not run.private.is_dir():  # all other faults would follow from that
        return RunCheck(problems=(f"Expected {run.private}, got no such folder. Put it back",))
    later = 0
    with faults.gather((OSError, ValueError)):
        require_data_config(run)
        run = replace(run, ledger=load_ledger(root))
        require_ledger(run)
        if run.ledger_path.exists():
            verify_ledger(run.ledger_path)
    for stage in _stages(run):
        with faults.gather((OSError, ValueError)):
            _require_intact(run, stage)
    with faults.gather((OSError, ValueError)):
        later = require_stated(run)
    with faults.gather((OSError, ValueError)):
        mode = stat.S_IMODE(run.private.stat().st_mode)
        require(
            not mode & 0o077,
            f"{run.private} of mode 0700: chmod 700 {shlex.quote(str(run.private))}",
            mode=f"{mode:04o}",
        )
    with faults.gather((OSError, ValueError)):
        faults.lines += [
            f"Expected plain files in {run.private}, got {path.relative_to(run.private)}. Delete it"
            for path in sorted(run.private.rglob("*"))
            if not (path.is_file() or path.is_dir())
        ]
        faults.lines += unexpected_public_files(run)
    if faults.lines:
        return RunCheck(problems=tuple(faults.lines))
    begun = [stage for stage in _stages(run) if run.state(stage) is not None]
    finished = tuple(stage.name for stage in begun if run.is_finished(stage))
    notes = [f"{stage.name} was begun" for stage in begun if stage.name not in finished]
    if later:
        again = shlex.join(["--config", str(run.root / LABEL.config), "--run", str(root)])
        notes.append(
            f"the ledger holds {later} later release(s) of other runs on these data, which the"
            f" statement does not count until labels are stated again: pate label {again}"
        )
    return RunCheck(finished, (), tuple(notes))


def _stages(run: Run) -> tuple[Stage, ...]:
    voting = (VOTES_IMPORT,) if first_stage(run) is VOTES_IMPORT else (TEACHERS_FIT, TEACHERS_VOTE)
    return (*voting, LABEL, STUDENT)


def _require_intact(run: Run, stage: Stage) -> None:
    """Raise ``ValueError`` unless a stage's files are unchanged and match the stages before it."""
    left = (
        run.state(stage) is None
        and not stage.self_describing
        and any((run.root / path).exists() for path in stage.outputs)
    )
    if stage is STUDENT and run.is_finished(STUDENT):
        require_student(run)
    elif run.is_finished(stage) or left:
        run.require_finished(stage)


def _print_check(run: Path) -> None:
    """Print the stages of a run, or its faults, and end with status 1."""
    result = check_run(run)
    for problem in result.problems:
        print(one_line(with_options(f"{run}: {problem}")))
    if result.problems:
        raise SystemExit(1)
    print(f"{run}: all is well; finished: {', '.join(result.finished) or 'nothing yet'}")
    for line in result.notes:
        print(f"{run}: {line}")


_BLOCK = 1 << 20  # bytes read at once
_STUDENT = STUDENT.outputs[0].as_posix()
_PUBLISHED = (
    *(path.as_posix() for path in (LABEL.config, STUDENT.config, *LABEL.outputs, REPORT)),
    *(path.as_posix() for path in SIGNED),
    *(f"{_STUDENT}/{name}" for name in ("*.ckpt", "linear.safetensors", METRICS)),
    *(f"{_STUDENT}/{name}/*" for name in (MODEL, "logs")),
)
"""Patterns of the files that commands leave in ``public/``. A star stands for folders, too."""


def published_files(run: Run) -> list[Path]:
    """Return the files in the run's public folder, relative to the run's folder, sorted by name."""
    paths = (path for path in run.public.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted((path.relative_to(run.root) for path in paths), key=Path.as_posix)


def unexpected_public_files(run: Run) -> Iterator[str]:
    """Yield an error for each file in the run's public folder that must not be published."""
    private = _private_files(run)
    secret = [] if (key := read_key(run)) is None else [key, key.hex().encode()]
    for name in published_files(run):
        path = run.root / name
        if path.is_symlink() or not path.is_file():
            yield f"Expected plain files in {run.public}, got {name}. Delete it"
        elif not _is_expected(name):
            yield f"Expected what `pate` leaves in {run.public}, got {name}. Move it elsewhere"
        elif original := private.get(path.stat().st_size, {}).get(digest(path)):
            yield (
                f"Expected nothing private in {run.public}, got {name}, a copy of {original}."
                " Delete it"
            )
        elif _holds(path, secret):
            yield (
                f"Expected nothing private in {run.public}, got {name} with the run's key."
                " Delete it"
            )


def _holds(path: Path, words: Sequence[bytes]) -> bool:
    """Return whether a file, read in blocks, has one of some words."""
    longest, kept = max(map(len, words), default=0), b""
    with opened(path) as file:
        while words and (block := file.read(_BLOCK)):
            kept += block
            if any(word in kept for word in words):
                return True
            kept = kept[-longest:]
    return False


def _is_expected(name: Path) -> bool:
    hidden = any(part.startswith(".") or part.startswith("PRIVATE") for part in name.parts)
    return not hidden and any(fnmatch(name.as_posix(), pattern) for pattern in _PUBLISHED)


def _private_files(run: Run) -> dict[int, dict[str, str]]:
    """Return the names of private files by size and digest, without settings and empty files.

    Only files as large as a public one are read.
    """
    files: dict[int, dict[str, str]] = {}
    sizes = {(run.root / name).lstat().st_size for name in published_files(run)} - {0}
    for path in sorted(run.private.rglob("*")):
        size = path.stat().st_size if path.is_file() and path.suffix != ".yaml" else 0
        if size in sizes:
            files.setdefault(size, {})[digest(path)] = path.relative_to(run.root).as_posix()
    return files


def ledger_show(ledger: Path, *, delta: float | None = None, all: bool = False) -> None:
    """Print the last releases of a ledger, their sum by kind, and their total cost.

    Args:
        ledger: the file.
        all: whether to print all releases.
        delta: the delta of epsilon. None for the delta of the ledger's budget, else of its last
            release, else 1e-6.

    Raises:
        ValueError: if the file is not an intact ledger.
    """
    book = read_ledger(ledger)
    queries = sum(entry.count for entry in book.entries)
    print(f"{ledger}: {len(book.entries)} release(s) of {queries} queries")
    shown = book.entries if all else book.entries[-_LAST:]
    if len(shown) < len(book.entries):
        sums, queries_of = Counter[str](), Counter[str]()
        for entry in book.entries:
            sums[kind := f"{entry.description} ({describe_state(vars(entry))})"] += 1
            queries_of[kind] += entry.count
        for kind, number in sums.most_common(_LAST):
            print(f"    {number} release(s) of {queries_of[kind]} queries: {kind}")
        print(f"The last {len(shown)} (--all prints all):")
    for entry in shown:
        units = describe_reach(entry.max_teachers_per_unit, book.max_teachers_per_unit)
        made = f", made{units}" if units else ""
        print(
            f"    {entry.release}: {entry.at} {entry.run}: {entry.count} x {entry.description}"
            f" ({describe_state(vars(entry))}{made})"
        )
    _print_sum(book, _delta_of(book) if delta is None else delta)


def verify_file(
    path: Path,
    *,
    ledger: Path | None = None,
    released: Path | None = None,
    sign: Path | None = None,
) -> None:
    """Check a run, a statement or a ledger by computing everything in it again from its events.

    A statement is compared key by key, and so are its text and the released file. A run is checked
    as its commands left it: files and their digests, the seal of its labels, ledger and statement,
    and no private file in public/. Its stages are printed, or it ends with status 1 and a line for
    each fault.

    Args:
        path: the folder of a run, the ``privacy.json`` of ``pate label``, or a ledger.
        ledger: the ledger that the statement follows from. None for the releases that it lists:
            that these are all is then the word of its author.
        released: the released file. None for a ``labels.npz`` in the folder of the statement.
        sign: a private SSH key of yours. Writes ``privacy.intoto.json`` next to the statement, with
            the digests of it, its labels and student, and a signature by ``ssh-keygen``.

    Raises:
        ValueError: at the first figure that does not follow from the events, or if a file is
            damaged.
    """
    stated = path.suffix == ".json" and not path.is_dir()
    for name, other in given(ledger=ledger, released=released, sign=sign).items():
        require(stated, f"a statement, in a .json, with --{name} {other}", path=str(path))
    if path.is_dir():
        _print_check(path)
        return
    book, source = None, ledger if stated else path
    if source is not None:
        book = verify_ledger(source)
        print(
            f"{source}: intact; {len(book.entries)} release(s), and every epsilon follows from the"
            " events."
        )
    if stated:
        verify_published(path, ledger, released)
        print(f"{path}: every epsilon follows from the events.")
    if sign is not None:
        print(f"{_sign(path, sign)}: signed by {sign}")
    if book is not None:
        _print_sum(book, _delta_of(book))


_SUBJECTS = ("privacy.txt", "labels.npz", "model.*", "sentences.zip", "student/model/*")
"""Patterns of what is signed with a statement: labels, and a student in or below its folder."""


def _sign(statement: Path, key: Path) -> Path:
    """Write an in-toto statement on the files of a statement, and its signature."""
    folder, (file, signature) = statement.parent, (statement.with_name(p.name) for p in SIGNED)
    paths = {statement, *(path for each in _SUBJECTS for path in folder.glob(each))}
    subject = [
        {"name": path.relative_to(folder).as_posix(), "digest": {"sha256": sha256(path)}}
        for path in sorted(paths)
    ]
    head = {"_type": "https://in-toto.io/Statement/v1", "predicateType": SCHEMA, "predicate": {}}
    content = json.dumps(head | {"subject": subject}, indent=2) + "\n"
    words = ["ssh-keygen", "-Y", "sign", "-n", "pate", "-f", str(key)]
    with expecting(f"a signature by {key}", OSError):
        done = subprocess.run(words, input=content.encode(), capture_output=True)
    said = one_line(done.stderr.decode(errors="replace").strip())
    require(done.returncode == 0, f"a signature by {key}", ssh_keygen=said)
    write_text(file, content)
    write_text(signature, done.stdout.decode())
    return signature


def _print_sum(book: LedgerSnapshot, delta: float) -> None:
    require_in_open_unit_interval(delta=delta)
    totals = {relation: _totals_of(book, relation) for relation in NeighboringRelation}
    _print_epsilons(totals, LedgerSnapshot.reserved, delta)
    reserved = merged(book.reserved())
    if to_world(reserved) != reserved:
        print(f"This holds against those who take part, who know some of the noise. {WORLD} it is")
        _print_epsilons(totals, lambda part: to_world(part.reserved()), delta, indent="    ")
    if len(book.entries) > 1:
        print(f"    The sums hold if {FIXED_BEFOREHAND}.")
    if any(entry.realised is not None for entry in book.entries):
        print(
            "what happened cost less, no guarantee, because it was not fixed before the noise was"
            " drawn:"
        )
        _print_epsilons(totals, LedgerSnapshot.charges, delta, indent="    ")
    if (budget := describe_budget(book)) is not None:
        print(budget)


def _totals_of(book: LedgerSnapshot, relation: NeighboringRelation) -> list[Total]:
    """Return the totals of a ledger for each of its units that has one, and say which has none."""
    totals: dict[str, Total] = {}
    for unit in book.units:
        total = book.total_for(unit, relation)
        if total is not None:
            totals.setdefault(total[0].describe(relation), total)
        if (missing := describe_missing_total(book, unit, relation)) is not None:
            print(missing)
    return [*totals.values()]


def _print_epsilons(
    totals: Mapping[NeighboringRelation, Sequence[Total]],
    charges: Callable[[LedgerSnapshot], Sequence[Charge]],
    delta: float,
    *,
    indent: str = "",
) -> None:
    """Print the totals of charges under both relations."""
    for relation, parts in totals.items():
        for unit, book in parts:
            total, most = account(charges(book), relation), book.max_teachers_per_unit
            whom = f" for {unit.describe(relation)}" if unit.unit is not None else ""
            print(
                f"{indent}epsilon = {format_epsilon(total.get_epsilon(delta=delta), 4)} at delta ="
                f" {format_exact(delta)} (delta0 = {total.delta0:.3g}) under"
                f" {relation.value.upper()}{whom}{describe_reach(most, most)}"
            )


def _delta_of(book: LedgerSnapshot) -> float:
    deltas = [1e-6, *(entry.delta for entry in book.entries if entry.delta is not None)]
    return deltas[-1] if book.budget is None else book.budget.delta


show = partial(run_command, "ledger show", ledger_show, special={"--all": FLAG})
verify = partial(run_command, "verify", verify_file)
