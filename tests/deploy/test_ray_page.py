"""docs/ray.md has every option of [ray] and its tables, with its default."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from specserve_ray.config import AutoscalingConfig, RayConfig
from specserve_ray.policy import REASONS
from specserve_ray.policy_options import PolicyOptions

PAGE = (Path(__file__).parents[2] / "docs" / "ray.md").read_text(encoding="utf-8")
TABLES = {"[ray]": RayConfig, "[ray.autoscaling]": AutoscalingConfig, "[ray.routing]": PolicyOptions}


def rows(title: str) -> dict[str, str]:
    """The default that the page gives, by option."""
    found = re.search(rf"\| `{re.escape(title)}` \|.*?\n\n", PAGE, re.DOTALL)
    assert found is not None
    lines = [line.split("|")[1:3] for line in found[0].strip().splitlines()[2:]]
    return {name.strip(" `"): default.strip(" `") for name, default in lines if name.strip()}


@pytest.mark.parametrize(("title", "options"), TABLES.items())
def test_every_option_has_a_row_with_its_default(title: str, options: type[msgspec.Struct]) -> None:
    defaults = msgspec.structs.asdict(options())
    page = rows(title)
    assert page.keys() == defaults.keys()
    for name, default in defaults.items():
        if isinstance(default, int | float):
            assert float(page[name]) == default, name
        if isinstance(default, str):
            assert page[name] == default, name


def test_every_reason_for_a_choice_is_explained() -> None:
    assert all(f"`{reason}`" in PAGE for reason in REASONS)
