"""The plan as text for a console."""

from __future__ import annotations

from collections.abc import Iterator

from sd_scripts.plan import Plan


def plan_lines(plan: Plan) -> Iterator[str]:
    """The plan, a line at a time; errors last, so that they stand where one looks."""
    if plan.model is not None:
        count = sum(plan.model.parameters().values())
        yield f"Model      {plan.model.path.name}: {plan.model.label}, {count / 1e6:,.1f} M parameters"
    if plan.data is not None:
        yield from plan.data.lines()
    if plan.steps is not None:
        steps = plan.steps
        collected = f", {steps.accumulation} batches a step" if steps.accumulation > 1 else ""
        yield (
            f"Length     {steps.total} steps: {steps.epochs} epochs of {steps.per_epoch} steps"
            f" ({steps.batches_per_epoch} batches{collected})"
        )
    for part in plan.trained:
        if part.learning_rate is None:
            yield f"Trained    {part.label}: not trained ({part.reason})"
        else:
            yield (
                f"Trained    {part.label}: {part.modules} modules, {part.parameters / 1e6:,.2f} M parameters,"
                f" learning rate {part.learning_rate:g}"
            )
    if plan.memory is not None:
        yield f"Memory     {plan.memory}"
    for problem in reversed(plan.problems):
        yield f"{problem.level.capitalize():<10} {problem}"
