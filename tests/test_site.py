"""Test the documentation site: it builds without warnings and has no broken internal links.

The reference lists every public name, and its examples run.
"""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import unquote, urlsplit

import dagster as dg
import pytest
from pyspark.sql import functions as F

from helpers.suite.pages import ROOT

FROM_ELSEWHERE = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
"""The attributes with the addresses of elements that a browser loads."""


@dataclass
class Page:
    """The links, loaded resources and anchors of a page."""

    links: list[str] = field(default_factory=list[str])
    loaded: list[str] = field(default_factory=list[str])
    anchors: set[str] = field(default_factory=set[str])


class Reader(HTMLParser):
    """A parser of an HTML page."""

    def __init__(self, page: Page) -> None:
        super().__init__()
        self.page = page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.page.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.page.links.append(given["href"])
        if given.get(FROM_ELSEWHERE.get(tag, ""), ""):
            self.page.loaded.append(given[FROM_ELSEWHERE[tag]])


# Its build takes 15 seconds. `tests/test_docs.py` tests the links between the pages without it.
@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does. Return its folder."""
    folder = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-d", f"{folder}/doctrees"]
    command = [sys.executable, "-m", "sphinx", *options, "docs", f"{folder}/site"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    found = dict[str, Page]()
    for path in sorted(site.rglob("*.html")):
        page = found[path.relative_to(site).as_posix()] = Page()
        Reader(page).feed(path.read_text())
    return found


def dead(site: Path, pages: dict[str, Page]) -> Iterator[str]:
    """Yield the broken internal links of the site."""
    for name, page in pages.items():
        for link in {*page.links, *page.loaded}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = (site / name).parent / unquote(parts.path) if parts.path else site / name
            if not path.is_file():
                yield f"{name}: {link}"
            elif parts.fragment and path.suffix == ".html":
                target = pages[path.resolve().relative_to(site.resolve()).as_posix()]
                if unquote(parts.fragment) not in target.anchors:
                    yield f"{name}: {link}"


@pytest.mark.slow
def test_no_internal_link_is_broken(site: Path, pages: dict[str, Page]) -> None:
    assert list(dead(site, pages)) == []
    # There are many links, and broken ones are detected.
    assert sum(len(page.links) for page in pages.values()) > 1000
    broken = {
        **pages,
        "none.html": Page(links=["concepts.html#nothing-of-that-name", "nowhere.html"]),
    }
    assert len(list(dead(site, broken))) == 2


@pytest.mark.slow
def test_pages_load_nothing_from_other_hosts(site: Path, pages: dict[str, Page]) -> None:
    assert [link for page in pages.values() for link in page.loaded if "//" in link] == []
    for sheet in site.rglob("*.css"):
        assert "url(http" not in sheet.read_text().replace("'", "").replace('"', ""), sheet


@pytest.mark.slow
def test_every_page_is_linked_from_the_index(pages: dict[str, Page]) -> None:
    start = set(pages["index.html"].links)
    for page in ROOT.glob("docs/*.md"):
        assert page.stem == "index" or f"{page.stem}.html" in start, page.name


MODULES = sorted(page.stem for page in ROOT.glob("docs/reference/tidemark*.md"))


@pytest.mark.slow
def test_the_reference_lists_every_public_name(site: Path) -> None:
    assert len(MODULES) > 7
    lacking = list[str]()
    for module in map(import_module, MODULES):
        html = (site / "reference" / f"{module.__name__}.html").read_text()
        for name in module.__all__:
            told = entry(html, module.__name__, name)
            # A constant is documented in the source of its module.
            thing: object = getattr(module, name)
            if inspect.ismodule(thing):
                assert thing.__name__ in MODULES
                continue
            own = inspect.isclass(thing) or inspect.isroutine(thing)
            doc = inspect.getdoc(thing) if own else told
            if not told or not doc or not told.startswith(plain(doc.splitlines()[0])):
                lacking.append(f"{module.__name__}.{name}")
    assert lacking == []


def entry(html: str, module: str, name: str) -> str:
    """Return the description of a name on a page; a constant may be of another module."""
    for place in (re.escape(module), r"[\w.]*"):
        found = re.search(rf'id="{place}\.{name}".*?<dd>(.*?)(<dt |</dl>)', html, re.DOTALL)
        if found:
            return plain(unescape(re.sub(r"<[^>]+>", "", found[1])))
    return ""


def plain(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def test_the_examples_of_the_reference_run() -> None:
    known: dict[str, Any] = {"F": F, "Path": Path, "dg": dg}
    known["tm"] = import_module("tidemark")
    known["agg"] = import_module("tidemark.agg")
    for module in map(import_module, MODULES):
        if module is not known["agg"]:
            known |= {name: getattr(module, name) for name in module.__all__}
    # The examples of these two names define what later examples use.
    first = [("tidemark", "Source"), ("tidemark", "windowed_asset")]
    names = [(module, name) for module in MODULES for name in import_module(module).__all__]
    ran = 0
    for module, name in [*first, *(each for each in names if each not in first)]:
        text = inspect.getdoc(getattr(import_module(module), name)) or ""
        for example in re.findall(r"^Example:\n((?:    .*\n|\n)+)", f"{text}\n", re.MULTILINE):
            exec(compile(dedent(example), module, "exec"), known)
            ran += 1
    assert ran > 50
