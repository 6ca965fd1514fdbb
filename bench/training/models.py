"""ResNet-50, ViT-B/16 and GPT-2 small of torch alone, with synthetic data of full size, or of tiny size for CPUs.

Linear layers of the transformers can be cut over a tensor-parallel group: the first of each pair by its outputs (whole
heads), the second by its inputs, with one sum over the group forward and one backward (Megatron-LM).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class TensorParallel:
    group: Any = None
    rank: int = 0
    size: int = 1


ALONE = TensorParallel()


class _SumBackward(torch.autograd.Function):
    """What comes in is the same on all ranks of the group; its gradient is the sum of theirs."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor, over: TensorParallel) -> torch.Tensor:
        context.over = over
        return value

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient, group=context.over.group)
        return gradient, None


class _SumForward(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, value: torch.Tensor, over: TensorParallel) -> torch.Tensor:
        value = value.contiguous()
        dist.all_reduce(value, group=over.group)
        return value

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


def enter(value: torch.Tensor, over: TensorParallel) -> torch.Tensor:
    return _SumBackward.apply(value, over) if over.size > 1 else value


def leave(value: torch.Tensor, over: TensorParallel) -> torch.Tensor:
    return _SumForward.apply(value, over) if over.size > 1 else value


class CutLinear(nn.Module):
    """Rows (``by`` 0: outputs) or columns (1: inputs) of a linear layer that is drawn whole on every rank."""

    def __init__(self, inputs: int, outputs: int, over: TensorParallel, by: int, groups: int = 1) -> None:
        super().__init__()
        whole = nn.Linear(inputs, outputs)
        self.over, self.by = over, by

        def part(tensor: torch.Tensor, axis: int) -> nn.Parameter:
            # Of each group (query, key and value) the same part.
            pieces = [
                piece.chunk(over.size, axis)[over.rank] for piece in tensor.detach().chunk(groups, axis)
            ]
            return nn.Parameter(torch.cat(pieces, axis).clone())

        self.weight = part(whole.weight, by)
        self.bias = part(whole.bias, 0) if by == 0 else nn.Parameter(whole.bias.detach().clone())

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        if self.by == 0:
            return functional.linear(enter(value, self.over), self.weight, self.bias)
        return leave(functional.linear(value, self.weight), self.over) + self.bias


class Layer(nn.Module):
    """Of a transformer, normalized before."""

    def __init__(self, width: int, heads: int, causal: bool, over: TensorParallel) -> None:
        super().__init__()
        self.heads, self.causal = heads // over.size, causal
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = CutLinear(width, 3 * width, over, 0, groups=3)
        self.projection = CutLinear(width, width, over, 1)
        self.up = CutLinear(width, 4 * width, over, 0)
        self.down = CutLinear(4 * width, width, over, 1)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        batch, length, _ = value.shape
        qkv = self.qkv(self.before_attention(value))
        query, key, of_value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in qkv.chunk(3, -1)
        )
        attended = functional.scaled_dot_product_attention(query, key, of_value, is_causal=self.causal)
        value = value + self.projection(attended.transpose(1, 2).reshape(batch, length, -1))
        return value + self.down(functional.gelu(self.up(self.before_mlp(value)), approximate="tanh"))


