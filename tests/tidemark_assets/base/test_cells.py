"""Test event values in Dagster's Markdown with a Markdown parser."""

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tidemark_assets.base.cells import as_table, literal

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.text("`~[]()!<>|\\*_#-=&;a \n\t", max_size=40),
)
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@given(TEXTS)
@example("![x](/graphql?query=mutation{a})")
@example("```\ncode\n```")
@example("` `` ```")
@example("<img src=x>")
def test_a_literal_renders_as_one_code_span(text: str) -> None:
    shown = " ".join(text.split())
    for before in ("", "1 failed: "):
        tokens = MARKDOWN.parse(f"{before}{literal(text)}")
        kinds = [token.type for token in tokens]
        if not shown:
            assert literal(text) == ""
            continue
        assert kinds == ["paragraph_open", "inline", "paragraph_close"]
        children = tokens[1].children or []
        assert children[-1].content == shown
        assert [child.type for child in children] == ["text"] * bool(before) + ["code_inline"]


def test_a_table_has_a_cell_for_each_column() -> None:
    made = as_table(("a", "b", "c"), [("x | y", 1234), (None, 0.5, "<b>")])
    assert [record.data for record in made.records] == [
        {"a": "x | y", "b": "1,234", "c": ""},
        {"a": "", "b": "0.5", "c": "<b>"},
    ]
    assert as_table(("a",), []).records == []
