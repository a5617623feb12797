"""Both servers are started once; a client of either, and the metrics of the replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from served import plain_server, ray_cluster

from clients import Client
from server_process import stopped_well

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from served import Served


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stopped_well(ray_cluster(tmp_path_factory.mktemp("cluster"))) as served:
        yield served


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stopped_well(plain_server(tmp_path_factory.mktemp("plain"))) as served:
        yield served


@pytest.fixture
async def replicas(cluster: Served) -> AsyncIterator[Client]:
    """A client of the cluster. No test leaves a request behind."""
    async with Client(cluster.url) as client:
        yield client
        await client.wait_until_idle()


@pytest.fixture
async def single(plain: Served) -> AsyncIterator[Client]:
    """A client of the plain server."""
    async with Client(plain.url) as client:
        yield client
        await client.wait_until_idle()
