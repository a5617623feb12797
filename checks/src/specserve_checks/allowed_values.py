"""What a configured value may be, written beside its type: `port: Annotated[int, Between(0, 65535)] = 8000`.

A configuration checks itself by these (`check_fields`), and a command line may show them. Errors name the
option. None is allowed where the type has it: it leaves the option unset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import msgspec


class Allowed:
    """What may stand in the brackets of `Annotated`. `str` of it is for people."""

    def problem(self, name: str, got: object) -> str:
        """Why the option `name` must not have this value; empty where it may."""
        return ""


@dataclass(frozen=True)
class Between(Allowed):
    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"{self.minimum} to {self.maximum}"

    def problem(self, name: str, got: object) -> str:
        if isinstance(got, int | float) and self.minimum <= got <= self.maximum:
            return ""
        return f"{name} must be between {self.minimum} and {self.maximum}; got {got}."


@dataclass(frozen=True)
class AtLeast(Allowed):
    minimum: int

    def __str__(self) -> str:
        return f"at least {self.minimum}"

    def problem(self, name: str, got: object) -> str:
        if isinstance(got, int | float) and got >= self.minimum:  # false for NaN
            return ""
        return f"{name} must be at least {self.minimum}; got {got}."


@dataclass(frozen=True)
class Seconds(Allowed):
    """The check of an option that None switches off."""

    def __str__(self) -> str:
        return "above 0"

    def problem(self, name: str, got: object) -> str:
        if isinstance(got, int | float) and 0 < got < math.inf:  # false for NaN
            return ""
        return f"{name} must be a number of seconds above 0; got {got}. Leave it out to switch it off."


@dataclass(frozen=True)
class OneOf(Allowed):
    values: tuple[str | int, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))

    def problem(self, name: str, got: object) -> str:
        if got in self.values:
            return ""
        return f"{name} must be one of {self}; got {repr(got) if isinstance(got, str) else got}."


@dataclass(frozen=True)
class Form(Allowed):
    """In words; the configuration checks it itself."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Unset:
    """What an option means that is None, as a default."""

    meaning: str


def check_fields(config: msgspec.Struct, refuse: Callable[[str], Exception]) -> None:
    """Raises what `refuse` makes of the first value that is not allowed."""
    for name, beside in annotations_of(type(config)).items():
        got = getattr(config, name)
        if got is not None:
            for each in beside:
                if isinstance(each, Allowed) and (problem := each.problem(name, got)):
                    raise refuse(problem)


@cache
def annotations_of(config: type[msgspec.Struct]) -> Mapping[str, tuple[object, ...]]:
    """By field, what stands beside its type."""
    hints = get_type_hints(config, include_extras=True)
    return {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
