"""Made tasks on which more epsilon must not be worse, and the table of what is learned.

`python -m tests.labeling.aggregators.made_tasks` prints accuracy / mAP by epsilon, with `--rivals`
also the better figure of rivals on the same map. Shifted public samples are declared as such.
"""

import argparse
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.datasets import load_digits

from pate import Outlook, Votes
from pate._core.accounting.accountant import COARSE_ORDERS
from pate._core.validation import MOST_VOTERS, BoolArray, FloatArray, UInt8Array
from pate._labeling.data.feature_maps import AutoFeatures
from pate._labeling.linear import student_of
from pate._labeling.runs.released import average_precision
from pate._labeling.votes.voters import Geometry, RecordVoters, with_drawn
from pate.accounting import Event, NeighboringRelation, Target, calibrate_scale
from pate.aggregators import Moments, ScoreVotes
from pate.data import ArrayFeatures
from scripts.rivals.contributions import Contributions, PublicScale
from scripts.rivals.descent import COUNT_NOISE, Descent, learning_rate
from scripts.rivals.moments import (
    Moments as Sums,
    moments_event,
    noised_crosses,
    noisy_coding,
    solve_known,
)

TEST = 2000


class Task(NamedTuple):
    """Private records, public samples and test records: features ``[N, F]``, labels ``[N, C]``."""

    features: FloatArray
    labels: UInt8Array
    public: FloatArray
    test: FloatArray
    truth: UInt8Array


def _split(features: FloatArray, labels: FloatArray | BoolArray, num: int, public: int) -> Task:
    cut = num + public
    truth = labels.astype(np.uint8)
    return Task(features[:num], truth[:num], features[num:cut], features[cut:], truth[cut:])


def _drawn(random: np.random.Generator, logits: FloatArray) -> FloatArray:
    return (random.random(logits.shape) < expit(logits)).astype(np.float64)


def linear(random: np.random.Generator) -> Task:
    """Labels that a hyperplane separates; correlated columns of unequal widths."""
    widths = np.linspace(1.5, 0.3, 20)[:, None]
    x = random.normal(size=(3300 + TEST, 20)) @ (random.normal(size=(20, 20)) * widths)
    logits = x @ random.normal(size=(20, 6))
    return _split(x, logits / logits.std(axis=0) * 6 + random.normal(size=6) > 0, 3000, 300)


def logistic(random: np.random.Generator) -> Task:
    """Labels of logistic models, far from certain."""
    x = random.normal(size=(3300 + TEST, 20))
    logits = x @ random.normal(size=(20, 8)) / np.sqrt(5) + random.normal(size=8)
    return _split(x, _drawn(random, logits), 3000, 300)


def bent(random: np.random.Generator) -> Task:
    """Exclusive or of two columns."""
    x = random.normal(size=(4400 + TEST, 8))
    return _split(x, x[:, :4] * x[:, 1:5] > 0, 4000, 400)


def rules(random: np.random.Generator) -> Task:
    """Two thresholds, or a third."""
    x = random.uniform(-1, 1, size=(4400 + TEST, 10))
    labels = []
    for _ in range(5):
        (a, b, c), t = random.choice(10, 3, replace=False), random.uniform(-0.4, 0.4, 3)
        labels.append((x[:, a] > t[0]) & (x[:, b] > t[1]) | (x[:, c] > 0.6 + 0.3 * t[2]))
    return _split(x, np.stack(labels, axis=1), 4000, 400)


def clusters(random: np.random.Generator) -> Task:
    """A thousand records around twelve centers, each with a set of labels."""
    which = random.integers(12, size=1200 + TEST)
    x = (random.normal(size=(12, 16)) * 2)[which] + random.normal(size=(len(which), 16))
    sets = random.random((12, 6)) < 0.35
    return _split(x, sets[which] ^ (random.random((len(which), 6)) < 0.05), 1000, 200)


def few(random: np.random.Generator) -> Task:
    """Five hundred records with dense labels."""
    x = random.normal(size=(800 + TEST, 12))
    logits = x @ random.normal(size=(12, 6)) / np.sqrt(3) + 0.3 * random.normal(size=6)
    return _split(x, _drawn(random, logits), 500, 300)


def rare(random: np.random.Generator) -> Task:
    """Labels of about 2%."""
    x = random.normal(size=(8500 + 3 * TEST, 15))
    logits = x @ random.normal(size=(15, 8)) / np.sqrt(15) * 2.5
    logits -= np.quantile(logits, 0.985, axis=0)
    return _split(x, _drawn(random, 3 * logits), 8000, 500)


