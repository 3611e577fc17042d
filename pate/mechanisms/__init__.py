"""Private selection: pure numpy functions of scores, noise parameters and a Generator, and the event of
each.
"""

from pate.mechanisms.baselines import (
    gamma_counts,
    gamma_counts_event,
    laplace_counts,
    laplace_counts_event,
    one_shot_laplace,
    one_shot_laplace_event,
    one_shot_laplace_scale,
)
from pate.mechanisms.canonical import (
    ClassProbabilities,
    canonical,
    canonical_class_probabilities,
    canonical_event,
)
from pate.mechanisms.joint import joint, joint_event, joint_window
from pate.mechanisms.limited_domain import Listed, limited_domain, limited_domain_event
from pate.mechanisms.lipschitz import (
    exponential_mechanism,
    lipschitz_event,
    lipschitz_top_k,
    one_shot_exponential_mechanism,
    one_shot_permute_and_flip,
    permute_and_flip,
    report_noisy_max,
    scale_for_epsilon,
)
from pate.mechanisms.noise import draw, gumbel, private_generator, seeded_generator
from pate.mechanisms.peeling import cdp_peel, cdp_peel_event, pnf_peel, pnf_peel_event
from pate.mechanisms.stability import (
    FixedTopK,
    SortedCounts,
    choose_gap,
    choose_gap_event,
    fixed_stable_top_k,
    fixed_stable_top_k_event,
    sort_counts,
    stability_test,
    stability_test_laplace,
    stability_test_laplace_event,
    stable_top_k,
    stable_top_k_event,
)
from pate.mechanisms.top_stable import top_stable, top_stable_event, unstable_threshold
from pate.mechanisms.utility import Grade, grade, k_relative_error, l1_error, linf_error, recall

__all__ = [
    "ClassProbabilities",
    "FixedTopK",
    "Grade",
    "Listed",
    "SortedCounts",
    "canonical",
    "canonical_class_probabilities",
    "canonical_event",
    "cdp_peel",
    "cdp_peel_event",
    "choose_gap",
    "choose_gap_event",
    "draw",
    "exponential_mechanism",
    "fixed_stable_top_k",
    "fixed_stable_top_k_event",
    "gamma_counts",
    "gamma_counts_event",
    "grade",
    "gumbel",
    "joint",
    "joint_event",
    "joint_window",
    "k_relative_error",
    "l1_error",
    "laplace_counts",
    "laplace_counts_event",
    "limited_domain",
    "limited_domain_event",
    "linf_error",
    "lipschitz_event",
    "lipschitz_top_k",
    "one_shot_exponential_mechanism",
    "one_shot_laplace",
    "one_shot_laplace_event",
    "one_shot_laplace_scale",
    "one_shot_permute_and_flip",
    "permute_and_flip",
    "pnf_peel",
    "pnf_peel_event",
    "private_generator",
    "recall",
    "report_noisy_max",
    "scale_for_epsilon",
    "seeded_generator",
    "sort_counts",
    "stability_test",
    "stability_test_laplace",
    "stability_test_laplace_event",
    "stable_top_k",
    "stable_top_k_event",
    "top_stable",
    "top_stable_event",
    "unstable_threshold",
]
