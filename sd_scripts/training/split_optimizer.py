"""One optimizer for each part of the weights, acting as one.

Two things need it: stepping a part inside the backward pass as soon as its gradients are complete, so that they need not all be
in memory at once; and stepping bfloat16 weights in float32, which only a part of them fits into memory as.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import Parameter
from torch.optim import Optimizer

from sd_scripts.seeds import seed_of
from sd_scripts.training.stochastic_rounding import Rounding, in_float32, nearest, stochastically_rounded

Groups = list[dict[str, Any]]


@dataclass(frozen=True)
class Stepping:
    """How an optimizer goes through the weights.

    Attributes:
        parts: the weights, split; together they are all that is trained.
        is_fused: step each part inside the backward pass, and drop its gradients.
        max_norm: of the gradients of each part, where it is fused; 0 is no limit.
        rounding_seed: step bfloat16 weights in float32 and round stochastically, from this seed; None leaves them as they are.
    """

    parts: Sequence[Sequence[Parameter]]
    is_fused: bool = False
    max_norm: float = 0.0
    rounding_seed: int | None = None


class SplitOptimizer(Optimizer):
    """Acts as one optimizer over all groups; its state is that of the plain one, so either can go on from the other's.

    What a part does must depend on its own weights alone: true of all but those that find one rate for everything.

    Args:
        make: makes an optimizer for some groups.
        groups: with "params", and what else belongs to them ("lr", "name").
    """

    def __init__(self, make: Callable[[Groups], Optimizer], groups: Sequence[dict[str, Any]], stepping: Stepping):
        super().__init__([dict(group) for group in groups], {})
        self.whole = make([dict(group) for group in groups])  # never stepped: holds values and state of all parts
        self.param_groups = self.whole.param_groups
        self.stepping = stepping
        self._group_of = {id(p): number for number, group in enumerate(self.param_groups) for p in group["params"]}
        parts = [list(part) for part in stepping.parts]
        if sorted(self._group_of) != sorted(id(p) for part in parts for p in part):
            raise ValueError("the parts are not the parameters of the groups")
        self.parts = [self._part(number, part, make) for number, part in enumerate(parts)]
        self._speaker = {group: part for part in self.parts for group in part.groups}
        self._share_state()
        if stepping.is_fused:
            for part in self.parts:
                for parameter in filter(lambda p: p.requires_grad, part.parameters):
                    parameter.register_post_accumulate_grad_hook(partial(self._gradient_came, part))

    @property
    def is_fused(self) -> bool:
        """Whether the weights are stepped inside the backward pass; `step` then only ends the step."""
        return self.stepping.is_fused

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Step all parts; where they are fused, those that still wait because a gradient of theirs never came."""
        for part in self.parts:
            if not self.is_fused or part.arrived:
                self._step_part(part)
        self._take_group_values()
        if self.stepping.rounding_seed is not None:
            for group in self.param_groups:
                group["rounded_steps"] = group.get("rounded_steps", 0) + 1

    def state_dict(self) -> dict[str, Any]:
        return self.whole.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.whole.load_state_dict(state_dict)
        self.param_groups = self.whole.param_groups
        self._share_state()

    def train(self) -> None:
        """The weights to train, for schedule-free optimizers."""
        self._switch("train")

    def eval(self) -> None:
        """The weights to use, for schedule-free optimizers."""
        self._switch("eval")

    def _switch(self, mode: str) -> None:
        for part in self.parts:
            self._give_group_values(part)
            with in_float32(part.parameters if self.stepping.rounding_seed is not None else (), nearest):
                getattr(part.optimizer, mode)()
        self._take_group_values()

    def _gradient_came(self, part: _Part, _: Parameter) -> None:
        part.arrived += 1
        if part.arrived == len(part.parameters):
            with torch.no_grad():
                self._step_part(part)

    def _step_part(self, part: _Part) -> None:
        if self.is_fused and self.stepping.max_norm:
            nn.utils.clip_grad_norm_(part.parameters, self.stepping.max_norm)
        self._give_group_values(part)
        if self.stepping.rounding_seed is None:
            part.optimizer.step()
        else:
            with in_float32(part.parameters, self._rounding(part)):
                part.optimizer.step()
        if self.is_fused:
            part.optimizer.zero_grad(set_to_none=True)
        part.arrived = 0
        self._speaker.update(dict.fromkeys(part.groups, part))

    def _rounding(self, part: _Part) -> Rounding:
        """Rounding whose draws depend on seed, step and part alone: the same on every process and after a resume."""
        steps = self.param_groups[0].get("rounded_steps", 0)
        generator = torch.Generator(part.parameters[0].device)
        generator.manual_seed(seed_of(self.stepping.rounding_seed, "rounding", steps, part.number))
        return partial(stochastically_rounded, generator=generator)

    def _part(self, number: int, parameters: list[Parameter], make: Callable[[Groups], Optimizer]) -> _Part:
        """A part with an optimizer of its own, which has those groups of ours that the part has parameters of."""
        of_group: dict[int, list[Parameter]] = {}
        for parameter in parameters:
            of_group.setdefault(self._group_of[id(parameter)], []).append(parameter)
        groups = [{**self.param_groups[group], "params": members} for group, members in of_group.items()]
        return _Part(number, parameters, make(groups), tuple(of_group))

    def _give_group_values(self, part: _Part) -> None:
        """Rates and all else that schedules and loaded states set, to the part."""
        for theirs, group in zip(part.optimizer.param_groups, part.groups, strict=True):
            theirs.update({key: value for key, value in self.param_groups[group].items() if key != "params"})

    def _take_group_values(self) -> None:
        """What a step has changed (step counts, sums of weights): the same in all parts that were stepped, so from one."""
        for group, part in self._speaker.items():
            theirs = part.optimizer.param_groups[part.groups.index(group)]
            self.param_groups[group].update({key: value for key, value in theirs.items() if key != "params"})

    def _share_state(self) -> None:
        self.state = self.whole.state
        for part in self.parts:
            part.optimizer.state = self.whole.state


