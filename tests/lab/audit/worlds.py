"""A small source of records."""

import numpy as np

from pate.data import ArrayFeatures, DataSource, Records, Role

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
