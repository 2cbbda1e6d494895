"""Types of values that several options share."""

from typing import Annotated

from pydantic import AfterValidator


def _never_below_0(every: int) -> int:
    return max(every, 0)


Interval = Annotated[int, AfterValidator(_never_below_0)]
"""Every so many; 0 is never, and so is anything below, which older settings hold."""
