"""What a server takes while it loads a file, and afterwards: the file's size and little more."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conversion import convert

from specserve_workbench.testing.toy import write_checkpoint

MEBIBYTE = 1 << 20
SLACK = 16 * MEBIBYTE
"""A piece that is unpacked, and whole huge pages. A model of 2 GB needs no more."""
MEASURED = """
import sys
from specserve.config import EngineConfig
from specserve.engine.assembly import assemble
from specserve.load_progress import ASSEMBLING, READING
from specserve.plugins.host import PluginHost

def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))

seen = {}

def note(stage, *_):
    if stage == READING:
        seen["before"] = memory("VmRSS")
    if stage == ASSEMBLING:
        seen["peak"], seen["rest"] = memory("VmHWM"), memory("VmRSS")

config = EngineConfig(model=sys.argv[1], kv_memory="8M", threads=2, plugins=("gguf", "cpu"))
assemble(config, PluginHost.start(config), note)
print(*(1024 * (seen[name] - seen["before"]) for name in ("peak", "rest")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system tells its peak in /proc")
def test_loading_takes_the_files_size_and_fifteen_per_cent(tmp_path, monkeypatch):
    """Most of the file is one matrix in 4 bits, the embedding and the head, which as integers of 8 bits is twice as
    large. What the process needs without a model is not counted, nor is the cache of keys and values."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sizes = {"vocab_size": 32768, "hidden_size": 1024, "intermediate_size": 256, "tie_word_embeddings": True}
    file = convert(write_checkpoint(tmp_path / "model", **sizes), tmp_path / "model.gguf", "Q4_0")
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, str(file)], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    peak, rest = map(int, run.stdout.split())
    allowed = 1.15 * file.stat().st_size + SLACK
    assert rest <= peak <= allowed < 2.5 * file.stat().st_size, (rest, peak, file.stat().st_size)
