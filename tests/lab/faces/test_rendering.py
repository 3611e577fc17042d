"""Rendering: a face depends on its seed and number alone, and its attributes can be seen."""

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.lab.faces.canvas import FACE_ATTRIBUTES, Canvas
from pate.lab.faces.drawing import render_faces
from tests.lab.faces.conftest import Faces


def test_shapes_and_types(rendered: Faces) -> None:
    images, attributes = rendered
    assert images.shape == (1000, 32, 32, 3) and images.dtype == np.uint8
    assert attributes.shape == (1000, len(FACE_ATTRIBUTES)) and attributes.dtype == np.uint8
    assert set(np.unique(attributes)) == {0, 1}
    assert 20 <= len(FACE_ATTRIBUTES) <= 26
    assert len(set(FACE_ATTRIBUTES)) == len(FACE_ATTRIBUTES)


@pytest.mark.parametrize("size", [32, 45, 64])
def test_sizes(size: int) -> None:
    images, attributes = render_faces(3, seed=0, size=size)
    assert images.shape == (3, size, size, 3)
    assert attributes.shape == (3, len(FACE_ATTRIBUTES))


def test_attributes_do_not_depend_on_the_size() -> None:
    assert np.array_equal(
        render_faces(120, seed=4, size=32)[1], render_faces(120, seed=4, size=40)[1]
    )


def test_no_faces() -> None:
    images, attributes = render_faces(0, seed=0, start=250)
    assert images.shape == (0, 32, 32, 3)
    assert attributes.shape == (0, len(FACE_ATTRIBUTES))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num", "start"), [(1, 0), (10, 0), (99, 1), (100, 100), (250, 75), (3, 299)]
)
def test_face_depends_on_seed_and_index_only(rendered: Faces, num: int, start: int) -> None:
    images, attributes = render_faces(num, seed=3, start=start)
    assert np.array_equal(images, rendered[0][start : start + num])
    assert np.array_equal(attributes, rendered[1][start : start + num])


def test_global_random_state_is_left_alone() -> None:
    np.random.seed(0)
    before = np.random.get_state()[1].copy()  # type: ignore[index]
    render_faces(5, seed=0)
    assert np.array_equal(before, np.random.get_state()[1])  # type: ignore[index]


def test_seeds_and_faces_differ(rendered: Faces) -> None:
    other = render_faces(200, seed=9)
    assert not np.array_equal(other[0], rendered[0][:200])
    assert not np.array_equal(other[1], rendered[1][:200])
    assert len({image.tobytes() for image in rendered[0]}) == len(rendered[0])


@pytest.mark.parametrize(("num", "size"), [(300, 32), (100, 64)])
def test_windows_cut_nothing_off(num: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    windowed = render_faces(num, seed=8, size=size)[0]
    monkeypatch.setattr(Canvas, "_span", lambda self, low, high: slice(0, self.size))
    everywhere = render_faces(num, seed=8, size=size)[0]
    difference = np.abs(windowed.astype(int) - everywhere)
    assert difference.max() <= 3
    assert (difference > 0).mean() < 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num": -3, "seed": 0}, "Expected num >= 0, got num=-3"),
        ({"num": 1, "seed": -1}, "Expected seed >= 0, got seed=-1"),
        ({"num": 1, "seed": 0, "size": 8}, "Expected 32 <= size <= 64, got size=8"),
        ({"num": 1, "seed": 0, "size": 65}, "Expected 32 <= size <= 64, got size=65"),
        ({"num": 1, "seed": 0, "start": -1}, "Expected start >= 0, got start=-1"),
    ],
)
def test_bad_requests(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        render_faces(**arguments)
    assert str(caught.value) == message


def _probe(images: NDArray[np.uint8], labels: NDArray[np.uint8], train: int) -> NDArray[np.float64]:
    """Balanced accuracy per attribute, on the faces from `train` on, of ridge least squares on the
    pixels."""
    pixels = images.reshape(len(images), -1).astype(np.float32) / 255
    pixels -= pixels[:train].mean(axis=0)
    rate = labels[:train].mean(axis=0)
    # Weights that make both answers count the same, folded into the targets.
    targets = np.where(labels == 1, 1 / rate, -1 / (1 - rate)).astype(np.float32)
    known = pixels[:train]
    gram = known.T @ known
    gram[np.diag_indices_from(gram)] += 20.0
    weights = np.linalg.solve(gram, known.T @ targets[:train])
    fitted, scores = known @ weights, pixels[train:] @ weights
    # The threshold lies midway between the two answers' mean scores.
    truth, held_out = labels[:train] == 1, labels[train:] == 1
    accuracies = []
    for column in range(labels.shape[1]):
        yes, no = fitted[truth[:, column], column], fitted[~truth[:, column], column]
        said = scores[:, column] > (yes.mean() + no.mean()) / 2
        right = said == held_out[:, column]
        accuracies.append(
            (right[held_out[:, column]].mean() + right[~held_out[:, column]].mean()) / 2
        )
    return np.array(accuracies)


@pytest.mark.slow
def test_attributes_are_visible() -> None:
    """A linear probe tells each attribute from the pixels, and nothing from shuffled ones."""
    images, attributes = render_faces(5200, seed=3)
    shuffled = attributes[np.random.default_rng(0).permutation(len(attributes))]
    found = _probe(images, np.concatenate((attributes, shuffled), axis=1), train=4000)
    accuracies, chance = np.split(found, 2)
    hidden = {
        name: round(a, 3) for name, a in zip(FACE_ATTRIBUTES, accuracies, strict=True) if a < 0.65
    }
    assert not hidden
    assert accuracies.mean() > 0.78
    # Nor is any label printed on the picture.
    assert accuracies.mean() < 0.97
    assert abs(chance.mean() - 0.5) < 0.03
    assert chance.max() < 0.62
