"""A student that is an `AutoModelForImageClassification` of Hugging Face, with random weights.

    pate run RECIPE --student.model.network scripts.hugging_face.Picture --code .

With weights of a local folder, write ``AutoModelForImageClassification.from_pretrained(folder)``.
"""

import pytorch_lightning as pl
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForImageClassification

from pate.student import masked_loss


class Picture(pl.LightningModule):
    """A small vision transformer that sees pictures ``[B, 3, side, side]``."""

    def __init__(self, shape: tuple[int, ...], num_labels: int, width: int = 32) -> None:
        super().__init__()
        sizes = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2}
        heads = {"num_attention_heads": 2, "image_size": shape[-1], "patch_size": 8}
        config = AutoConfig.for_model("vit", num_labels=num_labels, **sizes, **heads)
        self.model = AutoModelForImageClassification.from_config(config)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return logits ``[B, C]``."""
        return self.model(pixel_values=pictures).logits

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Return the loss of answers ``[B, C]`` inside their mask."""
        pictures, answers, mask = batch
        return masked_loss(self(pictures), answers, mask)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)
