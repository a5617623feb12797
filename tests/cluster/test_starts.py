"""What `specserve-ray up` says where nothing can be served."""

from __future__ import annotations

import socket
import subprocess
from typing import TYPE_CHECKING

from served import BIN

if TYPE_CHECKING:
    from pathlib import Path


def up(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    config = folder / "config.toml"
    config.write_text(text)
    command = [str(BIN / "specserve-ray"), "up", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_model_that_is_not_there_is_refused_before_ray_starts(tmp_path: Path) -> None:
    ended = up(tmp_path, '[engine]\nmodel = "/nowhere"')
    assert ended.returncode == 2
    assert ended.stderr.startswith("specserve: error: no model '/nowhere'")


def test_a_port_that_is_taken_is_refused_before_ray_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = up(tmp_path, f"[server]\nport = {port}")
    assert ended.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}: address already in use. Choose another." in ended.stderr


def test_what_replicas_refuse_is_said_with_their_words(tmp_path: Path) -> None:
    ended = up(tmp_path, '[engine]\nkv_memory = "1K"\n[server]\nport = 0')
    assert ended.returncode == 1
    assert "specserve.errors.ConfigError: the KV cache needs at least two blocks" in ended.stderr
    assert "Traceback" not in ended.stderr
