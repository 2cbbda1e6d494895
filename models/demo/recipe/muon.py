"""Muon: momentum whose update of each weight matrix is made orthogonal; in far fewer steps than Adam here."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import Parameter

LARGEST_MATRIX = 2048  # rows; what has more is a vocabulary


class Muon(torch.optim.Optimizer):
    """For weights of two or more dimensions; convolutions count as matrices (out, in * height * width).

    Keller Jordan, "Muon: an optimizer for hidden layers in neural networks" (2024).

    Args:
        lr: length of a step in units of an orthogonal matrix, e.g. 0.02.
        momentum: share of the old momentum kept by a step, 0 … <1.
    """

    def __init__(self, parameters: Iterable[Parameter], lr: float, momentum: float = 0.95):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(parameter)
                average = state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                direction = orthogonal(parameter.grad.lerp(average, group["momentum"]).flatten(1))
                rows, columns = direction.shape
                parameter.sub_(direction.view_as(parameter), alpha=group["lr"] * max(1, rows / columns) ** 0.5)


def orthogonal(matrix: Tensor, steps: int = 5) -> Tensor:
    """Nearly the orthogonal matrix next to (m, n): Newton–Schulz with the quintic coefficients of the article above."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (2.0315 * gram @ gram - 4.7750 * gram) @ x
    return x.T if is_tall else x


class MuonAdam(torch.optim.Optimizer):
    """Muon for matrices and convolutions, Adam for everything else, at one learning rate in Adam's units.

    A Muon step is scaled so that its elements have a root mean square of 0.2 times the rate, which is about Adam's
    (Liu et al., "Muon is scalable for LLM training", 2025). Vocabularies count as "everything else".
    """

    def __init__(self, params: Iterable, lr: float, momentum: float = 0.95, betas: tuple[float, float] = (0.9, 0.99)):
        super().__init__(params, {"lr": lr, "momentum": momentum, "betas": tuple(betas)})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if parameter.ndim >= 2 and parameter.shape[0] <= LARGEST_MATRIX:
                    self._muon(parameter, group)
                else:
                    self._adam(parameter, group)

    def _muon(self, parameter: Parameter, group: dict) -> None:
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        average = state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
        direction = orthogonal(parameter.grad.lerp(average, group["momentum"]).flatten(1))
        parameter.sub_(direction.view_as(parameter), alpha=group["lr"] * 0.2 * max(direction.shape) ** 0.5)

    def _adam(self, parameter: Parameter, group: dict) -> None:
        state = self.state[parameter]
        if "first" not in state:
            state |= {"steps": 0, "first": torch.zeros_like(parameter), "second": torch.zeros_like(parameter)}
        state["steps"] += 1
        beta1, beta2 = group["betas"]
        state["first"].lerp_(parameter.grad, 1 - beta1)
        state["second"].mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
        unbiased = (state["second"] / (1 - beta2 ** state["steps"])).sqrt_().add_(1e-8)
        parameter.addcdiv_(state["first"], unbiased, value=-group["lr"] / (1 - beta1 ** state["steps"]))
