"""Check a privacy statement by the standard library: python verify.py privacy.json owner.pub."""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from hashlib import sha256
from math import erfc, exp, expm1, inf, isclose, lgamma, log, log1p, pi, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

FIELDS = {"GaussianEvent": "noise_multiplier", "GaussianThresholdEvent": "noise_multiplier"}
FIELDS |= {"BoundedRangeEvent": "eta", "PureDPEvent": "epsilon", "FailureEvent": "delta"}
GAUSSIAN, TEST, _, PURE, FAILURE = FIELDS


def need(holds: object, expected: str) -> None:
    """Refuse what does not hold."""
    if not holds:
        raise ValueError(f"expected {expected}")


def add(total: Counter[Any], event: Any, relation: str, units: int, times: int) -> None:
    """Add the basic events for units that reach so many teachers."""
    need(event["neighboring_relation"] == relation, f"an event under {relation}")
    if (kind := event["type"]) in ("ComposedEvent", "RepeatedEvent"):
        for part in event["events"] or [{}] if kind == "ComposedEvent" else [event["event"]]:
            add(total, part, relation, units, times * max(1, event.get("count", 1)))
        return
    x, noise = event.get(FIELDS.get(kind, ""), 0), kind in (GAUSSIAN, TEST)
    need(0 < x < inf and type(times) is int and 0 <= times < 1e8, f"a known event, got {event}")
    need(kind != FAILURE or units == 1 or event["tail"] == "constant", "failures of one teacher")
    total[kind, log1p(-x) if kind == FAILURE else units / x if noise else units * x] += times


def law(kind: str, x: float, lean: float) -> tuple[float, float]:
    """Return the probabilities of a yes on both neighbors: their probits or logits are x apart."""
    high, low = (x, -x) if kind == PURE else (lean + x / 2, lean - x / 2)
    if kind == TEST:  # bounded in what floats hold, by which they only come closer
        return erfc(-min(high, 8) / sqrt(2)) / 2, erfc(-max(low, -37) / sqrt(2)) / 2
    return 1 / (1 + exp(-min(high, 36))), 1 / (1 + exp(min(-low, 700)))


def least(delta: float, mu_squared: float, laws: Any = ((1.0, 1.0),)) -> float:
    """Return epsilon of Gaussian noise together with an outcome of these laws."""
    low, high, m = 0.0, 2.0**20, sqrt(mu_squared / 2 + 1e-18)
    for _ in range(60):
        middle, missed = (low + high) / 2, 0.0
        for p, q in laws:
            x, y = ((at := middle - log(p / q)) / m - m) / 2, (at / m + m) / 2
            tail = exp(at) * erfc(y) if at < 600 else exp(-x * x) / (y + 0.5 / y) / sqrt(pi)
            missed += p / 2 * (erfc(x) - tail)
        low, high = (low, middle) if missed <= delta else (middle, high)
    return high


@cache
def reached(delta: float, mu_squared: float, bits: tuple[tuple[float, float, int], ...]) -> float:
    """Return the epsilon of an adversary who asks for bits of these laws, and Gaussian noise."""
    spread = sqrt(sum(n * p * (1 - p) * log(p / q * (1 - q) / (1 - p)) ** 2 for p, q, n in bits))
    laws = {0: (1.0, 1.0)}  # outcomes that the adversary takes for one have the sum of their laws
    for p, q, n in bits:
        before, laws, far = laws, {}, 4 * sqrt(n) + 6
        for k in range(max(0, int(n * p - far)), min(n, int(n * p + far)) + 1):
            loss = k * log(p / q) + (n - k) * log((1 - p) / (1 - q))
            ways = lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
            share = exp(ways + k * log(p) + (n - k) * log1p(-p))
            for place, (p0, q0) in before.items() if share > 1e-9 * delta else ():
                p1, q1 = laws.get(to := place + round(150 * loss / spread), (0.0, 0.0))
                laws[to] = p1 + p0 * share, q1 + q0 * share * exp(-loss)
    return least(delta, mu_squared, [pair for pair in laws.values() if min(pair) > 1e-300])


