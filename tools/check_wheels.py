"""Installs what is in dist/ into a fresh environment and uses it: the second half of `make wheels`.

Run: `python tools/check_wheels.py torch==VERSION`. Our distributions come from dist/, all else from the package index.
Nothing of the repository is importable there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from distributions import DIST, PUBLISHED, PYTHON, WORK

PROMPT = """\
    def test_add(self):
        self.assertEqual(add(1, 2), 3)
        self.assertEqual(add(2, 2), 4)
        self.assertEqual(add("""
PLUGINS = {
    *("adaptive", "cpu", "cuda", "eagle", "gguf", "grammar", "graphs", "hybrid_attn", "kv_events", "lora", "ngram"),
    *("quantised", "tensor_parallel", "transformers"),
}
ACCEPTED = re.compile(r"; [1-9]\d* of \d+ draft tokens accepted$")
PASSED = WORK / f"passed-{PYTHON}"


def main(torch: str) -> None:
    wheels = [path for distribution in PUBLISHED for path in distribution.find_built()]
    if PASSED.exists() and all(PASSED.stat().st_mtime > wheel.stat().st_mtime for wheel in wheels):
        print(f"== dist/ has passed and has not changed since; rm {PASSED} to check it again")
        return
    with tempfile.TemporaryDirectory(prefix="specserve-wheels-") as folder:
        print(f"== a fresh environment: {folder}", flush=True)
        check(Environment(Path(folder)), torch)
    PASSED.touch()
    print("== dist/ passes")


def check(environment: Environment, torch: str) -> None:
    version = PUBLISHED[0].project["version"]
    print(f"== installing {torch} (first: anything else would choose another build)", flush=True)
    environment.pip("install", torch)
    environment.install("specserve-core", "specserve-demo")
    environment.generate_with_the_core_alone()
    environment.install("specserve-plugin-ngram")
    expect(environment.run("python", "-m", "specserve", "--version"), f"specserve {version}")
    expect(environment.list_plugins(), {"ngram"})
    environment.compare_texts()
    environment.install(*(distribution.name for distribution in PUBLISHED))
    environment.pip("check")
    expect(environment.list_plugins(), PLUGINS)
    environment.compare_texts()


class Environment:
    """A virtual environment whose commands run in its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder, with_pip=True)

    def pip(self, *arguments: str) -> str:
        return self.run("python", "-m", "pip", "--disable-pip-version-check", *arguments)

    def install(self, *names: str) -> None:
        """What is ours must come from dist/ and be everything that was asked for."""
        print(f"== installing {', '.join(names)} from dist/", flush=True)
        report = self.folder / "report.json"
        self.pip("install", "--find-links", str(DIST), "--report", str(report), *names)
        for entry in json.loads(report.read_text())["install"]:
            name, url = entry["metadata"]["name"], entry["download_info"]["url"]
            if name.startswith("specserve"):
                expect(Path(url).parent, Path(DIST.as_uri()))
                print(f"   {Path(url).name}", flush=True)

    def list_plugins(self) -> set[str]:
        listed = json.loads(self.run("specserve", "plugins", "list", "--json"))
        print(f"== specserve plugins list: {', '.join(plugin['name'] for plugin in listed)}", flush=True)
        expect([problem for plugin in listed for problem in plugin["problems"]], [])
        return {plugin["name"] for plugin in listed}

    def generate_with_the_core_alone(self) -> None:
        print("== python -m specserve generate, without the server", flush=True)
        text = self.run("python", "-m", "specserve", "generate", PROMPT, "--max-tokens", "20", "--temperature", "0")
        absent = self.run("python", "-c", "import importlib.util as u; print(u.find_spec('specserve_server'))")
        expect((bool(text.strip()), absent), (True, "None"))

    def compare_texts(self) -> None:
        """The same text without drafts and with some that are accepted."""
        print("== specserve generate, without and with --plugin ngram", flush=True)
        command = ("specserve", "generate", PROMPT, "--max-tokens", "200", "--temperature", "0")
        plain, drafted = self.call(*command), self.call(*command, "--plugin", "ngram")
        report = drafted.stderr.splitlines()[-1]
        expect(drafted.stdout, plain.stdout)
        if not plain.stdout.strip() or not ACCEPTED.search(report):
            sys.exit(f"== there is no text, or no draft was accepted: {report}")
        print(f"   the same text: {report}", flush=True)

    def run(self, program: str, *arguments: str) -> str:
        return self.call(program, *arguments).stdout.rstrip("\n")

    def call(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [str(self.folder / "bin" / program), *arguments]
        ended = subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)
        if ended.returncode:
            sys.exit(f"{ended.stdout}{ended.stderr}\n== failed: {' '.join(command)}")
        return ended


def expect(got: object, wanted: object) -> None:
    if got != wanted:
        sys.exit(f"== expected {wanted!r}, got {got!r}")


if __name__ == "__main__":
    main(sys.argv[1])
