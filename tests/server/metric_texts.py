"""What /metrics answers, parsed."""

from __future__ import annotations

from typing import Any, NamedTuple

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

OPENMETRICS = "application/openmetrics-text"


class Scrape(NamedTuple):
    content_type: str
    text: str

    def families(self) -> list[Any]:
        parse = openmetrics_families if self.content_type.startswith(OPENMETRICS) else plain_families
        return list(parse(self.text))

    def samples(self) -> list[Any]:
        return [sample for family in self.families() for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples of that name with these labels; at least one is there."""
        found = [s.value for s in self.samples() if s.name == name and labels.items() <= s.labels.items()]
        assert found, f"no {name} with {labels}"
        return sum(found)


async def scrape(client: Any, accept: str | None = None) -> Scrape:
    response = await client.get("/metrics", headers={} if accept is None else {"Accept": accept})
    assert response.status == 200, await response.text()
    return Scrape(response.headers["Content-Type"], await response.text())
