"""Private selection: mechanisms that select when they are called, and describe their cost."""

from pate._core.package import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from pate._core.mechanisms.base import (
        FACTS as FACTS,
        Case as Case,
        Law as Law,
        Mechanism as Mechanism,
        NotStatedError as NotStatedError,
        ScoreMechanism as ScoreMechanism,
        TopKMechanism as TopKMechanism,
    )
    from pate._core.mechanisms.canonical import (
        CanonicalMechanism as CanonicalMechanism,
    )
    from pate._core.mechanisms.joint import (
        JointMechanism as JointMechanism,
        joint_window as joint_window,
    )
    from pate._core.mechanisms.limited_domain import (
        LimitedDomain as LimitedDomain,
        TopItems as TopItems,
        TopStable as TopStable,
        TopStableOutcome as TopStableOutcome,
    )
    from pate._core.mechanisms.noise import (
        add_gaussian as add_gaussian,
        exceeds as exceeds,
        private_generator as private_generator,
        seeded_generator as seeded_generator,
    )
    from pate._core.mechanisms.peeling import (
        GapChoice as GapChoice,
        GumbelPeeling as GumbelPeeling,
        NoisyTopK as NoisyTopK,
        OneShotLaplace as OneShotLaplace,
        PermuteAndFlipPeeling as PermuteAndFlipPeeling,
        SortedCounts as SortedCounts,
        StabilityTest as StabilityTest,
        sort_counts as sort_counts,
    )
    from pate._core.mechanisms.stable_top_k import (
        FixedTopK as FixedTopK,
        FixedTopKMechanism as FixedTopKMechanism,
        StableTopKMechanism as StableTopKMechanism,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
