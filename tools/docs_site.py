"""Makes the site of the docs: `make docs` builds it into build/site, `make docs-serve` shows it while pages are edited.

The pages lie in build/site_pages as in the repository, so that every link of a page leads to the same file on the site.
They are links to the files themselves: nothing is copied, nothing rewritten.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from doc_pages import FRONT, INDEX, ROOT, Page, groups, reachable
from site_assets import external_assets

if TYPE_CHECKING:
    from collections.abc import Iterable

BUILD = ROOT / "build"
PAGES, SITE, CONFIG = BUILD / "site_pages", BUILD / "site", BUILD / "zensical.toml"
OWN = Path("tools/site")
NAV = "nav = []\n"


def main(action: str) -> int:
    """`build` or `serve`; the exit code."""
    lay_out()
    if action == "serve":
        return zensical("serve")
    print("== building the site", flush=True)
    shutil.rmtree(SITE, ignore_errors=True)
    if zensical("build", "--strict", "--clean"):
        return 1
    external = list(external_assets(SITE))
    for line in external:
        print(f"== from another host: {line}", file=sys.stderr)
    print(f"== {sum(1 for _ in SITE.rglob('*.html'))} pages: {SITE / 'index.html'}")
    return 1 if external else 0


def lay_out() -> None:
    """The pages, what they link to, and the configuration with the navigation."""
    shutil.rmtree(PAGES, ignore_errors=True)
    docs = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*") if path.is_file()]
    for path in sorted(reachable([FRONT, *docs])):
        put(path, path)
    for path in (ROOT / OWN).iterdir():
        if path.suffix != ".toml":
            put(path.relative_to(ROOT), Path("site", path.name))
    put(Path("page/src/specserve_page/static/icon.svg"), Path("site/icon.svg"))
    config = (ROOT / OWN / "zensical.toml").read_text()
    assert NAV in config, f"the navigation has its place in {OWN}"
    CONFIG.write_text(config.replace(NAV, f"nav = {nav(groups((ROOT / INDEX).read_text()))}\n"))


def put(path: Path, place: Path) -> None:
    (PAGES / place).parent.mkdir(parents=True, exist_ok=True)
    (PAGES / place).symlink_to(ROOT / path)


def nav(pages: dict[str, list[Page]]) -> str:
    """In TOML: the front page and the index, then the groups of the index."""
    start = {"Start": [Page("specserve", FRONT), Page("All pages", INDEX)]}
    return array(
        table(group, array(table(page.title, quoted(str(page.path))) for page in of_group))
        for group, of_group in {**start, **pages}.items()
    )


def array(values: Iterable[str]) -> str:
    return f"[{', '.join(values)}]"


def table(key: str, value: str) -> str:
    return f"{{ {quoted(key)} = {value} }}"


def quoted(text: str) -> str:
    """A basic string of TOML is one of JSON."""
    return json.dumps(text, ensure_ascii=False)


def zensical(*arguments: str) -> int:
    command = [sys.executable, "-m", "zensical", *arguments, "--config-file", str(CONFIG)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "tools")}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