def few_public(random: np.random.Generator) -> Task:
    """Five sets of digits, with 50 public samples of 64 columns."""
    digits = load_digits()
    order = random.permutation(len(digits.data))
    sets = random.permuted(np.tile(np.arange(10) < 4, (5, 1)), axis=1)
    return _split(digits.data[order], sets[:, digits.target[order]].T, 1200, 50)


def pictures(random: np.random.Generator) -> Task:
    """The ten digits, by their 64 pixels."""
    digits = load_digits()
    order = random.permutation(len(digits.data))
    return _split(digits.data[order], digits.target[order][:, None] == np.arange(10), 1000, 250)


def shifted(random: np.random.Generator) -> Task:
    """As `logistic`, with public samples that are shrunk and moved."""
    task = logistic(random)
    return task._replace(public=0.4 * task.public + 0.5 * random.normal(size=20))


def wide(random: np.random.Generator) -> Task:
    """Four hundred columns of thirty factors, with as many public samples."""
    factors = random.normal(size=(2400 + TEST, 30))
    loads = random.normal(size=(30, 400)) * np.linspace(1.5, 0.2, 30)[:, None]
    x = factors @ loads + random.normal(size=(len(factors), 400))
    logits = factors @ random.normal(size=(30, 8)) / np.sqrt(30) * 3
    return _split(x, _drawn(random, logits), 2000, 400)


def texts(random: np.random.Generator) -> Task:
    """Counts of a thousand words, from twelve topics."""
    topics = random.gamma(0.15, size=(12, 1000)) / (np.arange(1000) + 5.0)
    topics /= topics.sum(axis=1, keepdims=True)
    mixed = random.gamma(0.3, size=(4500 + TEST, 12))
    mixed /= mixed.sum(axis=1, keepdims=True)
    words = random.poisson(60 * (mixed @ topics)).astype(np.float64)
    return _split(
        words, _drawn(random, 6 * (mixed @ (random.random((12, 8)) < 0.25) - 0.3)), 4000, 500
    )


TASKS: dict[str, Callable[[np.random.Generator], Task]] = {
    each.__name__: each
    for each in (
        linear, logistic, bent, rules, clusters, few, rare, few_public, pictures, shifted, wide, texts
    )
}  # fmt: skip


def _mapped(task: Task) -> tuple[list[FloatArray], tuple[int, ...]]:
    """Return private, public and test features of the default map, and the widths of its parts."""
    columns = AutoFeatures().fit(ArrayFeatures(task.public.astype(np.float32)))
    rows = (ArrayFeatures(rows.astype(np.float32)) for rows in (task[0], task[2], task[3]))
    return [columns.transform(each).astype(np.float64) for each in rows], tuple(columns.widths)


def _figures(logits: FloatArray, truth: UInt8Array) -> tuple[float, float]:
    precise = average_precision(logits, truth > 0).mean()
    return float(((logits > 0) == truth).mean()), float(precise)


def learned(
    name: str, epsilons: tuple[float, ...], seed: int, *, shifted: bool = False
) -> FloatArray:
    """Return test accuracy and mAP ``[E, 2]`` of students of records that vote, by epsilon.

    Public samples may be declared ``shifted``.
    """
    task = TASKS[name](np.random.default_rng(seed))
    (private, public, test), widths = _mapped(task)
    geometry = Geometry.of(with_drawn(public, widths), widths)
    voters = RecordVoters(
        geometry=geometry,
        num_voters=MOST_VOTERS,  # nominal, as in a run
        num_labels=task.labels.shape[1],
        coordinates=geometry.coordinates(private),
        labels=task.labels,
        shifted=shifted,
    )
    votes = Votes.from_voters(voters, public)
    assert isinstance(votes, Moments)
    outlook = Outlook(
        shape=votes.shape,
        relation=NeighboringRelation.REPLACE_RECORD,
        num_queries=votes.num_queries,
        delta=1e-6,
    )
    figures = []
    for epsilon in epsilons:
        target = outlook.target(epsilon=epsilon)
        voting = ScoreVotes(multiplier_scores=1.0).calibrated(target, votes.shape)
        assert voting is not None
        release = voting.aggregate(votes, generator=np.random.default_rng(seed))
        student = student_of(release, public, votes.num_teachers)
        figures.append(_figures(student.logits(test), task.truth))
    return np.array(figures)


