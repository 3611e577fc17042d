"""Private selection: mechanisms are objects that select when called with scores, and that describe their cost."""

from pate.mechanisms.base import Mechanism, TopKMechanism
from pate.mechanisms.baselines import GammaCounts, LaplaceCounts, OneShotLaplace, one_shot_laplace_scale
from pate.mechanisms.canonical import CanonicalMechanism, ClassProbabilities
from pate.mechanisms.gaps import GapChoice, SortedCounts, sort_counts
from pate.mechanisms.joint import JointMechanism, joint_window
from pate.mechanisms.limited_domain import LimitedDomain, Listed
from pate.mechanisms.noise import draw, gumbel, private_generator, seeded_generator
from pate.mechanisms.noisy_top_k import NoisyMax, NoisyTopK, scale_for_epsilon
from pate.mechanisms.peeling import GumbelPeeling, PermuteAndFlipPeeling
from pate.mechanisms.stability import LaplaceStabilityTest, StabilityTest
from pate.mechanisms.stable_top_k import FixedTopK, FixedTopKMechanism, StableTopKMechanism
from pate.mechanisms.top_stable import TopStable, unstable_threshold
from pate.mechanisms.utility import Grade, grade, k_relative_error, l1_error, linf_error, recall

__all__ = [
    "CanonicalMechanism",
    "ClassProbabilities",
    "FixedTopK",
    "FixedTopKMechanism",
    "GammaCounts",
    "GapChoice",
    "Grade",
    "GumbelPeeling",
    "JointMechanism",
    "LaplaceCounts",
    "LaplaceStabilityTest",
    "LimitedDomain",
    "Listed",
    "Mechanism",
    "NoisyMax",
    "NoisyTopK",
    "OneShotLaplace",
    "PermuteAndFlipPeeling",
    "SortedCounts",
    "StabilityTest",
    "StableTopKMechanism",
    "TopKMechanism",
    "TopStable",
    "draw",
    "grade",
    "gumbel",
    "joint_window",
    "k_relative_error",
    "l1_error",
    "linf_error",
    "one_shot_laplace_scale",
    "private_generator",
    "recall",
    "scale_for_epsilon",
    "seeded_generator",
    "sort_counts",
    "unstable_threshold",
]
