"""A small source of records, and the votes of its records with canaries among them."""

import math

import numpy as np

from pate.aggregators import (
    Geometry,
    GroupVoters,
    Moments as MomentVotes,
    RecordVoters,
    ScoreVotes,
    Voters,
)
from pate.data import ArrayFeatures, DataSource, Records, Role
from pate.lab.audit.canaries import CanaryMoments, CanaryRecords, Kind

MU = 0.9
DELTA = 1e-6
LABELS = 4


class Drawn(DataSource):
    """Records of which four labels follow from eight features, nearly."""

    def __init__(self, size: int = 800) -> None:
        super().__init__()
        self._size = size

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(f"label_{j}" for j in range(LABELS))

    def load(self, role: Role) -> Records:
        size = {Role.PRIVATE: self._size, Role.PUBLIC: 200, Role.TEST: 50}[role]
        generator = np.random.default_rng(list(Role).index(role))
        weights = np.random.default_rng(9).standard_normal((8, LABELS))
        features = generator.standard_normal((size, 8)).astype(np.float32)
        labels = features @ weights + generator.standard_normal((size, LABELS)) > 1
        ids = np.array([f"{role.value}-{i}" for i in range(size)])
        return Records(features=ArrayFeatures(features), labels=labels.astype(np.uint8), ids=ids)


def moments(
    kind: Kind = "outlying",
    *,
    canaries: int = 64,
    teachers: int | None = None,
    poisons: float = 0.0,
    size: int = 800,
) -> CanaryMoments:
    """The records as voters, or those of ``teachers`` parts."""
    data = CanaryRecords(Drawn(size), canaries=canaries, kind=kind, seed=1, poisons=poisons)
    private, public = data.records(Role.PRIVATE), data.records(Role.PUBLIC).features[:]
    geometry = Geometry.of(public)
    groups = np.arange(len(private))
    if teachers is not None:
        groups = np.random.default_rng(0).integers(0, teachers, len(private))
    order = np.argsort(groups, kind="stable")
    place = dict(zip(private.ids[order].tolist(), range(len(order)), strict=True))
    coordinates, labels = geometry.coordinates(private.features[:][order]), private.labels[order]
    voters: Voters = RecordVoters(
        geometry=geometry,
        num_voters=1 << 23,
        num_labels=LABELS,
        coordinates=coordinates,
        labels=labels,
    )
    if teachers is not None:
        voters = GroupVoters(
            geometry=geometry,
            num_voters=teachers,
            num_labels=LABELS,
            coordinates=coordinates,
            labels=labels,
            groups=groups[order],
        )
    rows = np.array([[place[name] for name in copy] for copy in data.ids.tolist()])
    return CanaryMoments(
        MomentVotes(voters=voters, features=np.asarray(public, dtype=np.float64)),
        data.canaries,
        rows,
    )


def voting(world: CanaryMoments) -> ScoreVotes:
    """Score votes whose releases are MU-GDP."""
    return ScoreVotes(multiplier_scores=math.sqrt(world.num_queries) / MU)
