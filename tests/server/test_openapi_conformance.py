"""schemathesis reads /openapi.json of a real server, and sends what it allows and what it forbids."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from server_process import FORMS, ServerProcess, serve_command, stopped_well
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_EXAMPLES = 15
"""Random cases per operation, beside those at the limits of every field, of which there are thousands."""
SETTINGS = """\
# Whether a body is served depends on the model and on other fields, too, which no schema says: 400 is right for POST.
[[operations]]
include-method = "POST"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "403", "404", "409", "429"]

[[operations]]
include-path = "/v1/models/{name}"
parameters = { "path.name" = "toy" }
"""


@pytest.fixture(scope="module", params=FORMS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server with the plugins that have routes."""
    folder = tmp_path_factory.mktemp("conformance")
    write_checkpoint(folder / "toy")
    (folder / "adapters").mkdir()
    plugins = ["--plugin", "lora", "--plugin", "ngram", "--set", f"lora.root={folder / 'adapters'}"]
    options = [f"--{request.param}", "--api-key", "k", "--served-model-name", "toy", "--max-model-len", "128", *plugins]
    command = serve_command(folder / "toy", *options)
    with stopped_well(ServerProcess(command, folder / "log")) as server:
        yield server.url
    assert "Traceback" not in (folder / "log").read_text()


@pytest.mark.sweep
def test_every_answer_is_one_that_the_document_describes(url: str, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(SETTINGS)
    tested = ["run", f"{url}/openapi.json", "--header", "Authorization: Bearer k", "--checks", "all"]
    bounded = ["--max-examples", str(MAX_EXAMPLES), "--seed", "1", "--continue-on-failure"]
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", "settings.toml", *tested, *bounded]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    request = urllib.request.Request(f"{url}/openapi.json", headers={"x-api-key": "k"})
    with urllib.request.urlopen(request) as response:
        assert response.status == 200, "the server has survived"
    for phase in ("Coverage", "Fuzzing", "Stateful"):
        assert f"✅ {phase}" in run.stdout.replace("✅  ", "✅ "), run.stdout
