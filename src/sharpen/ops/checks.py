"""Rank and shape checks at the entry of a pure function."""

from __future__ import annotations

from torch import Tensor


def same_shape(**tensors: Tensor) -> None:
    """Raise ValueError, with every shape in the message, unless all tensors have one shape."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError("expected one shape, got " + ", ".join(f"{name} {shape}" for name, shape in shapes.items()))


def rank(dimensions: int, **tensors: Tensor) -> None:
    """Raise ValueError, with the shape in the message, unless every tensor has this many dimensions."""
    for name, tensor in tensors.items():
        if tensor.dim() != dimensions:
            raise ValueError(f"expected {name} with {dimensions} dimensions, got shape {tuple(tensor.shape)}")
