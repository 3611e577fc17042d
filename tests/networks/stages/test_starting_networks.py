"""Networks that start from a released student: its weights, or what learned its answers, and then their own records."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pate import RunPlan, TeacherPlan
from pate._labeling.data.records import assign_teachers
from pate._networks.teachers.plan import NetworkFactory
from pate.data import Arrays
from pate.models import MLP, Linear
from pate.teachers import load_chunk
from tests.conftest import make_arrays
from tests.labeling.stages.test_corrections import KEY, Fit, altered, removed

TEACHERS = 12
NETWORKS: dict[str, NetworkFactory] = {
    "its own class": Linear,
    "another": partial(MLP, hidden=(8,)),
}


def plan_of(warm: Path, network: str, *, steps: int = 3, chunk_size: int = 4) -> TeacherPlan:
    return TeacherPlan(
        network=NETWORKS[network],
        num_teachers=TEACHERS,
        num_steps=steps,
        batch_size=8,
        chunk_size=chunk_size,
        optimizer=partial(torch.optim.Adam, lr=0.02),
        start_from=str(warm / "run" / "first"),
        accelerator="cpu",
    )


def fitted(
    warm: Path, folder: Path, plan: TeacherPlan, **changes: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the weights of all teachers of a changed data set, and those that they start from."""
    fit = Fit(warm, folder, **changes)
    data = Arrays(fit.folder / "data.npz")
    ledger = warm / "data.ledger.sqlite"
    RunPlan(folder / "run", data, teachers=plan, ledger=ledger).fit_teachers()
    place = folder / "run" / "private" / "teachers"
    states = [load_chunk(plan, chunk, (6,), 4, place).state_dict() for chunk in plan.chunks()]
    (start,) = place.glob("start_*.safetensors")
    weights = {
        name: torch.cat([state[name] for state in states]).numpy()
        for name in states[0]
        if name.startswith("stacked")
    }
    return weights | {"start/" + name: value.numpy() for name, value in load_file(start).items()}


@pytest.mark.parametrize(
    "network", ["its own class", pytest.param("another", marks=pytest.mark.slow)]
)
def test_a_record_reaches_its_own_teacher_alone(network: str, warm: Path, tmp_path: Path) -> None:
    plan = plan_of(warm, network)
    one = fitted(warm, tmp_path / "one", plan)
    (mine,) = assign_teachers(["r0007"], num_teachers=TEACHERS, key=KEY).tolist()
    others = np.arange(TEACHERS) != mine
    for change in (altered, removed):
        other = fitted(warm, tmp_path / change.__name__, plan, **change(make_arrays()))
        for name, weights in one.items():
            rows = slice(None) if name.startswith("start/") else others
            np.testing.assert_array_equal(weights[rows], other[name][rows])
        moved = [(one[name][mine] != other[name][mine]).any() for name in one if "stacked" in name]
        assert any(moved), change.__name__
