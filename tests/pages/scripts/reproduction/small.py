"""A data folder with a small table in the form of CelebA's attributes."""

from pathlib import Path

import numpy as np

from scripts.reproduction.tasks import ATTRIBUTES, LABELS

OTHERS = [f"Known_{i}" for i in range(20)]


def attributes_table(folder: Path, num: int = 4000) -> Path:
    """Write the table of ``num`` rows, whose labels depend on what is known, and return the
    folder."""
    generator = np.random.default_rng(0)
    public_attributes = generator.random((num, len(OTHERS))) < 0.4
    signal = (public_attributes - 0.4) @ generator.normal(size=(len(OTHERS), len(LABELS)))
    labels = signal + 0.3 * generator.normal(size=signal.shape) > np.linspace(
        -0.3, 1.5, len(LABELS)
    )
    path = folder / ATTRIBUTES
    path.parent.mkdir(parents=True)
    np.savez(
        path,
        attr=np.concatenate((labels, public_attributes), axis=1).astype(np.uint8),
        attr_names=np.array([*LABELS, *OTHERS]),
        partition=np.repeat([0, 1, 2], [num // 2, num // 4, num - num // 2 - num // 4]).astype(
            np.uint8
        ),
        identity=np.arange(num, dtype=np.int16) // 2,
        ids=np.array([f"{i:06d}.jpg" for i in range(num)]),
    )
    return folder
