"""Test that every code block of the docs is tested or marked with the reason why not."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.suite.pages import NOT_RUN, ROOT, fences

PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]
_FOLLOWED = re.compile(r'followed\w*\(\s*"([\w/.]+)"')
_RUN_BY = re.compile(r"run by: (\S+)$")


def followed_by_tests() -> set[str]:
    """Return the documents that a test follows from the first block to the last."""
    tests = (path.read_text() for path in ROOT.glob("tests/**/test_*.py"))
    return {document for text in tests for document in _FOLLOWED.findall(text)}


FOLLOWED = followed_by_tests()


def unexplained(document: str) -> Iterator[str]:
    """Yield the blocks of a document that have neither a test nor a reason."""
    for block in fences(document):
        by = _RUN_BY.match(block.mark)
        if by:
            test = ROOT / by[1]
            fine = test.is_file() and Path(document).name in test.read_text()
        elif block.mark:
            fine = block.mark.startswith(NOT_RUN)
        else:
            fine = document in FOLLOWED and block.followed
        if not fine:
            yield f"{document}: {block.mark or 'no mark'}: {block.text[:60]!r}"


@pytest.mark.parametrize("document", PAGES)
def test_every_code_block_is_tested_or_marked_as_not_run(document: str) -> None:
    assert list(unexplained(document)) == []
    text = (ROOT / document).read_text()
    assert text.count("```") == 2 * len(list(fences(document))), "a fence that is not closed"
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"\n\n {4,}\S", outside), "write it as a fence: it can be marked"


def test_the_readmes_of_new_projects_are_tested() -> None:
    """They have only shell blocks and no marks, because users own them. One test runs them."""
    starter = ROOT / "streaming/tidemark_streaming/starter"
    found = [path.relative_to(ROOT).as_posix() for path in starter.glob("*/README.md")]
    assert len(found) == 2
    assert {block.language for page in found for block in fences(page)} == {"sh"}
    first = ROOT / "tests/tidemark_streaming/starter/test_first_steps.py"
    assert re.search(r"README\.md.*followed\(", first.read_text(), re.DOTALL)


def test_an_untested_block_is_detected(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nfalse\n```\n\n<!-- run by: tests/test_none.py -->\n```sh\nfalse\n```\n\n"
        "<!-- run by: tests/test_blocks.py -->\n```sh\nfalse\n```\n\n"
        "<!-- later -->\n```sh\nfalse\n```\n\n<!-- not run: it is one -->\n```sh\nfalse\n```\n"
    )
    # This test names the page of the third block: page.md.
    assert len(list(unexplained(str(page)))) == 3
