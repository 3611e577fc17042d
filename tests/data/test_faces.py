"""Rendered faces: determinism, statistics and visibility of the attributes, and the CelebA-style folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from pate.data.faces import (
    FACE_ATTRIBUTES,
    FolderDiffersError,
    _Stage,
    iter_faces,
    render_faces,
    write_celeba_folder,
)

Faces = tuple[NDArray[np.uint8], NDArray[np.uint8]]


@pytest.fixture(scope="module")
def faces() -> Faces:
    return render_faces(5200, seed=3)


def _column(faces: Faces, name: str) -> NDArray[np.uint8]:
    return faces[1][:, FACE_ATTRIBUTES.index(name)]


# --- rendering ----------------------------------------------------------------------------------------------


def test_shapes_and_types(faces: Faces) -> None:
    images, attributes = faces
    assert images.shape == (5200, 32, 32, 3) and images.dtype == np.uint8
    assert attributes.shape == (5200, len(FACE_ATTRIBUTES)) and attributes.dtype == np.uint8
    assert set(np.unique(attributes)) == {0, 1}
    assert 20 <= len(FACE_ATTRIBUTES) <= 26
    assert len(set(FACE_ATTRIBUTES)) == len(FACE_ATTRIBUTES)


@pytest.mark.parametrize("size", [32, 45, 64])
def test_sizes(size: int) -> None:
    images, attributes = render_faces(3, seed=0, size=size)
    assert images.shape == (3, size, size, 3)
    assert attributes.shape == (3, len(FACE_ATTRIBUTES))


def test_attributes_do_not_depend_on_the_size() -> None:
    assert np.array_equal(render_faces(120, seed=4, size=32)[1], render_faces(120, seed=4, size=40)[1])


def test_no_faces() -> None:
    images, attributes = render_faces(0, seed=0, start=250)
    assert images.shape == (0, 32, 32, 3)
    assert attributes.shape == (0, len(FACE_ATTRIBUTES))
    assert list(iter_faces(0, seed=0)) == []


@pytest.mark.parametrize(("num", "start"), [(1, 0), (10, 0), (99, 1), (100, 100), (250, 75), (3, 299)])
def test_face_depends_on_seed_and_index_only(faces: Faces, num: int, start: int) -> None:
    images, attributes = render_faces(num, seed=3, start=start)
    assert np.array_equal(images, faces[0][start : start + num])
    assert np.array_equal(attributes, faces[1][start : start + num])


def test_iterating_gives_the_same_faces(faces: Faces) -> None:
    pieces = list(iter_faces(230, seed=3, start=40))
    assert np.array_equal(np.concatenate([images for images, _ in pieces]), faces[0][40:270])
    assert np.array_equal(np.concatenate([attributes for _, attributes in pieces]), faces[1][40:270])


def test_global_random_state_is_left_alone() -> None:
    np.random.seed(0)
    before = np.random.get_state()[1].copy()  # type: ignore[index]
    render_faces(5, seed=0)
    assert np.array_equal(before, np.random.get_state()[1])  # type: ignore[index]


def test_seeds_and_faces_differ(faces: Faces) -> None:
    other = render_faces(200, seed=9)
    assert not np.array_equal(other[0], faces[0][:200])
    assert not np.array_equal(other[1], faces[1][:200])
    assert len({image.tobytes() for image in faces[0]}) == len(faces[0])


@pytest.mark.parametrize("size", [32, 64])
def test_windows_cut_nothing_off(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    windowed = render_faces(300, seed=8, size=size)[0]
    monkeypatch.setattr(_Stage, "_span", lambda self, low, high: slice(0, self.size))
    everywhere = render_faces(300, seed=8, size=size)[0]
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
    # At the call: nothing is asked of the iterator.
    with pytest.raises(ValueError):
        iter_faces(**arguments)


# --- attributes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FACE_ATTRIBUTES)
def test_prevalence(faces: Faces, name: str) -> None:
    assert 0.08 <= _column(faces, name).mean() <= 0.85


def test_positives_per_face(faces: Faces) -> None:
    assert 6 <= faces[1].sum(axis=1).mean() <= 9


def test_exclusive_attributes(faces: Faces) -> None:
    colours = sum(
        _column(faces, name).astype(int) for name in ("Black_Hair", "Blond_Hair", "Brown_Hair", "Gray_Hair")
    )
    bald = _column(faces, "Bald")
    # A head has one hair colour, and a bald one none.
    assert np.array_equal(colours, 1 - bald.astype(int))
    for name in ("Bangs", "Long_Hair", "Wearing_Hat"):
        assert not np.any(bald & _column(faces, name))


@pytest.mark.parametrize(
    ("one", "other", "sign"),
    [
        ("Beard", "Male", 1),
        ("Mustache", "Male", 1),
        ("Bald", "Male", 1),
        ("Wearing_Necktie", "Male", 1),
        ("Bushy_Eyebrows", "Male", 1),
        ("Big_Nose", "Male", 1),
        ("Long_Hair", "Male", -1),
        ("Wearing_Lipstick", "Male", -1),
        ("Wearing_Earrings", "Male", -1),
        ("Heavy_Makeup", "Male", -1),
        ("Gray_Hair", "Young", -1),
        ("Bald", "Young", -1),
        ("Eyeglasses", "Young", -1),
        ("Mouth_Slightly_Open", "Smiling", 1),
        ("Heavy_Makeup", "Wearing_Lipstick", 1),
    ],
)
def test_correlations(faces: Faces, one: str, other: str, sign: int) -> None:
    correlation = np.corrcoef(_column(faces, one), _column(faces, other))[0, 1]
    assert sign * correlation > 0.08


# --- visibility ---------------------------------------------------------------------------------------------


def _probe(images: NDArray[np.uint8], labels: NDArray[np.uint8], train: int) -> NDArray[np.float64]:
    """Balanced accuracy per attribute, on the faces from `train` on, of ridge least squares on the pixels."""
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
        accuracies.append((right[held_out[:, column]].mean() + right[~held_out[:, column]].mean()) / 2)
    return np.array(accuracies)


def test_attributes_are_visible(faces: Faces) -> None:
    accuracies = _probe(*faces, train=4000)
    hidden = {name: round(a, 3) for name, a in zip(FACE_ATTRIBUTES, accuracies, strict=True) if a < 0.65}
    assert not hidden
    assert accuracies.mean() > 0.78
    # Nor is any label printed on the picture.
    assert accuracies.mean() < 0.97


def test_probe_finds_nothing_in_shuffled_labels(faces: Faces) -> None:
    images, attributes = faces
    shuffled = attributes[np.random.default_rng(0).permutation(len(attributes))]
    accuracies = _probe(images, shuffled, train=4000)
    assert abs(accuracies.mean() - 0.5) < 0.03
    assert accuracies.max() < 0.62


# --- the folder ---------------------------------------------------------------------------------------------


def _stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    output = tmp_path / "faces"
    write_celeba_folder(output, num=130, seed=5, size=40, progress=False)
    return output


def test_folder_round_trip(folder: Path) -> None:
    images, attributes = render_faces(130, seed=5, size=40)
    names = [f"{index:06d}.jpg" for index in range(1, 131)]

    lines = (folder / "list_attr_celeba.txt").read_text().splitlines()
    assert lines[0] == "130"
    assert tuple(lines[1].split()) == FACE_ATTRIBUTES
    rows = [line.split() for line in lines[2:]]
    assert [row[0] for row in rows] == names
    assert {value for row in rows for value in row[1:]} == {"-1", "1"}
    signs = np.array([[int(value) for value in row[1:]] for row in rows])
    assert np.array_equal(signs > 0, attributes == 1)

    parts = [line.split() for line in (folder / "list_eval_partition.txt").read_text().splitlines()]
    assert [name for name, _ in parts] == names
    assert [part for _, part in parts] == ["0"] * 104 + ["1"] * 13 + ["2"] * 13

    assert sorted(path.name for path in (folder / "img_align_celeba").iterdir()) == names
    for name, image in zip(names, images, strict=True):
        with Image.open(folder / "img_align_celeba" / name) as picture:
            assert picture.size == (40, 40) and picture.mode == "RGB" and picture.format == "JPEG"
            read = np.asarray(picture).astype(int)
        assert np.abs(read - image).mean() < 4

    assert json.loads((folder / "faces.json").read_text())["num"] == 130
    # Nothing temporary is left.
    assert {path.name for path in folder.iterdir()} == {
        "img_align_celeba",
        "list_attr_celeba.txt",
        "list_eval_partition.txt",
        "faces.json",
    }


def test_a_kill_at_the_very_end_leaves_a_finished_folder(folder: Path) -> None:
    (folder / "faces.json.begun").write_text("{}")
    before = _stamps(folder / "img_align_celeba")
    write_celeba_folder(folder, num=130, seed=5, size=40, progress=False)
    assert not (folder / "faces.json.begun").exists()
    assert _stamps(folder / "img_align_celeba") == before


def test_writing_again_does_nothing(folder: Path) -> None:
    before = _stamps(folder)
    write_celeba_folder(folder, num=130, seed=5, size=40, progress=False)
    assert _stamps(folder) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num": 131}, "Expected faces of num=131 in {folder}, got num=130"),
        ({"seed": 6}, "Expected faces of seed=6 in {folder}, got seed=5"),
        (
            {"size": 32, "public_fraction": 0.2},
            "Expected faces of size=32, public_fraction=0.2 in {folder}, got size=40, public_fraction=0.1",
        ),
    ],
)
def test_other_parameters_are_refused(folder: Path, change: dict[str, float], message: str) -> None:
    before = _stamps(folder)
    asked: dict[str, float] = {"num": 130, "seed": 5, "size": 40, **change}
    with pytest.raises(FolderDiffersError) as caught:
        write_celeba_folder(folder, progress=False, **asked)  # type: ignore[arg-type]
    assert str(caught.value) == message.format(folder=folder)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, FileExistsError)
    assert _stamps(folder) == before


def test_half_written_folder_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, saved = Image.Image.save, []

    def failing_save(self: Image.Image, path: Path, **options: Any) -> None:
        saved.append(path)
        if len(saved) > 20:
            raise KeyboardInterrupt
        save(self, path, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Image.Image, "save", failing_save)
        write_celeba_folder(tmp_path, num=30, progress=False)
    assert not (tmp_path / "list_attr_celeba.txt").exists()
    assert not (tmp_path / "faces.json").exists()

    # As where the kill came between the tables and faces.json.
    (tmp_path / "list_attr_celeba.txt").write_text("30\n")

    # With other parameters even: nothing finished is lost, and nothing of the first attempt stays.
    write_celeba_folder(tmp_path, num=12, seed=1, progress=False)
    assert len(list((tmp_path / "img_align_celeba").iterdir())) == 12
    assert json.loads((tmp_path / "faces.json").read_text())["seed"] == 1


@pytest.mark.parametrize("name", ["img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"])
def test_a_true_celeba_is_not_overwritten(tmp_path: Path, name: str) -> None:
    if name.endswith(".txt"):
        (tmp_path / name).write_text("202599\n")
    else:
        (tmp_path / name).mkdir()
        (tmp_path / name / "000001.jpg").write_bytes(b"a photograph")
    before = _stamps(tmp_path)
    with pytest.raises(FolderDiffersError, match=name):
        write_celeba_folder(tmp_path, num=3, progress=False)
    assert _stamps(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num": -1}, "Expected num >= 0, got num=-1"),
        ({"size": 8}, "Expected 32 <= size <= 64, got size=8"),
        ({"private_fraction": 1.5}, "Expected 0 <= private_fraction <= 1, got private_fraction=1.5"),
        ({"public_fraction": -0.1}, "Expected 0 <= public_fraction <= 1, got public_fraction=-0.1"),
        (
            {"private_fraction": 0.8, "public_fraction": 0.3},
            "Expected private_fraction + public_fraction <= 1, got private_fraction=0.8, public_fraction=0.3",
        ),
    ],
)
def test_bad_folder_requests(tmp_path: Path, change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        write_celeba_folder(tmp_path / "new", progress=False, **{"num": 3, **change})  # type: ignore[arg-type]
    assert str(caught.value) == message
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("private", "public", "counts"),
    [(0.7, 0.3, [7, 3, 0]), (0.0, 1.0, [0, 10, 0]), (0.5, 0.25, [5, 3, 2]), (0.0, 0.0, [0, 0, 10])],
)
def test_partition(tmp_path: Path, private: float, public: float, counts: list[int]) -> None:
    write_celeba_folder(tmp_path, num=10, private_fraction=private, public_fraction=public, progress=False)
    lines = (tmp_path / "list_eval_partition.txt").read_text().splitlines()
    parts = [int(line.split()[1]) for line in lines]
    assert parts == sorted(parts)
    assert [parts.count(part) for part in range(3)] == counts
