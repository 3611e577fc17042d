"""Traits of rendered faces: their attributes, and the probabilities of these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pate._validation import BoolArray, Float32Array, IntArray, UInt8Array

FACE_ATTRIBUTES: tuple[str, ...] = (
    "Bald", "Bangs", "Beard", "Big_Nose", "Black_Hair", "Blond_Hair", "Brown_Hair", "Bushy_Eyebrows", "Chubby",
    "Eyeglasses", "Gray_Hair", "Heavy_Makeup", "Long_Hair", "Male", "Mouth_Slightly_Open", "Mustache", "Narrow_Eyes",
    "Pale_Skin", "Rosy_Cheeks", "Smiling", "Wearing_Earrings", "Wearing_Hat", "Wearing_Lipstick", "Wearing_Necktie",
    "Young",
)  # fmt: skip
"""The labels of a face, in the order of their columns."""

BLACK, BROWN, BLOND, GRAY = range(4)
_HAIR_COLOURS = {"Black_Hair": BLACK, "Brown_Hair": BROWN, "Blond_Hair": BLOND, "Gray_Hair": GRAY}


@dataclass(frozen=True)
class Dice:
    """Draws of one value per face, float32 or bool ``[num]``.

    Attributes:
        rng: source of the draws.
        num: the number of faces.
    """

    rng: np.random.Generator
    num: int

    def chance(self, probability: Float32Array | float) -> BoolArray:
        """Draw True with a probability, one for all faces or one for each."""
        return np.asarray(self.rng.random(self.num, dtype=np.float32) < probability, dtype=np.bool_)

    def uniform(self, low: float, high: float) -> Float32Array:
        """Draw uniformly between two bounds."""
        return np.float32(low) + np.float32(high - low) * self.rng.random(
            self.num, dtype=np.float32
        )

    def normal(self, deviation: float, limit: float = 2.5) -> Float32Array:
        """Draw normally around 0, clipped at ``limit`` deviations."""
        drawn = self.rng.standard_normal(self.num, dtype=np.float32)
        return np.clip(drawn, -limit, limit) * np.float32(deviation)

    def colour(self, low: float, high: float) -> Float32Array:
        """Draw three channels ``[num, 3]`` uniformly between two bounds."""
        return np.float32(low) + np.float32(high - low) * self.rng.random(
            (self.num, 3), dtype=np.float32
        )


def either(
    condition: BoolArray, yes: Float32Array | float, no: Float32Array | float
) -> Float32Array:
    """Return ``yes`` where the condition holds and ``no`` elsewhere, as float32."""
    return np.where(condition, yes, no).astype(np.float32)


class Traits:
    """The traits of each face, ``[num]`` each: attributes by name, and the variables behind them.

    The order of the draws must not change: seeds rely on it.

    Attributes:
        age: from 0 (young) to 1 (old).
        tone: skin tone, from 0 (dark) to 1 (pale).
        hair: color of the hair, `BLACK` to `GRAY`, for bald heads too.
    """

    def __init__(self, dice: Dice) -> None:
        self.male = dice.chance(0.48)
        self.young = dice.chance(0.60)
        # A gap between the young and the others, so that age can be told from its signs.
        self.age = either(self.young, dice.uniform(0.0, 0.45), dice.uniform(0.65, 1.0))
        self.pale_skin = dice.chance(0.16)
        self.tone = either(self.pale_skin, dice.uniform(0.90, 1.0), dice.uniform(0.05, 0.74))

        self.wearing_hat = dice.chance(0.17)
        self.bald = (
            dice.chance(either(self.male, either(self.young, 0.16, 0.46), 0.005))
            & ~self.wearing_hat
        )
        self.hair = _sample_hair(dice, self.young, self.tone)
        self.bangs = dice.chance(either(self.male, 0.16, 0.40)) & ~self.bald & ~self.wearing_hat
        self.long_hair = dice.chance(either(self.male, 0.06, 0.66)) & ~self.bald

        self.beard = dice.chance(either(self.male, 0.42, 0.0))
        self.mustache = dice.chance(either(self.male, either(self.beard, 0.50, 0.22), 0.0))
        self.bushy_eyebrows = dice.chance(either(self.male, 0.38, 0.10))
        self.chubby = dice.chance(either(self.young, 0.18, 0.30))
        self.big_nose = dice.chance(either(self.male, 0.34, 0.14))
        self.narrow_eyes = dice.chance(0.22)
        self.eyeglasses = dice.chance(either(self.young, 0.17, 0.38))
        self.wearing_lipstick = dice.chance(either(self.male, 0.01, 0.62))
        self.heavy_makeup = dice.chance(
            either(self.male, 0.01, either(self.wearing_lipstick, 0.60, 0.14))
        )
        self.rosy_cheeks = dice.chance(
            either(self.male, 0.10, either(self.heavy_makeup, 0.45, 0.28))
        )
        self.smiling = dice.chance(either(self.male, 0.44, 0.54))
        self.mouth_slightly_open = dice.chance(either(self.smiling, 0.50, 0.26))
        self.wearing_earrings = dice.chance(either(self.male, 0.04, 0.42))
        self.wearing_necktie = dice.chance(either(self.male, either(self.young, 0.28, 0.42), 0.02))

    def attributes(self) -> UInt8Array:
        """Return labels ``[num, len(FACE_ATTRIBUTES)]`` in {0, 1}; bald heads have no color."""
        columns = [
            (self.hair == _HAIR_COLOURS[name]) & ~self.bald
            if name in _HAIR_COLOURS
            else getattr(self, name.lower())
            for name in FACE_ATTRIBUTES
        ]
        return np.stack(columns, axis=1).astype(np.uint8)


def _sample_hair(dice: Dice, young: BoolArray, tone: Float32Array) -> IntArray:
    """Sample colors of hair: gray comes with age, black or brown mostly with darker skin."""
    dark = tone < 0.35
    black = either(dark, 0.66, 0.30)
    brown = black + either(dark, 0.28, 0.40)
    draw = dice.uniform(0.0, 1.0)
    colour = np.select([draw < black, draw < brown], [BLACK, BROWN], BLOND)
    gray = dice.chance(either(young, 0.03, 0.56))
    return np.where(gray, GRAY, colour).astype(np.int64)
