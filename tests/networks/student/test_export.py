"""`pate export`: programs that answer as the student does, without pate."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import models
import pate
from pate import cli
from pate._networks.student import answers
from pate.data import (
    CelebA,
    ChainedFeatures,
    DataSource,
    FeatureMap,
    PatchFeatures,
    PublicPCA,
    PublicScaling,
)
from tests.networks.student.test_carried import carried, student_on

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def run_torch(path: Path, samples: np.ndarray) -> tuple[list[np.ndarray], Any]:
    said = {answers.METADATA: ""}
    program = torch.export.load(path, extra_files=said)
    return [each.numpy() for each in program.module()(torch.from_numpy(samples))], json.loads(
        said[answers.METADATA]
    )


def run_onnx(path: Path, samples: np.ndarray) -> tuple[list[np.ndarray], Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    said = json.loads(session.get_modelmeta().custom_metadata_map[answers.METADATA])
    assert [each.name for each in session.get_inputs()] == [said["input"]["name"]]
    return session.run(list(said["outputs"]), {said["input"]["name"]: samples}), said


def exported(folder: Path, name: str) -> tuple[list[Path], pate.ExportedStudent]:
    """Export the student in ``folder`` to both formats, by the command."""
    paths = [folder / f"{name}{suffix}" for suffix in (".pt2", ".onnx")]
    for path, form in zip(paths, ("torch.export", "onnx"), strict=True):
        assert (
            cli.main(["export", str(folder / "model"), "--format", form, "--output", str(path)])
            == 0
        )
    return paths, pate.load_student(folder / "model")


def require_same(paths: list[Path], student: pate.ExportedStudent, samples: np.ndarray) -> None:
    """For any number of samples, the same answers but for rounding."""
    probabilities, labels = student.answer(samples)
    assert np.ptp(probabilities, axis=0)[2:].min() > 0.01
    for path, run in zip(paths, (run_torch, run_onnx), strict=True):
        for rows in (slice(None), slice(1), slice(7)):
            (found, given), said = run(path, samples[rows])
            assert found.dtype == np.float32 and np.abs(found - probabilities[rows]).max() < 2e-6
            clear = np.abs(found - 0.5) > 1e-5
            assert given.dtype == np.bool_ and (given == labels[rows])[clear].all()
        assert (
            said["label_names"] == list(student.label_names)
            and said["privacy"] == student.describe()
        )
        assert said["input"]["dtype"] == str(samples.dtype) and said["input"]["shape"] == list(
            samples.shape[1:]
        )


def pixels(source: DataSource) -> np.ndarray:
    features = source.load(pate.data.Role.TEST).features
    return np.rint(features[np.arange(features.shape[0])] * 255).astype(np.uint8)


# torch takes ten seconds to import what it exports with, so that the other tests of that are slow
# ones
@pytest.mark.slow
@pytest.mark.parametrize(
    "feature_map",
    [PublicPCA(8), ChainedFeatures([PatchFeatures(16, pool=2), PublicScaling()])],
    ids=["components", "patches"],
)
def test_pictures_through_a_map(
    feature_map: FeatureMap, faces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = CelebA(faces, size=12, features=feature_map)
    carried(tmp_path, student_on(source, models.Linear), "pate.models.Linear", source)
    paths, student = exported(tmp_path, "student")
    told = f"onnx of pictures [N, 3, 12, 12], {source.num_labels} labels: {paths[1]}\n"
    assert told in capsys.readouterr().out
    require_same(paths, student, pixels(source))
