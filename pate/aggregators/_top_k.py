"""Sets and lists of labels for a public k: the aggregators of the mechanisms that choose them."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.special import ndtr

from pate import mechanisms
from pate._validation import FloatArray
from pate._votes import Counts
from pate.aggregators._base import Release
from pate.aggregators._of_mechanism import MechanismAggregator


class Canonical(MechanismAggregator[mechanisms.CanonicalMechanism], tag="canonical"):
    """Release one set of k labels, chosen among all of them at the cost of a single choice.

    Choose it if every sample has k labels and there are at most 25 in all, or k is most of them:
    the cost of a query grows neither with k nor with the number of labels, but the gap that it
    needs grows with the logarithm of the number of sets (``gap_needed``; `Peeling` compares).

    Privacy: one ``eta``-bounded-range choice, ``eta = window / scale_canonical`` with a window of 1
    vote under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD, for both losses of
    `pate.mechanisms.CanonicalMechanism`: ours, which credits the k most voted labels with their
    lead over the next one, and the loss of Shekelyan & Loukides (2022).

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = Canonical(k=2, scale_canonical=2.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0, 0],
           [1, 0, 1, 0]], dtype=uint8)

    Args:
        k: number of labels of every sample, below the number of labels.
        noise_law: ``gumbel``, or ``exponential`` for a pure choice of ``eta`` (permute-and-flip
            among all sets).
        scale_canonical: scale of the noise, in votes.
        neighboring_relation: the relation under which the cost is stated first.
        gamma: weight of the least voted label in the set against the most voted one outside it, in
            [0, 1].
        loss: ``lead`` (ours) or ``published``, with which the k most voted labels are less likely
            at the same cost.

    Raises:
        ValueError: on a scale that is not positive, ``k < 1``, ``gamma`` outside [0, 1] or an
            unknown loss.
    """


class Peeling(MechanismAggregator[mechanisms.NoisyTopK], tag="peel"):
    """Release the k labels of the largest noisy counts.

    Choose it for a few of many labels: it costs k choices, so that the noise grows with the root of
    k, but the gap that it needs grows only with the logarithm of the number of labels. With 40
    labels `Canonical` needs a smaller gap for k of 18 and more, with 80 labels from 53 on, and up
    to 25 labels for any k (``gap_needed``).

    Privacy: k ``eta``-bounded-range choices, ``eta = window / scale_peel`` with a window of 1 vote
    under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD (Durfee & Rogers (2019), Lemma 4.2). Any
    other noise is drawn once, and the set costs pure ``k eta`` (Shekelyan & Loukides (2022)).

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = Peeling(k=2, scale_peel=2.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0, 0],
           [0, 0, 1, 1]], dtype=uint8)

    Args:
        k: number of labels of every sample.
        noise_law: ``gumbel``, ``exponential``, ``laplace``, ``logistic`` or ``half_logistic``.
        scale_peel: scale of the noise, in votes.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: on a scale that is not positive, ``k < 1`` or an unknown noise.
    """


class Joint(MechanismAggregator[mechanisms.JointMechanism], tag="joint"):
    """Release a set of k labels by one choice among all sequences of k labels.

    Choose it to compare with the paper: `Canonical` makes a single choice too, on scores that move
    half as far.

    Privacy: one ``eta``-bounded-range choice, ``eta = window / scale_joint`` with a window of 2
    votes under ADD_REMOVE_TEACHER and 4 under REPLACE_RECORD, half of that for k = 1 (Gillenwater
    et al. (2022)).

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = Joint(k=2, scale_joint=2.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0, 0],
           [1, 0, 1, 0]], dtype=uint8)

    Args:
        k: number of labels of every sample.
        noise_law: ``gumbel``, or ``exponential`` for a pure choice of ``eta`` (permute-and-flip
            among all sequences).
        scale_joint: scale of the noise, in votes.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: on a scale that is not positive, ``k < 1`` or an unknown noise.
    """


class PermuteAndFlip(MechanismAggregator[mechanisms.PermuteAndFlipPeeling], tag="flip"):
    """Release a set of k labels, one after another by permute-and-flip.

    Choose it for a few queries of which a single pure epsilon counts: at the same pure epsilon it
    errs less often than `Peeling`. For many queries a bounded range composes better.

    Privacy: k pure choices of ``window / scale_flip``, with a window of 1 vote under
    ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD (McKenna & Sheldon (2020)).

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = PermuteAndFlip(k=2, scale_flip=2.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0, 0],
           [1, 0, 1, 0]], dtype=uint8)

    Args:
        k: number of labels of every sample.
        scale_flip: scale of the exponential noise, in votes.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: on a scale that is not positive or ``k < 1``.
    """


class LimitedDomainTopK(MechanismAggregator[mechanisms.LimitedDomain], tag="domain"):
    """Release at most k of the kbar most voted labels, by peeling that ends at a noisy threshold.

    Choose it if the labels themselves are not public, such as words or places: labels of rank
    beyond ``kbar + 1`` have no influence. A list that ends early answers a query for its own labels
    only.

    Privacy: k ``eta``-bounded-range choices, ``eta = window / scale_domain`` with a window of 1
    vote under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD, except with probability
    ``delta_domain`` (Durfee & Rogers (2019), Algorithm 1).

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = LimitedDomainTopK(k=2, kbar=3, scale_domain=1.0, delta_domain=1e-6)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0, 0],
           [0, 0, 1, 0]], dtype=uint8)

    Args:
        k: largest number of labels of a sample.
        kbar: number of labels to choose from, from k to one below the number of labels.
        scale_domain: scale of the Gumbel noise, in votes.
        delta_domain: probability that a label is listed that a neighbor could not list, paid by
            every query.
        neighboring_relation: the relation that the threshold is set for.

    Raises:
        ValueError: on a scale that is not positive, ``k < 1``, ``k > kbar`` or ``delta_domain``
            outside (0, 1).
    """


class TopStableTopK(MechanismAggregator[mechanisms.TopStable], tag="stable"):
    """Release the labels above the first gap that passes a noisy threshold, at most k of them.

    Choose it to compare with the papers: `FixedStableTopK` finds a gap at less cost.

    Privacy: the sparse vector technique on gaps that move by 1 vote under ADD_REMOVE_TEACHER and 2
    under REPLACE_RECORD, k bounded-range choices of counts with the same window where labels are
    peeled, and the probability ``delta_stable``: a query costs the rounds that it took (Carvalho et
    al. (2020); `pate.mechanisms.TopStable`).

    Args:
        k: largest number of labels of a sample.
        kbar: last rank at which a gap is tried, from k to one below the number of labels.
        scale_threshold_stable: scale of the Laplace noise of the threshold, in votes.
        scale_gap_stable: scale of the Laplace noise of the gaps, in votes.
        scale_peel_stable: scale of the Gumbel noise of the peeling, in votes.
        delta_stable: probability that an unstable set is released, paid by every query, below
            ``kbar / 2``.
        neighboring_relation: the relation that the threshold is set for.
        fallback: whether queries in which no gap passes are answered by peeling k labels from all,
            which then have to be public.

    Raises:
        ValueError: on noise that is not positive, ``k < 1``, ``k > kbar``, or ``delta_stable`` out
            of its range.
    """


class PeeledVotes(MechanismAggregator[mechanisms.PeeledCounts], tag="chosen"):
    """Choose k labels by peeling, then count only their votes, with noise.

    Choose it if samples have up to k of many labels: a label is given if it is chosen and more than
    half of the teachers seem to vote for it, and all others are denied. So k bounds the number of
    labels of a sample, where `Peeling` gives each sample k labels, and a query costs as much as k
    labels, where `NoisyVotes` pays for all.

    Privacy: k bounded-range choices of ``window / scale_chosen``, with a window of 1 vote under
    ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD, and Gaussian noise of ``sigma_chosen`` on k
    counts that move by 1 vote under both (`pate.mechanisms.PeeledCounts`).

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = PeeledVotes(k=2, scale_chosen=2.0, sigma_chosen=2.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0, 0],
           [0, 0, 1, 0]], dtype=uint8)

    Args:
        k: largest number of labels of a sample.
        scale_chosen: scale of the Gumbel noise of the choice, in votes.
        sigma_chosen: standard deviation of the noise on the counts of the chosen, in votes.
        neighboring_relation: the relation under which the cost is stated first.
        soft: release the noisy counts of the chosen labels, and nothing of the others. That is more
            about these, but a student that learns from it sees no sample without a label that it
            might have.

    Raises:
        ValueError: on noise that is not positive, or ``k < 1``.
    """

    soft: bool = False

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        """Label a batch of queries: all labels of each, or with ``soft`` the k that are chosen."""
        items, scores = self.mechanism(votes.shape)(votes.counts, generator=generator)
        chosen = np.zeros(votes.counts.shape, dtype=np.bool_)
        noisy = np.zeros(votes.counts.shape)
        np.put_along_axis(chosen, items, True, axis=1)
        np.put_along_axis(noisy, items, scores, axis=1)
        labels = (chosen & (noisy > votes.num_teachers / 2)).astype(np.uint8)
        if self.soft:
            return Release(labels, chosen, noisy, self.sigma_chosen)
        return Release(labels, np.ones_like(chosen))

    def law(self, votes: Counts) -> mechanisms.Law:
        """Return the law of the sets of labels that are chosen, and given by their counts."""
        if self.soft:
            raise mechanisms.NotStatedError("the law of PeeledVotes with noisy counts is not known")
        chosen = self.mechanism(votes.shape).choice.law(votes.counts)
        given = ndtr((votes.counts - votes.num_teachers / 2) / self.sigma_chosen)
        chances: dict[bytes, FloatArray] = {}
        for members, chance in zip(chosen.members, chosen.chances.T, strict=True):
            items = np.flatnonzero(members)
            for sides in product((False, True), repeat=self.k):
                some = np.zeros_like(members)
                some[items] = sides
                part = chance * np.where(sides, given[:, items], 1 - given[:, items]).prod(axis=1)
                chances[some.tobytes()] = chances.get(some.tobytes(), 0.0) + part
        sets = np.frombuffer(b"".join(chances), dtype=np.bool_).reshape(len(chances), -1)
        return mechanisms.Law(np.column_stack([*chances.values()]), sets)
