"""The page's sources: nothing inline, nothing from elsewhere, no text that is read as HTML, every field with a name."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from shutil import which

import pytest
from hatchling.builders.wheel import WheelBuilder

from specserve_page.routes import static_files

FILES = {file.name: file.read_text(encoding="utf-8") for file in static_files()}
SCRIPTS = {name: text for name, text in FILES.items() if name.endswith(".js")}
INDEX = FILES["index.html"]
AS_CODE = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser")
"""What reads a text as HTML or as a program."""
STORES = ("localStorage", "sessionStorage", "indexedDB", "document.cookie", "caches.")
NAMESPACE = "http://www.w3.org/2000/svg"
READ_ALL = """
const scripts = JSON.parse(require("fs").readFileSync(0, "utf8"));
for (const [name, text] of Object.entries(scripts)) {
  new (require("vm").SourceTextModule)(text, { identifier: name });
  console.log(name);
}
"""
each_script = pytest.mark.parametrize("name", SCRIPTS)


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


ELEMENTS = Elements(INDEX).found
IDS = [attributes["id"] for _, attributes in ELEMENTS if "id" in attributes]


def test_no_script_and_no_style_is_inline() -> None:
    for tag, attributes in ELEMENTS:
        assert tag != "style"
        assert tag != "script" or attributes.get("src", "").startswith("page/")  # type: ignore[union-attr]
        assert not [name for name in attributes if name.startswith("on") or name == "style"]


@pytest.mark.parametrize("name", FILES)
def test_no_file_names_another_origin(name: str) -> None:
    assert set(re.findall(r"\b(?:https?|wss?):?//[^\s\"'`)]*", FILES[name])) <= {NAMESPACE}
    assert not name.endswith(".css") or not re.search(r"@import|url\(", FILES[name])


@each_script
def test_no_text_is_read_as_html_or_as_a_program(name: str) -> None:
    assert not [word for word in AS_CODE if word in SCRIPTS[name]]


@each_script
def test_the_key_is_kept_in_memory_only(name: str) -> None:
    assert not [word for word in STORES if word in SCRIPTS[name]]


def test_every_module_is_there_and_is_used() -> None:
    imported = {name: set(re.findall(r'from "\./([\w.]+)"', text)) for name, text in SCRIPTS.items()}
    reached, waiting = set[str](), ["main.js"]
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting += imported[name] - reached
    assert reached == SCRIPTS.keys()


def test_every_element_that_scripts_ask_for_is_there_once() -> None:
    asked = {id for text in SCRIPTS.values() for id in re.findall(r'byId\("([\w-]+)"\)', text)}
    assert asked
    assert asked <= set(IDS)
    assert len(set(IDS)) == len(IDS)


def test_every_field_and_every_button_has_a_name() -> None:
    labelled = re.findall(
        r"<label[^>]*>[^<\s][^<]*<(?:input|select|textarea)|<label[^>]*>\s*<input[^>]*>[^<]*\w", INDEX
    )
    by_for = {attributes.get("for") for tag, attributes in ELEMENTS if tag == "label" and "for" in attributes}
    fields = [attributes for tag, attributes in ELEMENTS if tag in ("input", "select", "textarea")]
    named = [field for field in fields if field.get("id") in by_for or "aria-labelledby" in field]
    assert len(labelled) + len(named) == len(fields)
    assert not re.search(r"<button[^>]*>\s*</button>", INDEX)


def test_what_is_served_is_small() -> None:
    assert sum(len(text.encode()) for text in FILES.values()) < 120_000


def test_each_script_can_be_read() -> None:
    node = which("node")
    if node is None:
        pytest.skip("there is no node to read scripts with")
    command = [node, "--experimental-vm-modules", "--no-warnings", "-e", READ_ALL]
    read = subprocess.run(command, input=json.dumps(SCRIPTS), capture_output=True, text=True, check=False)
    assert (read.returncode, read.stdout.split()) == (0, [*SCRIPTS]), read.stderr


def test_the_wheel_has_every_file(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "page"
    (built,) = WheelBuilder(str(folder)).build(directory=str(tmp_path))
    with zipfile.ZipFile(built) as archive:
        packed = {Path(name).name for name in archive.namelist() if "/static/" in name}
    assert packed == FILES.keys()
