"""A student leaves its run, and answers elsewhere what it answered there."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import models
import pate
from pate import cli
from pate._labeling.runs.carried import Trained, export_student
from pate._labeling.runs.released import DECISION_METRICS
from pate._labeling.runs.run import Run, load_data
from pate._labeling.stages.student import WEIGHTS, Solved
from pate._networks.settings import restored_network, without_weights
from pate._networks.student.answers import weights_of_tensors
from pate.data import Arrays, CelebA, DataSource, FeatureMap, Features, PublicPCA, Role
from pate.student import MapModule, Student, as_module, load_student
from tests.conftest import make_arrays
from tests.statements import made_statement

Network = Callable[[tuple[int, ...], int], nn.Module]


class Halved(FeatureMap):
    """A map that has no module."""

    def fit(self, public: Features) -> FeatureMap:
        return self

    def transform(self, features: Features) -> np.ndarray:
        return features[np.arange(features.shape[0])] / 2


class Doubled(Halved):
    """A map that has one."""

    def transform(self, features: Features) -> np.ndarray:
        return features[np.arange(features.shape[0])] * 2


class Double(nn.Module):
    def __init__(self, input_shape: Sequence[int]) -> None:
        super().__init__()

    def forward(self, records: Tensor) -> Tensor:
        return records * 2


@as_module.register
def _(features: Doubled, shape: tuple[int, ...]) -> MapModule:
    return MapModule(f"{__name__}.Double", Double(shape))


def student_on(source: DataSource, network: Network) -> Student:
    """Make a student with random weights, which answers a constant for its first two labels."""
    student = Student(
        network, input_shape=source.input_shape, label_names=source.label_names
    ).eval()
    student.departs[:2] = False
    student.constant_logits[:2] = torch.tensor([-torch.inf, 0.75])
    return student


def carried(
    folder: Path, student: Student, settings: Any, source: DataSource, *, trust: bool = False
) -> pate.ExportedStudent:
    """Carry a student away, with the statement of a release by hand."""
    statement, text = folder / "privacy.json", folder / "privacy.txt"
    folder.mkdir(parents=True, exist_ok=True)
    made = made_statement(folder)
    statement.write_text(json.dumps(made.content))
    text.write_text(made.text)
    trained = Trained(
        network=without_weights(settings, student.network),
        state=student.network.state_dict(),
        departs=student.departs.numpy(),
        constant_logits=student.constant_logits.numpy(),
        label_names=student.label_names,
        optimize=student.optimize,
        cuts=student.cuts[DECISION_METRICS.index(student.optimize)].numpy(),
    )
    export_student(
        folder / "model",
        trained,
        source,
        statement=statement,
        text=text,
        weights=weights_of_tensors,
    )
    return pate.load_student(folder / "model", trust=trust)


def answers_in_run(student: Student, source: DataSource) -> np.ndarray:
    """The probabilities for the test set as the network of a run computes them: 256 samples at a
    time."""
    features = source.records(Role.TEST).features
    rows = [
        np.arange(start, min(start + 256, features.shape[0]))
        for start in range(0, features.shape[0], 256)
    ]
    with torch.no_grad():
        parts = [student(torch.from_numpy(features[each])).sigmoid() for each in rows]
    return torch.cat(parts).numpy()


def raw(source: DataSource) -> np.ndarray:
    features = source.load(Role.TEST).features
    return features[np.arange(features.shape[0])]


@pytest.fixture
def table(tmp_path: Path) -> Arrays:
    np.savez(tmp_path / "data.npz", **make_arrays())  # type: ignore[arg-type]
    return Arrays(tmp_path / "data.npz")


def pictures_of(faces: Path) -> list[Path]:
    ids = CelebA(faces, size=12).load(Role.TEST).ids
    return [faces / "img_align_celeba" / str(name) for name in ids]


def test_a_run_leaves_its_student(finished: Path, copied: Path, tmp_path: Path) -> None:
    """Bit for bit, without the run, its data and its folder."""
    solved = Solved.read(finished / "public" / "student" / WEIGHTS, "accuracy")
    expected, _ = solved.predictor.decided(load_data(Run(finished)).records(Role.TEST).features[:])
    shutil.copytree(copied / "public" / "student" / "model", tmp_path / "away")
    shutil.rmtree(copied)
    student = pate.load_student(tmp_path / "away")
    arrays = make_arrays()
    samples = arrays["X"][arrays["split"] == 2]
    assert np.ptp(expected, axis=0).min() > 0.5
    assert (student.predict_proba(samples) == expected).all()
    assert (student.predict(samples) == (expected > 0.5)).all() and student.predict(
        samples
    ).dtype == np.uint8
    assert (pate.load_student(finished).predict_proba(samples) == expected).all()
    assert student.label_names == ("a", "b", "c", "d")
    assert student.input.kind == "features" and student.input.shape == (6,)
    public = finished / "public"
    assert student.statement.content == json.loads((public / "privacy.json").read_text())
    assert student.describe() == (public / "privacy.txt").read_text()
    student.statement.verify(released=public / "labels.npz")


def test_pictures_through_components(faces: Path, tmp_path: Path) -> None:
    source = CelebA(faces, size=12, features=PublicPCA(8))
    student = student_on(source, models.Linear)
    away = carried(tmp_path, student, "pate.models.Linear", source)
    expected, paths = answers_in_run(student, source), pictures_of(faces)
    found = away.predict_proba(paths)
    assert np.abs(found - expected).max() < 1e-6 and np.ptp(expected[:, 2:], axis=0).min() > 0.05
    assert (found[:, 0] == 0).all() and (away.predict(paths)[:, 1] == 1).all()
    assert away.settings["constant_decisions"].keys() == set(away.label_names[:2])
    floats = raw(source)
    pixels = np.rint(floats * 255).astype(np.uint8)
    assert (away.predict_proba(floats) == found).all() and (
        away.predict_proba(pixels) == found
    ).all()
    opened = [Image.open(path) for path in paths]
    assert (away.predict_proba(opened) == found).all()
    assert (away.predict_proba([np.asarray(each) for each in opened]) == found).all()
    assert (away.predict_proba(np.stack([np.asarray(each) for each in opened])) == found).all()
    assert (away.predict_proba(torch.from_numpy(pixels)) == found).all()
    assert np.abs(away.predict_proba(paths, batch_size=7) - found).max() < 1e-6
    assert away.predict([]).shape == (0, len(source.label_names))


def test_a_map_without_a_module_stays(table: Arrays, tmp_path: Path) -> None:
    source = Arrays(table.path, features=Halved())
    student = student_on(source, models.Linear)
    with pytest.raises(ValueError, match=r"a feature map that as_module knows .*, got .*\.Halved"):
        carried(tmp_path / "run", student, "pate.models.Linear", source)
    assert not (tmp_path / "run" / "model").exists()


_EVIL = """
import pathlib
pathlib.Path({marker!r}).touch()
def network(*args, **options):
    pathlib.Path({marker!r}).touch()