def rivals(name: str, epsilons: tuple[float, ...], seed: int) -> dict[str, FloatArray]:
    """Return the same figures of the constant answer and of linear rivals on the same map.

    The constant answer is not private. Least squares have noisy moments with labels, and public
    ones of features.
    """
    task, random = TASKS[name](np.random.default_rng(seed)), np.random.default_rng(seed)
    mapped, _ = _mapped(task)
    scale = PublicScale.of(ArrayFeatures(mapped[1].astype(np.float32)))
    x, public, test = (scale(ArrayFeatures(rows.astype(np.float32))) for rows in mapped)
    private = Contributions(
        features=x, labels=task.labels.astype(np.float32), starts=np.arange(len(x))
    )
    products = public.T.astype(np.float64) @ public / len(public)
    given = np.broadcast_to(task.labels.mean(axis=0) - 0.5, task.truth.shape)
    figures: dict[str, FloatArray] = {
        "constant": np.array([_figures(given, task.truth)] * len(epsilons))
    }
    squares, descents = [], []
    for epsilon in epsilons:
        coding = noisy_coding(private, _noise(moments_event, epsilon), generator=random)
        exact = Sums.of(private, coding.clip, coding.shift)
        noised = noised_crosses(exact, products, coding.noise_multiplier, generator=random)
        weights = solve_known(noised, coding.noise_multiplier)
        squares.append(_figures(test @ weights + coding.shift - 0.5, task.truth))
        noise = _noise(DESCENT.event, epsilon)
        descents.append(_figures(test @ _descend(private, products, noise, random), task.truth))
    return figures | {"least squares": np.array(squares), "DP-SGD": np.array(descents)}


DESCENT = Descent()


@cache
def _noise(event: Callable[[float], Event], epsilon: float) -> float:
    target = Target(epsilon=epsilon, delta=1e-6, num_queries=1)
    return calibrate_scale(event, target, tolerance=1e-3, orders=COARSE_ORDERS)


def _descend(
    private: Contributions, products: FloatArray, noise: float, random: np.random.Generator
) -> FloatArray:
    """Return weights ``[F, C]`` as `scripts.rivals.descent.descend` does, without opacus."""
    x, y = private.features.astype(np.float64), private.labels
    count = max(1.0, len(y) + random.normal(scale=COUNT_NOISE * noise))
    rate = learning_rate(
        np.linalg.eigvalsh(products).astype(np.float64),
        settings=DESCENT,
        num_labels=y.shape[1],
        noise_multiplier=noise,
        count=count,
    )
    clip, norms = DESCENT.clip * y.shape[1] ** 0.5, np.linalg.norm(x, axis=1)
    weights, total = np.zeros((2, x.shape[1], y.shape[1]))
    for step in range(DESCENT.num_steps):
        taken = np.flatnonzero(random.random(len(y)) < DESCENT.sampling_rate)
        errors = expit(x[taken] @ weights) - y[taken]
        lengths = np.linalg.norm(errors, axis=1) * norms[taken]
        clipped = x[taken].T @ (errors * np.minimum(1, clip / lengths)[:, None])
        noisy = clipped + random.normal(scale=noise * clip, size=weights.shape)
        weights = weights - rate / (DESCENT.sampling_rate * count) * noisy
        total += weights * (step >= DESCENT.num_steps // 2)
    return np.asarray(total * 2 / DESCENT.num_steps)


def main() -> None:
    """Print a row of Markdown for each task: the mean of three seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.25, 0.5, 1, 2, 4, 16, 64])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rivals", action="store_true")
    options = parser.parse_args()
    epsilons, seeds = tuple(options.epsilons), range(options.seeds)
    ways = ("votes", "best rival") if options.rivals else ("votes",)
    titles = [f"{way}, {epsilon:g}" for epsilon in epsilons for way in ways]
    print(f"| task | {' | '.join(titles)} |\n|---|{'---:|' * len(titles)}")
    for name in options.tasks:
        ours = [learned(name, epsilons, seed, shifted=name == "shifted") for seed in seeds]
        shown = [np.mean(ours, axis=0)]
        if options.rivals:
            theirs = [[*rivals(name, epsilons, seed).values()] for seed in seeds]
            shown.append(np.mean(theirs, axis=0).max(axis=0))
        figures = np.stack(shown, axis=1).reshape(-1, 2)
        cells = " | ".join(f"{right:.3f} / {precise:.3f}" for right, precise in figures)
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
