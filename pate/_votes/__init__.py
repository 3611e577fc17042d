"""Votes: their kinds in memory, the voters behind scores and moments, and their files."""

from pate._votes.kinds import (
    Ballots as Ballots,
    CountArray as CountArray,
    Counts as Counts,
    MaskedTotal as MaskedTotal,
    Moments as Moments,
    Need as Need,
    NoisyTotal as NoisyTotal,
    Scores as Scores,
    Votes as Votes,
    VoteShape as VoteShape,
    Voting as Voting,
    drawn_rows as drawn_rows,
    highest as highest,
    pack_ballots as pack_ballots,
    require_kind as require_kind,
    rows_of as rows_of,
    serves as serves,
    unpack_ballots as unpack_ballots,
)