def follow(figure: Any, charges: list[Any], relation: str, units: int) -> str:
    """Return a figure in words, with its lower end; refuse one that its charges do not cost."""
    total, best = Counter[tuple[str, float]](), (0.0, 0.0)
    for charge in charges:
        add(total, charge["events"][relation], relation, units, charge["count"])
    delta0 = -expm1(sum(n * x for (kind, x), n in total.items() if kind == FAILURE))
    need(isclose(figure["delta0"], delta0, rel_tol=1e-6), f"delta0={delta0} under {relation}")
    left, epsilon = (figure["delta"] - delta0) / (1 - delta0), figure["epsilon"]
    noise = sum(n * x * x for (kind, x), n in total.items() if kind == GAUSSIAN)
    bits = [(*key, n) for key, n in total.items() if n and key[0] not in (GAUSSIAN, FAILURE)]
    for width in (4, 2, 1, 0.5, 0.25):  # of a search for laws that serve the adversary best
        for lean in (best[1] - width, best[1], best[1] + width):
            laws = tuple((*law(kind, x, lean), n) for kind, x, n in bits)
            best = max(best, (reached(left, noise, laws), lean))
    mus = (4 * n * NormalDist().inv_cdf(law(kind, x, 0)[1]) ** 2 for kind, x, n in bits)
    low, high = best[0] * (1 - 1e-6) - 1e-9, least(left, noise + sum(mus)) * (1 + 1e-6) + 1e-9
    need(low <= epsilon <= high, f"epsilon in {low} .. {high} under {relation}, got {epsilon}")
    return f"epsilon = {epsilon:.4f} under {relation}; an adversary reaches {best[0]:.4f}"


def main(path: Path, *keys: Path) -> None:
    """Check all but words and `reach`, and files beside it; without a key, lies throughout pass."""
    s = json.loads(path.read_bytes())
    listed, runs = {r["release"]: r for r in s["releases"]}, s.get("order", "").split()
    every = [s["kinds"][int(k)] for k, n in (run.split("x") for run in runs) for _ in range(int(n))]
    releases = [listed.get(n, r | {"release": n}) for n, r in enumerate(every, 1)] or s["releases"]
    this, budget = releases[s["release"] - 1], s["budget"] or {}
    most = max(each["max_teachers_per_unit"] for each in [*releases, budget or this])
    facts = this["published"] | {"num_queries": this["count"], "format": 2, "private": True}
    facts |= {"release": this["release"], "max_teachers_per_unit": most}
    for name, value in (facts | {"ledger": s["ledger"] | {"counts": facts["ledger"]}}).items():
        need(s[name] == value, f"{name}={value}, got {s[name]}")
    need(facts["ledger"] != "audit" and not any(r["seeded"] for r in releases), "no seeded noise")
    need([each["release"] for each in releases] == [*range(1, len(releases) + 1)], "all releases")
    unit, lines, free = this["privacy_unit"], [], 2 - (this["privacy_unit"]["unit"] == "group")
    paid = [charge for each in releases for charge in each["realised"] or [each]]
    for relation, stated in ({facts["neighboring_relation"]: {}} | s["guarantees"]).items():
        names = ("unit", "grouping", "partition")[: 3 - free * (relation == "replace_record")]
        units = {tuple(map(each["privacy_unit"].get, names)) for each in releases}
        joined = len(releases) == 1 or (len(units) == 1 and unit.get(names[-1]) is not None)
        one = joined and stated["unit"] in (s["unit"], unit["unit"])
        need(one or stated["epsilon"] is None, f"one unit in all releases, under {relation}")
        charged = {"this_release": [this], "costs": paid, "guarantees": releases}
        for name in charged if stated["epsilon"] is not None else ["this_release"]:
            figure, spent = s[name][relation], s["costs"][relation]
            if name == "guarantees" and budget.get("neighboring_relation") == relation:
                need(figure["epsilon"] == budget["max_epsilon"] >= spent["epsilon"], f"{budget}")
                need(figure["delta"] == budget["delta"] >= spent["delta"], f"{budget}")
            else:
                need(figure["delta"] == s["delta"], f"delta={s['delta']} of {name}")
                lines.append(f"{name}: {follow(figure, charged[name], relation, most)}")
    files = {"labels.npz": s["sha256"]} if path.with_name("labels.npz").exists() else {}
    if keys:
        content = (file := path.with_name("privacy.intoto.json")).read_bytes()
        with tempfile.NamedTemporaryFile("w") as signers:
            print("owner", keys[0].read_text(), file=signers, flush=True)
            command = f"ssh-keygen -Y verify -I owner -n pate -f {signers.name} -s".split()
            done = subprocess.run([*command, f"{file}.sig"], input=content, capture_output=True)
        need(done.returncode == 0, f"a signature of {file} by {keys[0]}")
        signed = {each["name"]: each["digest"]["sha256"] for each in json.loads(content)["subject"]}
        need({path.name, *files} <= {*signed}, f"{path.name} and labels among the signed files")
        files = signed | files
    for name, digest in files.items():
        need(sha256((path.parent / name).read_bytes()).hexdigest() == digest, f"{name} unchanged")
    print(*lines, f"{'signed' if keys else 'not signed'}: {', '.join(sorted(files))}", sep="\n")


if __name__ == "__main__":
    try:
        main(*map(Path, sys.argv[1:]))
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        sys.exit(f"refused: {error}")
