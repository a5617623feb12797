"""A form for answers, as users of these clients write them. The demo model fills it with what the grammar leaves it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=150)
    kind: Literal["child", "adult"]


QUESTION = "a person, as json"
MAX_TOKENS = 200
"""Enough for a Person, in whatever order and with whatever blanks."""
