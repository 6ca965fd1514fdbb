"""The task of the demo: handwritten digits (scikit-learn's, real scans) and a small vision transformer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Digits:
    """8 x 8 images in 0..1 and their digits."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor


def load_digits() -> Digits:
    """The 1,797 digits that come with scikit-learn; every fifth is for testing."""
    from sklearn import datasets

    bunch = datasets.load_digits()
    images = torch.tensor(bunch.images, dtype=torch.get_default_dtype()) / 16
    labels = torch.tensor(bunch.target, dtype=torch.int64)
    test = torch.arange(len(labels)) % 5 == 0
    return Digits(images[~test], labels[~test], images[test], labels[test])


class VisionTransformer(nn.Module):  # type: ignore[misc]
    """16 patches of 2 x 2 pixels, two layers of self-attention, one answer."""

    def __init__(self, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.place = nn.Parameter(torch.randn(16, width) * 0.1)
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.answer = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = images.unfold(1, 2, 2).unfold(2, 2, 2).reshape(-1, 16, 4)
        seen = self.encoder(self.embed(patches) + self.place)
        result: torch.Tensor = self.answer(seen.mean(dim=1))
        return result
