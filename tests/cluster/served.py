"""The two things that are compared, as processes: `specserve-ray up` with two replicas, and `specserve serve`.

Owns their configuration.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from server_process import ServerProcess

BIN = Path(sys.executable).parent
DEMO = Path(__file__).parents[2] / "demo" / "src" / "specserve_demo"
KEY = "sk-of-the-cluster-tests"
ENGINE_TABLES = f"""
[engine]
model = "demo"
threads = 1
max_num_seqs = 64
plugins = ["ngram", "lora", "grammar"]
[plugins.lora]
root = "{DEMO / "adapters"}"
[server]
port = 0
api_key = "{KEY}"
max_body_bytes = 1000000
"""
HEALTH_CHECK_SECONDS = 1.0
RAY_TABLE = """
[ray]
replicas = {replicas}
cpus = 0.5
health_check_period = 1.0
stats_period = 0.2
address = {address}
"""


class Served(ServerProcess):
    @property
    def address(self) -> str:
        """Of the Ray cluster."""
        found = re.search(r"the cluster is at (\S+),", self.log.read_text())
        assert found is not None
        return found[1]

    @property
    def replica_pids(self) -> list[int]:
        return self.descendants_with("ServeReplica:specserve:replicas")


def ray_cluster(folder: Path) -> Served:
    config = folder / "cluster.toml"
    config.write_text(ENGINE_TABLES + RAY_TABLE.format(replicas=2, address='"local"'))
    return Served([str(BIN / "specserve-ray"), "up", str(config)], folder / "cluster.log")


def plain_server(folder: Path) -> Served:
    config = folder / "plain.toml"
    config.write_text(ENGINE_TABLES)
    command = [sys.executable, "-m", "specserve", "serve", "--config", str(config)]
    return Served(command, folder / "plain.log")
