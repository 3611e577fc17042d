"""How many teachers are trained at once is found on random data of the public shape."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from models import MLP, Linear, SmallCNN
from pate._core.files.writing import require_disk
from pate._networks.teachers import sizing
from pate._networks.teachers.sizing import (
    choose_size,
    chunk_bytes,
    describe_training,
    disk_bytes,
    step_seconds,
)
from pate.teachers import Execution
from tests.networks.teachers.test_independence import NormedMLP
from tests.networks.teachers.test_training import plan

CPU = torch.device("cpu")
PLENTY = 10**12


def test_memory_of_a_linear_head_by_hand() -> None:
    settings = plan(batch_size=32)
    found = chunk_bytes(settings, (512,), 20, 50)
    weights = 50 * (512 * 20 + 20) * 4
    # the batch and the logits are needed by backward
    needed = 4 * weights + 50 * 32 * (512 + 20) * 4
    assert needed <= found <= 1.5 * needed


@pytest.mark.parametrize("network", [MLP, partial(MLP, dropout=0.1), NormedMLP])
def test_memory_grows_with_the_chunk(network: Callable[..., nn.Module]) -> None:
    settings = plan(network=network)
    two, twenty = (chunk_bytes(settings, (6,), 4, size) for size in (2, 20))
    assert twenty == 10 * two


def test_a_chunk_is_halved_until_it_fits() -> None:
    settings = plan(chunk_size=48, num_teachers=100)
    available = chunk_bytes(settings, (6,), 4, 13)
    size, (message,) = choose_size(settings, (6,), 4, available=available)
    assert size == 12
    assert "A chunk of 48 teachers needs about" in message and "halved to 12" in message
    assert choose_size(settings, (6,), 4, available=0)[0] == 1
    assert choose_size(settings, (6,), 4, available=PLENTY) == (48, [])


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({1: 1e-3, 5: 1.2e-3, 20: 2e-3, 50: 4e-3}, 50),
        ({1: 1e-3, 5: 1.2e-3, 20: 2e-3, 50: 9e-3}, 20),
        ({1: 40e-3, 5: 300e-3}, 1),
        ({1: 2.0}, 1),  # no time is wasted on a trial of five
    ],
)
def test_the_fastest_size_is_chosen(
    seconds: dict[int, float], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(
        plan: Any, shape: Sequence[int], num_labels: int, size: int, *, device: torch.device
    ) -> float:
        return seconds[size]

    monkeypatch.setattr(sizing, "step_seconds", taken)
    settings = plan(num_teachers=60, chunk_size="auto")
    size, messages = choose_size(settings, (6,), 4, available=PLENTY)
    assert size == expected and messages[-1] == f"Teachers are trained {expected} at once."


def test_sizes_that_do_not_fit_or_are_too_many_are_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []

    def taken(
        plan: Any, shape: Sequence[int], num_labels: int, size: int, *, device: torch.device
    ) -> float:
        tried.append(size)
        return 1e-3

    monkeypatch.setattr(sizing, "step_seconds", taken)
    settings = plan(num_teachers=20, chunk_size="auto")
    assert choose_size(settings, (6,), 4, available=PLENTY)[0] == 20
    assert tried == [1, 5, 20]
    tried.clear()
    available = chunk_bytes(settings, (6,), 4, 6)
    assert choose_size(settings, (6,), 4, available=available)[0] == 5
    assert tried == [1, 5]


def test_the_trial_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    assert (
        step_seconds(plan(network=partial(MLP, dropout=0.5)), (6,), 4, 3, device=CPU, limit=0.01)
        > 0
    )
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_linear_heads_are_stacked_and_convolutions_are_not() -> None:
    heads = plan(network=Linear, num_teachers=100, batch_size=32, chunk_size="auto")
    assert choose_size(heads, (512,), 20)[0] > 1
    pictures = plan(network=SmallCNN, num_teachers=100, batch_size=32, chunk_size="auto")
    assert choose_size(pictures, (3, 32, 32), 20)[0] == 1


def test_the_disk_that_teachers_take_is_there_before_they_train(tmp_path: Path) -> None:
    settings = plan(network=Linear)
    assert disk_bytes(settings, (6,), 4, 100) == 100 * (6 * 4 + 4) * 4
    require_disk(1000, tmp_path / "new" / "teachers", "teachers")
    needed = f"{10**18 / 1e9:.3g}"
    with pytest.raises(
        ValueError,
        match=rf"^Expected {re.escape(needed)} GB of free disk for the teachers in .*, got free_gb=",
    ):
        require_disk(10**18, tmp_path / "new" / "teachers", "teachers")


def test_a_dry_run_says_what_will_run_where() -> None:
    text = describe_training(
        plan(num_teachers=10),
        [0, 5, 6, 7, 8, 9, 10, 11, 12, 100],
        shape=(6,),
        num_labels=4,
        execution=Execution(executor="ray", workers=2, gpus=0.25),
    )
    lines = text.splitlines()
    assert (
        lines[0]
        == "PRIVATE: 168 records in 10 partitions of 0 to 100, median 8; 1 without a record."
    )
    assert lines[1] == "3 chunks of 4 teachers, 12 steps of 8 records."
    assert lines[2].startswith("Memory: about ")
    assert lines[3].startswith("Disk: about ")
    assert lines[4].startswith("Time: about ")
    assert lines[5] == "Place: 2 workers by ray, 1 thread(s) each, 0.25 of a GPU each, on cpu."