@dataclass
class _Part:
    number: int
    parameters: list[Parameter]
    optimizer: Optimizer
    groups: tuple[int, ...]  # the number among ours of each group of its optimizer
    arrived: int = 0  # gradients of this backward pass


# Ways to split


def each_alone(parameters: Sequence[Parameter]) -> list[list[Parameter]]:
    """Every parameter by itself."""
    return [[parameter] for parameter in parameters]


def in_equal_parts(parameters: Sequence[Parameter], count: int) -> list[list[Parameter]]:
    """At most `count` parts of about the same number of weights, in order."""
    total = sum(p.numel() for p in parameters)
    parts: list[list[Parameter]] = [[] for _ in range(count)]
    before = 0
    for parameter in parameters:
        parts[min(count - 1, before * count // max(total, 1))].append(parameter)
        before += parameter.numel()
    return [part for part in parts if part]


def up_to_size(parameters: Sequence[Parameter], most: int) -> list[list[Parameter]]:
    """Parts of at most so many weights, or of one parameter, in order."""
    parts: list[list[Parameter]] = []
    size = most
    for parameter in parameters:
        size += parameter.numel()
        if size > most:
            parts.append([])
            size = parameter.numel()
        parts[-1].append(parameter)
    return parts


def by_block(named: dict[str, Parameter]) -> list[list[Parameter]]:
    """A part for each block, which is what the first number in a parameter's name counts; one for what is in no block."""
    blocks: dict[tuple[str, ...], list[Parameter]] = {}
    for name, parameter in named.items():
        words = name.split(".")
        first = next((place for place, word in enumerate(words) if word.isdecimal()), -1)
        blocks.setdefault(tuple(words[: first + 1]), []).append(parameter)
    return list(blocks.values())