class TextIn(nn.Module):
    def __init__(self, words: int, length: int, width: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.words(text) + self.places(torch.arange(text.shape[1], device=text.device))


class ImageIn(nn.Module):
    def __init__(self, pixels: int, patch: int, width: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, (pixels // patch) ** 2 + 1, width))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        first = self.first.to(patches.dtype).expand(images.shape[0], -1, -1)
        return torch.cat([first, patches], 1) + self.places


class Out(nn.Module):
    def __init__(self, width: int, outputs: int, of_first: bool) -> None:
        super().__init__()
        self.norm, self.head, self.of_first = (
            nn.LayerNorm(width),
            nn.Linear(width, outputs, bias=False),
            of_first,
        )

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(value[:, 0] if self.of_first else value))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.path = nn.Sequential(
            *(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(
                nn.Conv2d(width, width, 3, stride, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ),
            *(nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.path(value) + self.short(value))


def resnet(width: int, depths: tuple[int, ...], classes: int) -> nn.Sequential:
    stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    layers: list[nn.Module] = [*stem, nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage, depth in enumerate(depths):
        for block in range(depth):
            layers.append(Bottleneck(inputs, width << stage, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


@dataclass(frozen=True)
class Workload:
    """A model with its data. ``build`` draws all weights from torch's generator, the same whole ones on every rank."""

    name: str
    build: Callable[[TensorParallel], nn.Sequential]
    batch: int  # samples of a rank and step
    draw: Callable[[torch.Generator, int], Batch]
    layers: int = 0  # of a transformer, which can be cut into stages or over tensor-parallel ranks
    images: bool = True

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(output.float().flatten(0, -2), target.flatten())

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        if self.layers == 0:
            return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4)
        return torch.optim.AdamW(parameters, lr=3e-4, fused=torch.cuda.is_available())

    def stage(self, whole: nn.Sequential, rank: int, size: int) -> nn.Sequential:
        """Layers of one of ``size`` stages, which are about as long as each other."""
        begin, end = (len(whole) * k // size for k in (rank, rank + 1))
        return nn.Sequential(*list(whole.children())[begin:end])


def _images(pixels: int, classes: int) -> Callable[[torch.Generator, int], Batch]:
    """Noise that carries its class as a faint pattern, so that there is something to learn."""
    patterns = torch.randn(classes, 3, 8, 8, generator=torch.Generator().manual_seed(7))

    def draw(generator: torch.Generator, batch: int) -> Batch:
        labels = torch.randint(classes, (batch,), generator=generator)
        noise = torch.randn(batch, 3, pixels, pixels, generator=generator)
        return noise + functional.interpolate(patterns[labels], size=(pixels, pixels)), labels

    return draw


def _text(words: int, length: int) -> Callable[[torch.Generator, int], Batch]:
    """Each word follows from the one before, but for one in eight."""

    def draw(generator: torch.Generator, batch: int) -> Batch:
        text = torch.randint(words, (batch, length + 1), generator=generator)
        kept = torch.rand(batch, length + 1, generator=generator) > 0.125
        for place in range(1, length + 1):
            follows = (text[:, place - 1] * 31 + 17) % words
            text[:, place] = torch.where(kept[:, place], follows, text[:, place])
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()

    return draw


def _transformer(
    width: int, heads: int, layers: int, causal: bool, first: Callable[[], nn.Module], outputs: int
) -> Callable[[TensorParallel], nn.Sequential]:
    def build(over: TensorParallel) -> nn.Sequential:
        if heads % over.size:
            raise ValueError(f"{heads} heads cannot be cut over {over.size} ranks")
        body = [Layer(width, heads, causal, over) for _ in range(layers)]
        return nn.Sequential(first(), *body, Out(width, outputs, not causal))

    return build


def workloads(tiny: bool) -> dict[str, Workload]:
    if tiny:
        pixels, classes, words, length, width, heads, layers, batches = 32, 10, 64, 16, 32, 4, 2, (4, 4, 4)
        residual, patch = (8, (1, 1)), 8
    else:
        pixels, classes, words, length, width, heads, layers, batches = (
            224,
            1000,
            50304,
            1024,
            768,
            12,
            12,
            (64, 64, 8),
        )
        residual, patch = (64, (3, 4, 6, 3)), 16
    vit = _transformer(width, heads, layers, False, lambda: ImageIn(pixels, patch, width), classes)
    gpt = _transformer(width, heads, layers, True, lambda: TextIn(words, length, width), words)
    all_of = (
        Workload("resnet50", lambda over: resnet(*residual, classes), batches[0], _images(pixels, classes)),
        Workload("vit_b16", vit, batches[1], _images(pixels, classes), layers),
        Workload("gpt2", gpt, batches[2], _text(words, length), layers, images=False),
    )
    return {workload.name: workload for workload in all_of}


def parameter_count(model: nn.Module) -> int:
    """Of what this rank has: of a parameter that is sharded, its shard."""
    held = (each.to_local() if hasattr(each, "to_local") else each for each in model.parameters())
    return sum(math.prod(each.shape) for each in held)