class Network:
    __init__ = network
"""


def from_elsewhere(path: str, /, **arguments: Any) -> dict[str, Any]:
    return {"class_path": path, "init_args": arguments}


def malicious() -> dict[str, dict[str, Any]]:
    """Changes of ``model.json`` by what they would import or call."""
    url = "http://127.0.0.1:9/weights.pt"
    own = from_elsewhere("evil_module.network")
    fetched = from_elsewhere("torch.hub.load_state_dict_from_url", url=url)
    builder = "torchvision.models.resnet18"
    networks: dict[str, Any] = {
        "a function": "evil_module.network",
        "a class": "evil_module.Network",
        "a module": from_elsewhere("evil_module.network", depth=3),
        "a download": fetched,
        "Lightning's reader": from_elsewhere(
            "lightning_fabric.utilities.cloud_io._load", path_or_url=url
        ),
        "torch's reader": from_elsewhere("torch.load", f="evil.pt", weights_only=False),
        "a way through torchvision": from_elsewhere(
            "torchvision.models.resnet.torch.hub.load", repo_or_dir="a/b"
        ),
        "a way through pate": from_elsewhere(
            "pate._networks.models.torch.load", f="evil.pt", weights_only=False
        ),
        "a class of pate that is no network": from_elsewhere(
            "pate.data.Arrays", path="evil_module.npz"
        ),
        "a network of pate that is none of pate.models": from_elsewhere(
            "pate._networks.student.training.Student", network=own
        ),
        "a function of torchvision that makes none": from_elsewhere(
            "torchvision.models.get_weight", name="evil_module"
        ),
        "an argument": from_elsewhere("pate.models.MLP", hidden=[own]),
        "a key of an argument": from_elsewhere("pate.models.MLP", hidden={"first": own}),
        "an argument of a function": from_elsewhere(builder, norm_layer=own),
        "a text of a function": from_elsewhere(builder, norm_layer="evil_module.network"),
        "weights of a function": from_elsewhere(builder, weights="DEFAULT", num_classes=4),
        "weights by an old name": from_elsewhere(builder, pretrained=True),
        "no arguments": {"class_path": builder, "init_args": ["evil_module.network"]},
        "weights of another kind of network": "torchvision.models.segmentation.fcn_resnet50",
        "weights": from_elsewhere("pate.models.ResNet50", weights="IMAGENET1K_V2"),
        "a file of weights": from_elsewhere("pate.models.ResNet50", weights="evil.pt"),
        # a configuration reads texts as YAML, files and class paths
        "a text": from_elsewhere("pate.models.MLP", hidden="evil_module.network"),
        "a text of YAML": from_elsewhere(builder, norm_layer="[{class_path: evil_module.network}]"),
        "a file's name": "evil.yaml",
        "not even a path": {"class_path": ["evil_module.network"]},
    }
    maps: dict[str, Any] = {
        "a map": own,
        "a map's backbone": fetched,
    }
    return {name: {"network": value} for name, value in networks.items()} | {
        name: {"features": value} for name, value in maps.items()
    }


@pytest.mark.parametrize("what", list(malicious()))
def test_a_folder_is_data(
    finished: Path, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that it names is imported, called or fetched, but for networks of pate and torchvision."""
    folder, marker = tmp_path / "model", tmp_path / "marker"
    shutil.copytree(finished / "public" / "student" / "model", folder)
    (tmp_path / "evil_module.py").write_text(_EVIL.format(marker=str(marker)))
    (tmp_path / "evil.yaml").write_text("class_path: evil_module.network\n")
    torch.save(Evil(marker), tmp_path / "evil.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def connect(*args: object, **options: object) -> None:
        marker.touch()
        raise OSError("no network in tests")

    monkeypatch.setattr("socket.socket.connect", connect)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", connect)
    said = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(said | malicious()[what]))
    with pytest.raises(ValueError, match=r"^Expected .*$"):
        load_student(folder).predict(np.zeros((3, 6)))
    assert not marker.exists() and "evil_module" not in sys.modules


