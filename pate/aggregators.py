"""Aggregator plug-ins: they turn votes into released labels and describe the cost as an event."""

from pate._core.package import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from pate._core.settings import Partial as Partial
    from pate._labeling.aggregators.base import (
        Aggregator as Aggregator,
        Outlook as Outlook,
        Release as Release,
        load_plugins as load_plugins,
        registered as registered,
    )
    from pate._labeling.aggregators.clipped_votes import (
        ClippedVotes as ClippedVotes,
        Rounds as Rounds,
        TauVoting as TauVoting,
    )
    from pate._labeling.aggregators.noisy_votes import (
        ConfidentScreen as ConfidentScreen,
        InteractiveScreen as InteractiveScreen,
        NoisyVotes as NoisyVotes,
        SiloVotes as SiloVotes,
    )
    from pate._labeling.aggregators.score_votes import (
        ScoreVotes as ScoreVotes,
    )
    from pate._labeling.aggregators.top_k import (
        Canonical as Canonical,
        FixedStableTopK as FixedStableTopK,
        Joint as Joint,
        LimitedDomainTopK as LimitedDomainTopK,
        MechanismAggregator as MechanismAggregator,
        Peeling as Peeling,
        PermuteAndFlip as PermuteAndFlip,
        StableTopK as StableTopK,
        TopStableTopK as TopStableTopK,
    )
    from pate._labeling.votes.kinds import (
        Ballots as Ballots,
        Counts as Counts,
        MaskedTotal as MaskedTotal,
        Moments as Moments,
        Need as Need,
        NoisyTotal as NoisyTotal,
        Scores as Scores,
    )
    from pate._labeling.votes.voters import (
        Geometry as Geometry,
        GroupVoters as GroupVoters,
        MomentQuery as MomentQuery,
        RecordVoters as RecordVoters,
        ScoreVoters as ScoreVoters,
        Voters as Voters,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
