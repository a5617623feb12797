"""The rules that `promtool check metrics` has for names, but for the colon and `_total` of names that are vLLM's."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest
from metric_texts import scrape

OF_VLLM = "vllm:"
NOT_COUNTERS = {"vllm:iteration_tokens_total"}
"""vLLM's, which its dashboards read: a histogram."""
TYPES = {"counter", "gauge", "histogram", "summary"}
ABBREVIATIONS = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"}
PREFIXES = ("pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega", "mibi", "giga",
            "gibi", "tera", "tebi", "peta", "pebi")  # fmt: skip
BASE_UNITS = ("amperes", "bytes", "celsius", "grams", "joules", "kelvin", "meters", "metres", "seconds", "volts")
OTHER_UNITS = {"minutes", "hours", "days", "weeks", "kelvins", "fahrenheit", "rankine", "inches", "yards", "miles",
               "bits", "calories", "pounds", "ounces"}  # fmt: skip
NOT_BASE = OTHER_UNITS | {prefix + unit for prefix in PREFIXES for unit in BASE_UNITS}


class Family(NamedTuple):
    name: str
    type: str
    help: str
    labels: set[str]


def families_in(text: str) -> list[Family]:
    """Read from the text itself: parsers change names of counters."""
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    types = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    return [Family(name, type, helps.get(name, ""), labels_of(name, text)) for name, type in types]


def labels_of(name: str, text: str) -> set[str]:
    return set(re.findall(r"[{,](\w+)=", " ".join(re.findall(rf"^{re.escape(name)}\S*{{.*$", text, re.MULTILINE))))


def complaints(family: Family) -> list[str]:
    words = family.name.removeprefix(OF_VLLM).split("_")
    is_counter, has_suffixes = family.type == "counter", family.type in ("histogram", "summary")
    found = {
        "no help": not family.help,
        "a counter without _total": is_counter and words[-1] != "total",
        "_total, and no counter": not is_counter and words[-1] == "total" and family.name not in NOT_COUNTERS,
        "its type in its name": bool(TYPES & set(words)),
        "an abbreviated unit": bool(ABBREVIATIONS & set(words)),
        "a unit that is not a base unit": bool(NOT_BASE & set(words)),
        "a colon": ":" in family.name.removeprefix(OF_VLLM),
        "capitals": re.search("[A-Z]", family.name) is not None,
        "a reserved suffix": not has_suffixes and words[-1] in ("count", "sum", "bucket"),
        "a reserved label": not has_suffixes and bool({"le", "quantile"} & family.labels),
    }
    return [f"{family.name}: {what}" for what, is_so in found.items() if is_so]


async def test_names_follow_the_rules_of_prometheus(client: Any) -> None:
    families = families_in((await scrape(client)).text)
    assert len(families) > 40
    assert [complaint for family in families for complaint in complaints(family)] == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("# HELP a_ms x\n# TYPE a_ms gauge\na_ms 1\n", "an abbreviated unit"),
        ("# HELP a_milliseconds x\n# TYPE a_milliseconds gauge\na_milliseconds 1\n", "not a base unit"),
        ("# HELP a_total x\n# TYPE a_total gauge\na_total 1\n", "no counter"),
        ("# HELP a x\n# TYPE a counter\na 1\n", "without _total"),
        ("# TYPE a gauge\na 1\n", "no help"),
        ("# HELP a_gauge x\n# TYPE a_gauge gauge\na_gauge 1\n", "its type"),
        ('# HELP a x\n# TYPE a gauge\na{le="1"} 1\n', "a reserved label"),
    ],
)
def test_a_name_that_breaks_a_rule_is_found(text: str, complaint: str) -> None:
    (family,) = families_in(text)
    assert any(complaint in one for one in complaints(family))
