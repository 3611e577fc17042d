"""Alarms of honest audits of each kind, with intervals, as Markdown.

    python -m scripts.measure_audit --kind tables --runs 100

Each audit has records or votes of its own, drawn by its number, and runs the command `pate audit`.
The noise is the operating system's. The number also decides the mechanism, epsilon (4, 2 or 1), and
the kind of canaries. Power is not simulated, which takes half of the time and decides no alarm.
What is measured is kept in ``audits.jsonl`` in the folder, so that the same command goes on after a
kill. Intervals are Clopper and Pearson's at 95%.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.stats import beta

import pate
from pate import cli
from pate.lab.audit import releases
from pate.lab.audit.tables import STATUS

RECIPE = Path(__file__).parents[1] / "configs" / "table"
EPSILONS = (4, 2, 1)
KINDS = ("outlying", "duplicated", "mislabelled")
PLANS = ("", "--teachers.num_teachers=50", "--teachers.unit=group")
MECHANISMS: dict[str, Sequence[str]] = {
    "ScoreVotes": (),
    "NoisyVotes": (),
    "NoisyVotes, hard": ("--soft=false",),
    "ClippedVotes": (),
    "TauVoting": ("--tau=1.5", "--threshold_tau={half}"),
    "Canonical": ("--k=2",),
    "Joint": ("--k=2",),
    "Peeling": ("--k=2",),
    "PeeledVotes": ("--k=2",),
    "PermuteAndFlip": ("--k=2",),
    "StableTopK": (),
    "FixedStableTopK": ("--k=2", "--rank_penalty=10"),
    "Powerset": (),
    "ConfidentScreen": (),
}
TEACHERS = 400
CANARIES = {"tables": 32, "networks": 16}


def words_of(mechanism: str, teachers: int, prefix: str) -> list[str]:
    """Return the options of `pate label` for a mechanism, each after a prefix."""
    name = mechanism.partition(",")[0]
    settings = [word.format(half=teachers / 2) for word in MECHANISMS[mechanism]]
    return [
        f"--{prefix}aggregator={name}",
        *(f"--{prefix}aggregator.{word.removeprefix('--')}" for word in settings),
    ]


def write_table(number: int, size: int) -> None:
    """Write a table of private, public and test records: eight features, four labels."""
    generator = np.random.default_rng(number)
    rows = size + 250
    features = generator.standard_normal((rows, 8)).astype(np.float32)
    slopes = generator.standard_normal((8, 4))
    labels = features @ slopes + generator.standard_normal((rows, 4)) > 1
    names = np.char.mod("person-%04d", np.arange(rows))
    group = np.where(np.arange(rows) < size, np.arange(rows) // 2, np.arange(rows))
    Path("data").mkdir()
    np.savez(
        "data/table.npz",
        X=features,
        Y=labels.astype(np.uint8),
        ids=names,
        group=np.char.mod("family-%04d", group),
        split=np.repeat([0, 1, 2], [size, 200, 50]),
    )


def tables(number: int) -> tuple[str, list[str]]:
    """The table recipe: records, persons of two records, or fifty parts vote by closed form."""
    write_table(number, 1500)
    plan = PLANS[number // 3 % len(PLANS)]
    options = [f"--kind={KINDS[number % 3]}", *([plan] if plan else [])]
    return f"ScoreVotes {plan.removeprefix('--teachers.')}".strip(), [str(RECIPE), *options]


def networks(number: int) -> tuple[str, list[str]]:
    """Forty linear networks, in two chunks, that train for ten steps, and any mechanism."""
    write_table(number, 800)
    mechanism = [*MECHANISMS][number % len(MECHANISMS)]
    plan = "fit=steps num_teachers=40 num_steps=10 batch_size=8 chunk_size=20"
    options = [f"--teachers.{word}" for word in plan.split(" ")]
    options += words_of(mechanism, 40, "label.")
    return mechanism, [str(RECIPE), f"--kind={KINDS[number % 2]}", *options]


def votes(number: int, *, silos: int = 1) -> tuple[str, list[str]]:
    """Imported ballots of 400 teachers who mostly agree, and any mechanism."""
    generator = np.random.default_rng(number)
    mechanism = [*MECHANISMS][number % len(MECHANISMS)]
    features = np.random.default_rng(0).standard_normal((20, 8))
    often = np.where(np.arange(6) < 2, 0.9, 0.05)
    ballots = (generator.random((20, TEACHERS, 6)) < often).astype(np.uint8)
    Path("votes").mkdir()
    for silo, part in enumerate(np.array_split(ballots, silos, axis=1)):
        named = pate.NamedVotes(
            ids=np.array([f"s{i:02d}" for i in range(20)]),
            label_names=tuple("abcdef"),
            ballots=part,
            features=features,
        )
        named.save(Path("votes") / f"silo-{silo}.npz")
    words = words_of(mechanism, TEACHERS, "")
    options = [f"--target_epsilon={EPSILONS[number % 3]}", "--delta=1e-6", "--run=run"]
    quietly(["label", "--votes=votes", *words, *options])
    return mechanism, ["run"]


def silos(number: int) -> tuple[str, list[str]]:
    """Five silos: their imported ballots or, of each odd number, an exchange of masked counts."""
    if number % 2 == 0:
        return votes(number // 2, silos=5)
    write_table(number, 500)
    names = [f"silo-{silo}" for silo in range(5)]
    for name in (*names, "server"):
        quietly(["silo", "key", f"{name}/silo.pem", f"keys/{name}.pub"])
        Path(f"{name}/private").mkdir()
    with np.load("data/table.npz") as held:
        ids = held["ids"][held["split"] == 1]
    generator = np.random.default_rng(number)
    for name in names:
        counts = generator.integers(0, 61, (len(ids), 4))
        labels = tuple(f"label_{j}" for j in range(4))
        named = pate.NamedVotes(ids=ids, label_names=labels, counts=counts, num_teachers=60)
        named.save(Path(name) / "votes.npz")
    server = ["label", "--silos=exchange", "--public_keys=keys", "--signing_key=server/silo.pem"]
    server += [f"--target_epsilon={EPSILONS[number % 3]}", "--delta=1e-6", "--run=run"]
    server += ["--data=Arrays", "--data.path=data/table.npz", "--wait=0"]
    server += [word for name in names for word in (f"--teachers.{name}", "60")]
    while not Path("run/public/labels.npz").is_file():
        quietly(server)
        for name in names:
            own = [f"--votes={name}/votes.npz", f"--state={name}/private", "--public_keys=keys"]
            paid = [f"--signing_key={name}/silo.pem", "--max_epsilon=9", "--delta=1e-6", "--wait=0"]
            quietly(["silo", "exchange", f"--name={name}", *own, *paid])
    return "SiloVotes, masked", ["run"]


MAKERS: dict[str, Callable[[int], tuple[str, list[str]]]] = {
    "tables": tables,
    "networks": networks,
    "silos": silos,
    "votes": votes,
}


def quietly(words: Sequence[str]) -> int:
    """Run a command of pate without its output; return its exit status."""
    try:
        with redirect_stdout(StringIO()):
            return cli.main(list(words))
    except SystemExit as ended:
        if ended.code not in STATUS.values():
            raise  # stopped from outside
        return int(str(ended.code))


def measure(kind: str, number: int) -> dict[str, object]:
    """Return the facts of one audit."""
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        mechanism, words = MAKERS[kind](number)
        epsilon = EPSILONS[number % 3]
        if kind in ("tables", "networks"):
            words += [
                f"--label.target_epsilon={epsilon}",
                f"--canaries={CANARIES[kind]}",
                f"--seed={number}",
            ]
        start = time.perf_counter()
        status = quietly(["audit", *words, "--output=audited"])
        seconds = round(time.perf_counter() - start, 1)
        file = Path("audited/audit.json")
        content = json.loads(file.read_text()) if file.is_file() else {"tables": {}}
        odd = [
            f"{test['subject']}: {test['result']}"
            for tests in content["tables"].values()
            for test in tests
            if test["verdict"] != "passed"
        ]
        os.chdir("/")
    return {
        "kind": kind,
        "number": number,
        "mechanism": mechanism,
        "epsilon": epsilon,
        "status": status,
        "seconds": seconds,
        "odd": odd,
    }


def interval(alarms: int, runs: int) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a rate at 95%."""
    low = beta.ppf(0.025, alarms, runs - alarms + 1) if alarms else 0.0
    high = beta.ppf(0.975, alarms + 1, runs - alarms) if alarms < runs else 1.0
    return float(low), float(high)


def report(rows: Sequence[dict[str, object]]) -> None:
    """Print the table."""
    print("| audits of | runs | alarms | interval at 95% | some part without a test |")
    print("| --- | ---: | ---: | --- | ---: |")
    for kind in MAKERS:
        statuses = [row["status"] for row in rows if row["kind"] == kind]
        if statuses:
            low, high = interval(alarms := statuses.count(1), len(statuses))
            print(
                f"| {kind} | {len(statuses)} | {alarms} | {low:.1%} to {high:.1%}"
                f" | {statuses.count(3)} |"
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table of all that the file holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=list(MAKERS), nargs="+", default=list(MAKERS))
    parser.add_argument("--runs", type=int, default=100, help="audits of each kind")
    parser.add_argument("--folder", type=Path, default=Path("audits"), help="of the results")
    options = parser.parse_args(arguments)
    releases._SIMULATED = 0
    file = options.folder.resolve() / "audits.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    for number in range(options.runs):
        for kind in options.kind:
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            if all((row["kind"], row["number"]) != (kind, number) for row in rows):
                with file.open("a") as lines:
                    lines.write(json.dumps(measure(kind, number)) + "\n")
    report([json.loads(line) for line in file.read_text().splitlines()])


if __name__ == "__main__":
    main()
