import torch

from models import Linear
from pate.student import Student

NAMES = ("a", "b")


def batch(num: int = 32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    features = torch.randn(num, 5, generator=torch.Generator().manual_seed(0))
    labels = (features[:, :2] > 0).float()
    return features, labels, torch.ones(num, 2)


def test_entries_outside_the_mask_have_no_part_in_the_loss() -> None:
    student = Student(Linear, input_shape=(5,), label_names=NAMES)
    features, labels, mask = batch()
    mask[10:, 0] = 0
    student.log = lambda *args, **kwargs: None  # type: ignore[method-assign]
    loss = student.training_step((features, labels, mask), 0)
    spoilt = labels.clone()
    spoilt[10:, 0] = 1 - spoilt[10:, 0]
    assert student.training_step((features, spoilt, mask), 0) == loss
    assert student.training_step((features, spoilt, torch.ones(32, 2)), 0) != loss
    assert student.training_step((features, labels, torch.zeros(32, 2)), 0) == 0
