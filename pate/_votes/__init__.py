"""Votes: their kinds in memory, the voters behind scores and moments, and their files."""

from pate._votes.kinds import (
    Ballots as Ballots,
    CountArray as CountArray,
    NoisyTotal as NoisyTotal,
    Votes as Votes,
    VoteShape as VoteShape,
    Voting as Voting,
    drawn_rows as drawn_rows,
    highest as highest,
    pack_ballots as pack_ballots,
    rows_of as rows_of,
    teacher_blocks as teacher_blocks,
    unpack_ballots as unpack_ballots,
)
