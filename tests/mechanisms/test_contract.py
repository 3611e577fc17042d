"""Every mechanism under the contract of `tests.contracts.mechanism_contract`."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from pate import mechanisms as m
from pate.accounting.events import Event, StabilityTestEvent
from pate.accounting.relation import NeighboringRelation
from pate.mechanisms.canonical import CanonicalNoise
from pate.mechanisms.joint import JointNoise
from pate.mechanisms.noise import Noise
from pate.mechanisms.stability import GapNoise
from tests.contracts.mechanism_contract import Array, Grid, MechanismContract, Outcome
from tests.mechanisms import oracles

Relation = NeighboringRelation
Generator = np.random.Generator


class _Selection(MechanismContract):
    """A mechanism that returns k indices."""

    k = 1
    scale = 2.0
    ordered = True

    def outcomes(self) -> list[Outcome]:
        listing = oracles.sequences if self.ordered else oracles.sets
        return listing(self.num_items, self.k)


# Lipschitz, one choice: pure curves are reached at large orders


class _Lipschitz(_Selection):
    noise: Noise = "gumbel"
    ordered = False

    def law(self, scores: Array, relation: Relation) -> Array:
        return oracles.one_shot_set_law(scores / self.scale, self.k, self.noise)

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.lipschitz_top_k(scores, k=self.k, scale=self.scale * noise, noise=self.noise, generator=generator)

    def event(self, relation: Relation) -> Event:
        return m.lipschitz_event(noise=self.noise, k=self.k, scale=self.scale, neighboring_relation=relation)


class TestExponentialMechanism(_Lipschitz):
    def law(self, scores: Array, relation: Relation) -> Array:
        return oracles.softmax(scores / self.scale)

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.exponential_mechanism(scores, scale=self.scale * noise, generator=generator)


class TestPermuteAndFlip(_Lipschitz):
    noise = "exponential"

    def law(self, scores: Array, relation: Relation) -> Array:
        return oracles.flip_law(scores / self.scale)

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.permute_and_flip(scores, scale=self.scale * noise, generator=generator)


class TestReportNoisyMax(_Lipschitz):
    noise = "laplace"
    scale = 0.6  # steep, so that the tails in which the ratio is reached lie within the grid

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.report_noisy_max(scores, scale=self.scale * noise, generator=generator)


class TestNoisyMaxLogistic(_Lipschitz):
    noise = "logistic"
    scale = 0.4


class TestNoisyMaxHalfLogistic(_Lipschitz):
    noise = "half_logistic"
    scale = 0.6


# one-shot sets


class TestOneShotExponentialMechanism(_Lipschitz):
    k = 2
    num_items = 4
    max_count = 2
    grid: Grid = ((2, 2, 0, 1), (1, 1, 1, 1), (0, 2, 2, 0))


class TestOneShotPermuteAndFlip(_Lipschitz):
    noise = "exponential"
    k = 2
    num_items = 4
    max_count = 3
    grid: Grid = ((2, 2, 0, 1), (1, 1, 1, 1), (0, 2, 2, 0))
    scale = 0.8

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.one_shot_permute_and_flip(scores, k=self.k, scale=self.scale * noise, generator=generator)


class TestOneShotLogistic(_Lipschitz):
    noise: Noise = "logistic"
    k = 2
    num_items = 4
    max_count = 3
    grid: Grid = ((2, 2, 0, 1), (1, 1, 1, 1), (0, 2, 2, 0))
    scale = 0.2


class TestOneShotHalfLogistic(TestOneShotLogistic):
    noise = "half_logistic"


class TestOneShotLaplace(_Selection):
    # as many items are left out as chosen, or lowering those left out is the cheaper way to a rare set
    num_items = 5
    max_count = 2
    k = 2
    scale = 0.25
    tolerance = 1e-3  # of the nested integrals
    grid: Grid = ((2, 2, 0, 1, 0), (1, 1, 1, 1, 1), (0, 1, 1, 0, 1))

    def law(self, scores: Array, relation: Relation) -> Array:
        return oracles.one_shot_order_law(scores / self.scale, self.k, "laplace")

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.one_shot_laplace(scores, k=self.k, scale=self.scale * noise, generator=generator)

    def event(self, relation: Relation) -> Event:
        return m.one_shot_laplace_event(k=self.k, scale=self.scale, neighboring_relation=relation)


# peeling


class TestCdpPeel(_Selection):
    num_items = 4
    max_count = 2
    k = 2
    grid: Grid = ((2, 2, 0, 1), (1, 1, 1, 1), (0, 2, 2, 0))

    def law(self, scores: Array, relation: Relation) -> Array:
        return oracles.peel_law(tuple(scores / self.scale), self.outcomes(), oracles.softmax)

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.cdp_peel(scores, k=self.k, scale=self.scale * noise, generator=generator)

    def event(self, relation: Relation) -> Event:
        return m.cdp_peel_event(k=self.k, scale=self.scale, neighboring_relation=relation)


class TestPnfPeel(TestCdpPeel):
    def law(self, scores: Array, relation: Relation) -> Array:
        return oracles.peel_law(tuple(scores / self.scale), self.outcomes(), oracles.flip_law)

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.pnf_peel(scores, k=self.k, scale=self.scale * noise, generator=generator)

    def event(self, relation: Relation) -> Event:
        return m.pnf_peel_event(k=self.k, scale=self.scale, neighboring_relation=relation)


# canonical


class TestCanonical(_Selection):
    num_items = 4
    max_count = 3
    k = 2
    scale = 1.5
    gamma = 0.5
    noise: CanonicalNoise = "gumbel"
    ordered = False
    grid: Grid = ((3, 2, 0, 1), (1, 1, 1, 1), (0, 3, 3, 0), (3, 3, 2, 2))

    def law(self, scores: Array, relation: Relation) -> Array:
        choice = oracles.softmax if self.noise == "gumbel" else oracles.flip_law
        return choice(oracles.subset_utilities(scores, self.k, self.gamma) / self.scale)

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.canonical(
            scores,
            k=self.k,
            scale=self.scale * noise,
            gamma=self.gamma,
            noise=self.noise,
            generator=generator,
        )

    def event(self, relation: Relation) -> Event:
        return m.canonical_event(noise=self.noise, scale=self.scale, neighboring_relation=relation)


class TestCanonicalTail(TestCanonical):
    gamma = 1.0


class TestCanonicalHead(TestCanonical):
    gamma = 0.0


class TestCanonicalOblique(TestCanonical):
    gamma = 0.3
    num_items = 5
    max_count = 2
    k = 3
    grid: Grid = ((2, 2, 0, 1, 0), (1, 1, 1, 1, 1), (0, 2, 2, 0, 1))


class TestCanonicalAllButOne(TestCanonical):
    k = 3


class TestCanonicalOne(TestCanonical):
    k = 1


class TestCanonicalFlip(TestCanonical):
    noise = "exponential"
    scale = 0.4


class TestCanonicalFlipTail(TestCanonicalFlip):
    gamma = 1.0


class TestCanonicalFlipOblique(TestCanonicalFlip):
    gamma = 0.7
    num_items = 5
    max_count = 2
    k = 2
    grid: Grid = ((2, 2, 0, 1, 0), (1, 1, 1, 1, 1), (0, 2, 2, 0, 1))


# joint


class TestJoint(_Selection):
    num_items = 4
    max_count = 3
    k = 2
    scale = 2.0
    noise: JointNoise = "gumbel"
    grid: Grid = ((3, 2, 0, 1), (1, 1, 1, 1), (0, 3, 3, 0), (3, 3, 2, 2))
    loose_because = (
        "losses rise by the whole window only where most others stay: no pair has half its mass at either end"
    )

    def law(self, scores: Array, relation: Relation) -> Array:
        choice = oracles.softmax if self.noise == "gumbel" else oracles.flip_law
        return choice(-oracles.sequence_losses(scores, self.k) / self.scale)

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.joint(scores, k=self.k, scale=self.scale * noise, noise=self.noise, generator=generator)

    def event(self, relation: Relation) -> Event:
        return m.joint_event(k=self.k, noise=self.noise, scale=self.scale, neighboring_relation=relation)


class TestJointOne(TestJoint):
    loose_because = ""
    k = 1
    num_items = 3
    grid: Grid = ((3, 2, 0), (1, 1, 1), (0, 3, 3))


class TestJointAll(TestJoint):
    k = 3
    num_items = 3
    scale = 1.0
    grid: Grid = ((3, 2, 0), (1, 1, 1), (0, 3, 3))


class TestJointFlip(TestJoint):
    noise = "exponential"
    scale = 0.5


# stability


class _Gap(MechanismContract):
    upper = 3
    scale = 3.0
    noise: GapNoise = "gumbel"
    allow_empty = True
    regularizer: tuple[float, ...] | None = None
    kbar: int | None = None

    def candidates(self) -> list[int]:
        last = self.num_items if self.allow_empty else self.num_items - 1
        return list(range(0 if self.allow_empty else 1, min(last, self.kbar or last) + 1))

    def outcomes(self) -> list[Outcome]:
        return [(j,) for j in self.candidates()]

    def law(self, scores: Array, relation: Relation) -> Array:
        q = np.array(oracles.gaps(scores.tolist(), self.upper), dtype=float)
        if self.regularizer is not None:
            q += self.regularizer
        if self.noise == "gumbel":
            return oracles.softmax(q[self.candidates()] / self.scale)
        return oracles.max_law(q[self.candidates()] / self.scale, self.noise)

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        _, q = m.sort_counts(np.atleast_2d(scores), upper=self.upper)
        return m.choose_gap(
            q,
            scale=self.scale * noise,
            generator=generator,
            allow_empty=self.allow_empty,
            noise=self.noise,
            regularizer=self.regularizer,
            kbar=self.kbar,
        )

    def event(self, relation: Relation) -> Event:
        return m.choose_gap_event(
            scale=self.scale,
            neighboring_relation=relation,
            noise=self.noise,
            num_candidates=len(self.candidates()),
        )


class _WideGap(_Gap):
    """Enough room for two gaps to move by their whole window and to hold almost all of the mass."""

    max_count = 6
    upper = 6
    scale = 1.0
    grid: Grid = ((4, 2, 0), (2, 2, 2), (0, 4, 6))


class TestChooseGap(_WideGap):
    pass


class TestChooseGapWithoutSentinels(_WideGap):
    allow_empty = False


class TestChooseGapExponential(_WideGap):
    noise = "exponential"
    allow_empty = False
    scale = 0.3
    grid: Grid = ((3, 2, 2), (2, 2, 2), (4, 2, 1))


class TestChooseGapLaplace(_WideGap):
    noise = "laplace"
    allow_empty = False
    scale = 0.2
    grid: Grid = ((3, 2, 2), (2, 2, 2), (4, 2, 1))


class TestChooseGapGaussian(_Gap):
    noise = "gaussian"
    loose_because = "what is proven adds up over the gaps, or releases all of them; no tighter theorem is known"


class TestChooseGapRegularized(_WideGap):
    regularizer = (-6.0, 0.0, 0.0, -math.inf)


class TestChooseGapUnknownDomain(_WideGap):
    kbar = 2


class TestStabilityTest(MechanismContract):
    """The test with the set that it releases, for a fixed rank."""

    num_items = 2
    k = 1
    max_count = 20
    sigma = 2.0
    delta = 1e-4  # so small that the mass it may hide does not make the curve look loose
    grid: Grid = ((18, 9), (14, 5), (0, 8), (17, 7))

    def outcomes(self) -> list[Outcome]:
        return [*oracles.sets(self.num_items, self.k), (-1,) * self.k]

    def passing(self, q: float, relation: Relation) -> float:
        s = relation.count_window
        return float(ndtr((max(q, s) - s) / self.sigma + ndtri(self.delta)))

    def law(self, scores: Array, relation: Relation) -> Array:
        order = oracles.ranks(scores.tolist())
        p = self.passing(oracles.gaps(scores.tolist(), self.max_count)[self.k], relation)
        best = tuple(sorted(order[: self.k]))
        return np.array([p if o == best else (1 - p if o[0] < 0 else 0.0) for o in self.outcomes()])

    def passes(self, q: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.stability_test(
            q,
            sigma=self.sigma * noise,
            delta_test=self.delta,
            shift=relation.count_window,
            generator=generator,
        )

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        order, q = m.sort_counts(np.atleast_2d(scores), upper=self.max_count)
        passed = self.passes(q[:, self.k], noise, relation, generator)
        return np.where(passed[:, None], np.sort(order[:, : self.k], axis=1), -1)

    def event(self, relation: Relation) -> Event:
        return StabilityTestEvent(
            neighboring_relation=relation,
            sigma=self.sigma,
            delta_test=self.delta,
            shift=relation.count_window,
            num_teachers=self.max_count,
        )


class TestStabilityTestOfTwo(TestStabilityTest):
    num_items = 3
    max_count = 8
    k = 2
    sigma = 1.5
    delta = 1e-3
    grid: Grid = ((8, 8, 0), (8, 2, 2), (7, 1, 7), (5, 0, 1))


class TestStabilityTestLaplace(TestStabilityTest):
    sigma = 1.0

    def passing(self, q: float, relation: Relation) -> float:
        s = relation.count_window
        return float(oracles.NOISES["laplace"][2](-math.log(2 * self.delta) - (max(q, s) - s) / self.sigma))

    def passes(self, q: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.stability_test_laplace(
            q,
            scale=self.sigma * noise,
            delta_test=self.delta,
            shift=relation.count_window,
            generator=generator,
        )

    def event(self, relation: Relation) -> Event:
        return m.stability_test_laplace_event(
            scale=self.sigma,
            delta_test=self.delta,
            shift=relation.count_window,
            neighboring_relation=relation,
        )


class TestStableTopK(MechanismContract):
    max_count = 4
    grid: Grid = ((4, 2, 0), (4, 1, 1), (0, 1, 4), (4, 0, 1))
    scale = 2.0
    sigma = 1.5
    delta = 0.02
    loose_because = "a failed test hides which rank was chosen"
    run_with: Relation | None = None

    def shift(self, relation: Relation) -> int:
        return (self.run_with or relation).count_window

    def outcomes(self) -> list[Outcome]:
        return list(itertools.product((0, 1), repeat=self.num_items + 1))

    def law(self, scores: Array, relation: Relation) -> Array:
        q = oracles.gaps(scores.tolist(), self.max_count)
        order = oracles.ranks(scores.tolist())
        s = self.shift(relation)
        law = dict.fromkeys(self.outcomes(), 0.0)
        for j, p in enumerate(oracles.softmax(np.array(q) / self.scale)):
            passing = float(ndtr((max(q[j], s) - s) / self.sigma + ndtri(self.delta)))
            members = tuple(int(i in order[:j]) for i in range(self.num_items))
            law[(*members, 1)] += p * passing
            law[(0,) * (self.num_items + 1)] += p * (1 - passing)
        return np.array(list(law.values()))

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        members, released = m.stable_top_k(
            np.atleast_2d(scores),
            upper=self.max_count,
            scale_gap=self.scale * noise,
            sigma_test=self.sigma * noise,
            delta_test=self.delta,
            shift=self.shift(relation),
            generator=generator,
        )
        return np.column_stack((members, released)).astype(int)

    def event(self, relation: Relation) -> Event:
        return m.stable_top_k_event(
            num_teachers=self.max_count,
            scale_gap=self.scale,
            sigma_test=self.sigma,
            delta_test=self.delta,
            shift=self.shift(relation),
            neighboring_relation=relation,
        )


class TestStableTopKRunForAddRemove(TestStableTopK):
    """Run with a shift of 1 and accounted under both relations."""

    run_with = Relation.ADD_REMOVE_TEACHER


class TestFixedStableTopK(TestStableTopK):
    k = 2
    num_items = 4
    max_count = 3
    pull = 1.0
    scale_peel = 1.2
    grid: Grid = ((3, 3, 0, 0), (3, 1, 1, 0), (0, 3, 3, 3), (1, 2, 0, 3))
    loose_because = "the worst case of k rounds of peeling is not what most ranks lead to"

    def law(self, scores: Array, relation: Relation) -> Array:
        q = np.array(oracles.gaps(scores.tolist(), self.max_count), dtype=float)
        order = oracles.ranks(scores.tolist())
        s, k = self.shift(relation), self.k
        law = dict.fromkeys(self.outcomes(), 0.0)
        chances = oracles.softmax((q - self.pull * np.abs(np.arange(len(q)) - k)) / self.scale)
        for j, chance in enumerate(chances):
            passing = float(ndtr((max(q[j], s) - s) / self.sigma + ndtri(self.delta)))
            law[(0,) * (self.num_items + 1)] += chance * (1 - passing)
            inside, outside = order[:j], order[j:]
            if j <= k:
                pool, rounds, sign = outside, k - j, 1
            elif j - k <= k:
                pool, rounds, sign = inside, j - k, -1
            else:
                pool, rounds, sign = inside, k, 1
            peels = oracles.sequences(len(pool), rounds)
            utilities = tuple(sign * scores[i] / self.scale_peel for i in pool)
            for peel, p in zip(peels, oracles.peel_law(utilities, peels, oracles.softmax), strict=True):
                picked = {pool[i] for i in peel}
                chosen = set(inside) | picked if j <= k else (set(inside) - picked if sign < 0 else picked)
                members = tuple(int(i in chosen) for i in range(self.num_items))
                law[(*members, 1)] += chance * passing * p
        return np.array(list(law.values()))

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        members, released, rounds = m.fixed_stable_top_k(
            np.atleast_2d(scores),
            k=self.k,
            upper=self.max_count,
            pull=self.pull,
            scale_gap=self.scale * noise,
            sigma_test=self.sigma * noise,
            delta_test=self.delta,
            shift=self.shift(relation),
            scale_peel=self.scale_peel * noise,
            generator=generator,
        )
        assert (members.sum(axis=1) == self.k * released).all()
        assert (rounds <= self.k * released).all()
        return np.column_stack((members, released)).astype(int)

    def event(self, relation: Relation) -> Event:
        return m.fixed_stable_top_k_event(
            k=self.k,
            num_teachers=self.max_count,
            scale_gap=self.scale,
            sigma_test=self.sigma,
            delta_test=self.delta,
            shift=self.shift(relation),
            scale_peel=self.scale_peel,
            neighboring_relation=relation,
        )


class TestFixedStableTopOne(TestFixedStableTopK):
    k = 1
    num_items = 3
    max_count = 4
    grid: Grid = ((4, 3, 0), (4, 4, 4), (0, 4, 3))


# unknown domain


class TestLimitedDomain(MechanismContract):
    num_items = 4
    max_count = 3
    k = 2
    kbar = 2
    scale = 0.7
    delta = 0.05
    grid: Grid = ((3, 3, 0, 0), (3, 1, 1, 0), (1, 1, 1, 1), (0, 3, 0, 3))
    loose_because = "the threshold ends most lists early, and the pair that is the worst of a round is not of the next"

    def outcomes(self) -> list[Outcome]:
        items = range(self.num_items)
        return [
            (*listed, *(-1,) * (self.k - n)) for n in range(self.k + 1) for listed in itertools.permutations(items, n)
        ]

    def law(self, scores: Array, relation: Relation) -> Array:
        order = oracles.ranks(scores.tolist())
        end = scores[order[self.kbar]] + relation.count_window + self.scale * math.log(self.kbar / self.delta)
        domain = {i: scores[i] / self.scale for i in order[: self.kbar]}
        law = []
        for outcome in self.outcomes():
            left, p = dict(domain), 1.0
            for item in outcome:
                mass = {**{i: math.exp(u) for i, u in left.items()}, -1: math.exp(end / self.scale)}
                p *= mass.get(item, 0.0) / sum(mass.values())
                if item == -1:
                    break
                left.pop(item, None)
            law.append(p)
        return np.array(law)

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.limited_domain(
            scores,
            k=self.k,
            kbar=self.kbar,
            scale=self.scale * noise,
            delta=self.delta,
            neighboring_relation=relation,
            generator=generator,
        ).items

    def event(self, relation: Relation) -> Event:
        return m.limited_domain_event(k=self.k, scale=self.scale, delta=self.delta, neighboring_relation=relation)


class TestLimitedDomainOne(TestLimitedDomain):
    """So little failure that the mass it may hide does not make the curve look loose."""

    num_items = 3
    max_count = 4
    k = 1
    delta = 0.01
    grid: Grid = ((4, 4, 0), (4, 2, 1), (1, 1, 1), (0, 4, 4))
    loose_because = ""


class TestLimitedDomainLeaky(TestLimitedDomain):
    """A probability of failure that is often met."""

    k = 2
    kbar = 2
    scale = 1.0
    delta = 0.4


class TestTopStable(MechanismContract):
    num_items = 4
    max_count = 4
    k = 1
    kbar = 2
    scale_threshold = 0.7
    scale_gap = 1.1
    scale_peel = 1.0
    delta = 0.1
    grid: Grid = ((4, 4, 0, 0), (4, 0, 0, 0), (1, 1, 1, 1), (0, 4, 0, 4))
    tolerance = 1e-5
    loose_because = "the analysis of the sparse vector technique is not tight, and lists seldom use all their rounds"

    def outcomes(self) -> list[Outcome]:
        listings = [s for n in range(self.k + 1) for s in oracles.sets(self.num_items, n)]
        return [(*s, *(-1,) * (self.k - len(s))) for s in listings]

    def law(self, scores: Array, relation: Relation) -> Array:
        order = oracles.ranks(scores.tolist())
        x = [scores[i] for i in order]
        turns = [*range(self.k, self.kbar + 1), *range(self.k - 1, 0, -1)]
        threshold = m.unstable_threshold(
            self.delta / self.kbar, scale_threshold=self.scale_threshold, scale_gap=self.scale_gap
        )
        q = {i: max(x[i - 1] - x[i] - relation.count_window, 0) for i in turns}
        z, weights = oracles.laplace_panels(self.scale_threshold, [q[i] - threshold for i in turns])
        law = dict.fromkeys(self.outcomes(), 0.0)
        waiting = weights.copy()
        for i in turns:
            passing = oracles.NOISES["laplace"][2]((threshold + z - q[i]) / self.scale_gap)
            stopped = float(waiting @ passing)
            waiting = waiting * (1 - passing)
            peels = oracles.sequences(i, min(i, self.k))
            chances = oracles.peel_law(tuple(v / self.scale_peel for v in x[:i]), peels, oracles.softmax)
            for peel, chance in zip(peels, chances, strict=True):
                released = sorted(order[r] for r in peel)
                law[(*released, *(-1,) * (self.k - len(released)))] += stopped * chance
        law[(-1,) * self.k] += float(waiting.sum())
        return np.array(list(law.values()))

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return m.top_stable(
            scores,
            k=self.k,
            kbar=self.kbar,
            scale_threshold=self.scale_threshold * noise,
            scale_gap=self.scale_gap * noise,
            scale_peel=self.scale_peel * noise,
            delta=self.delta,
            neighboring_relation=relation,
            generator=generator,
        ).items

    def event(self, relation: Relation) -> Event:
        return m.top_stable_event(
            k=self.k,
            scale_threshold=self.scale_threshold,
            scale_gap=self.scale_gap,
            scale_peel=self.scale_peel,
            delta=self.delta,
            neighboring_relation=relation,
        )


class TestTopStableTwo(TestTopStable):
    k = 2
    kbar = 3
    max_count = 3
    grid: Grid = ((3, 3, 0, 0), (3, 0, 0, 0), (1, 1, 1, 1), (0, 3, 0, 3))


# all counts, in bins


class TestLaplaceCounts(MechanismContract):
    num_items = 2
    grid: Grid = ((3, 2), (1, 1), (0, 3))
    scale = 1.5
    edges = np.array([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0])

    def outcomes(self) -> list[Outcome]:
        return list(itertools.product(range(len(self.edges) + 1), repeat=self.num_items))

    def law(self, scores: Array, relation: Relation) -> Array:
        ends = np.concatenate(([-np.inf], self.edges, [np.inf]))
        cdf = oracles.NOISES["laplace"][1]
        parts = [np.diff(cdf((ends - x) / self.scale)) for x in scores]
        return np.asarray(np.multiply.outer(parts[0], parts[1])).ravel()

    def release(self, scores: Array, scale: float, generator: Generator) -> Array:
        return m.laplace_counts(scores, scale=scale, generator=generator)

    def sample(self, scores: Array, noise: float, relation: Relation, generator: Generator) -> Array:
        return np.searchsorted(self.edges, self.release(scores, self.scale * noise, generator))

    def event(self, relation: Relation) -> Event:
        return m.laplace_counts_event(num_items=self.num_items, scale=self.scale, neighboring_relation=relation)


class TestGammaCounts(TestLaplaceCounts):
    scale = 0.8
    tolerance = 1e-5
    # bins that reach far out, where the cube's face moves past all of a bin's noise at once
    edges = np.array([-6.0, -1.0, 1.0, 2.0, 4.0, 9.0])

    def law(self, scores: Array, relation: Relation) -> Array:
        ends = np.concatenate(([-np.inf], self.edges, [np.inf]))
        kinks = sorted({abs(e - x) / self.scale for e in self.edges for x in scores} | {0.0})
        steps = (0.5, 1, 2, 4, 7, 11, 16, 24, 40)
        ends_r = sorted({*kinks, *(kinks[-1] + s for s in steps), *np.arange(0.5, kinks[-1], 0.5)})
        nodes, weights = np.polynomial.legendre.leggauss(12)
        low, high = np.array(ends_r[:-1])[:, None], np.array(ends_r[1:])[:, None]
        r = ((low + high) / 2 + (high - low) / 2 * nodes).ravel()
        w = ((high - low) / 2 * weights).ravel() * r**2 * np.exp(-r) / 2
        parts = []
        for x in scores:
            z = np.clip((ends[:, None] - x) / self.scale, -r, r)
            parts.append(np.diff(z, axis=0) / (2 * r))
        return np.asarray(np.einsum("ir,jr,r->ij", parts[0], parts[1], w)).ravel()

    def release(self, scores: Array, scale: float, generator: Generator) -> Array:
        return m.gamma_counts(scores, scale=scale, generator=generator)

    def event(self, relation: Relation) -> Event:
        return m.gamma_counts_event(scale=self.scale, neighboring_relation=relation)


def test_the_contract_knows_every_event_function() -> None:
    """A mechanism without a contract would be a mechanism without a proof."""
    offered = {name for name in m.__all__ if name.endswith("_event")}
    text = Path(__file__).read_text()
    assert all(f"m.{name}(" in text for name in offered)


@pytest.mark.parametrize("relation", Relation)
def test_a_window_half_as_wide_is_refuted(relation: Relation) -> None:
    """The enumeration would notice an event that claims too little."""

    class Halved(TestJoint):
        def event(self, relation: Relation) -> Event:
            return m.joint_event(k=self.k, scale=2 * self.scale, neighboring_relation=relation)

    with pytest.raises(AssertionError):
        Halved().test_divergence_between_all_neighbors_is_within_the_curve(relation)


@pytest.mark.parametrize("relation", Relation)
def test_half_the_probability_of_failure_is_refuted(relation: Relation) -> None:
    """The enumeration would notice a set that passes more often than the event admits."""

    class Halved(TestStabilityTest):
        def event(self, relation: Relation) -> Event:
            event = super().event(relation)
            assert isinstance(event, StabilityTestEvent)
            return replace(event, delta_test=self.delta / 2)

    with pytest.raises(AssertionError):
        Halved().test_divergence_between_all_neighbors_is_within_the_curve(relation)