class Evil:
    """A pickle that runs code."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return Path(self.marker).touch, ()


def test_what_is_trusted_runs(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same folder leaves its mark, on the command line too."""
    folder, marker = tmp_path / "model", tmp_path / "marker"
    shutil.copytree(finished / "public" / "student" / "model", folder)
    (tmp_path / "evil_module.py").write_text(_EVIL.format(marker=str(marker)))
    monkeypatch.syspath_prepend(tmp_path)
    said = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(said | {"network": "evil_module.network"}))
    np.savez(tmp_path / "new.npz", X=np.zeros((3, 6)))
    words = [
        "predict",
        str(folder),
        str(tmp_path / "new.npz"),
        "--output",
        str(tmp_path / "out.csv"),
    ]
    export = [
        "export",
        str(folder),
        "--format",
        "torch.export",
        "--output",
        str(tmp_path / "out.pt2"),
    ]
    for command in (words, export):
        assert cli.main(command) == 2 and not marker.exists()
    monkeypatch.delitem(sys.modules, "evil_module", raising=False)
    for command in (words, export):
        assert cli.main([*command, "--trust"]) == 2 and marker.exists()
        marker.unlink()
        sys.modules.pop("evil_module", None)


@pytest.mark.parametrize(
    "settings",
    [
        "torchvision.models.resnet18",
        pytest.param("torchvision.models.mobilenetv3.mobilenet_v3_small", marks=pytest.mark.slow),
        from_elsewhere("torchvision.models.resnet18", weights=None, zero_init_residual=True),
        from_elsewhere("pate.models.SmallCNN", widths=[8, 16], groups=4),
    ],
)
def test_networks_of_pate_and_torchvision_need_no_trust(settings: Any) -> None:
    network = restored_network(settings, (3, 32, 32), 5)
    assert network.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 5)
