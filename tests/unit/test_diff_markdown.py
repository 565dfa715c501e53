"""The comment on a pull request: what it says, that nothing in the data acts in it, and that it keeps its size."""

import json
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from duckkb.review.diff_model import (
    Diff,
    DiffOptions,
    FieldChange,
    Label,
    OntologyChange,
    Op,
    RecordChange,
    RecordPlace,
)
from duckkb.review.report_formats import DIFF, more
from duckkb.review.report_markup import ForgeLinks, block, cell, span
from duckkb.types.errors import Finding

CANARY = "cAnArY"
HOSTILE = [
    "@cAnArY please look",
    "fixes #1 and org/cAnArY#2",
    "https://cAnArY.example/ and www.cAnArY.example",
    "[cAnArY](https://a.example) ![cAnArY](https://b.example/x.png)",
    "<script>cAnArY</script><img src=x onerror=cAnArY()>",
    "`cAnArY` ``cAnArY`` ```cAnArY```",
    "`````````````````````````````````````````````cAnArY",
    "cAnArY`",
    "` cAnArY",
    "```\ncAnArY\n```\n\n# cAnArY\n",
    "~~~\n</details>\n\n@cAnArY\n",
    "line\r\n\r\n@cAnArY\u2028@cAnArY\x85@cAnArY",
    "| cAnArY | \\| @cAnArY |",
    "$cAnArY$ $$cAnArY$$ $`cAnArY`$",
    "\u202ecAnArY\u202c \u200bcAnArY\U000e0041",
    "*cAnArY* __cAnArY__ ~~cAnArY~~ :tada: [^cAnArY]",
    "\\`cAnArY\\`",
    "0123456789abcdef0123456789abcdef01234567 cAnArY",
    "    cAnArY\n\tcAnArY",
    "- [ ] cAnArY\n1. cAnArY",
    "<!-- cAnArY",
    "&lt;cAnArY&#64;cAnArY",
]
OWN_HTML = re.compile(r"<details>\n<summary>[\d,]+ added</summary>\n|</details>\n?")
OWN_WORDS = re.compile(
    r"(?:Knowledge: |Findings|Configuration|Changed|Removed|From |to |error|warning|was |none|nothing|more|fields?|lines?"
    r"|others|of |type|added|changed|renamed|removed|no record differs|in the configuration|only written otherwise|and "
    r"|[\d\s.,;:()→…·-]|s)*"
)
NAMES = st.sampled_from(["Note", "Character", "图书"])


def _tokens(text: str) -> Iterator[Token]:
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        yield from token.children or [token]


def _harmless(text: str, page: str = "") -> None:
    """No link, picture or markup out of the data, and none of its words outside of code; links lead to pages below `page`."""
    outside = []
    for token in _tokens(text):
        assert token.type not in ("image", "html_inline", "code_block"), (token.type, text)
        if token.type == "link_open":
            assert page and str(token.attrs["href"]).startswith(page), token.attrs
        if token.type == "html_block":
            assert OWN_HTML.fullmatch(token.content), token.content
        elif token.type == "text":
            outside.append(token.content)
        elif token.type in ("fence", "code_inline"):
            assert token.info in ("", "diff")
        else:
            assert CANARY not in token.content or token.type == "inline", token
    assert CANARY not in "".join(outside)
    for piece in outside:
        assert OWN_WORDS.fullmatch(piece), piece
    assert re.search("[\u202a-\u202e\u200b\x85\u2028\r\U000e0041]", text) is None


def _change(op: Op, name: str, identity: str, before: str | None, after: str | None) -> RecordChange:
    sides = [json.dumps(text, ensure_ascii=False) if text is not None else None for text in (before, after)]
    line = json.dumps({"__id": 1, "id": identity, "title": before or after, "status": after or before}).encode()
    places = [RecordPlace(f"data/nodes/note/20260101/part_{identity[:40]}.jsonl", 3, line, "") for _ in sides]
    fields = (FieldChange(identity[:80] or "text", *sides),)
    was = identity[::-1] if op == "rename" else None
    here = [place if side is not None else None for place, side in zip(places, sides, strict=True)]
    return RecordChange("node", name, "note", 1, op, identity, was, fields, here[0], here[1])


def _diff(texts: list[str], name: str = "Note") -> Diff:
    """Every text in every place in which data can stand."""
    changes = []
    for text in texts:
        changes.append(_change("update", name, text, "before " + text, text + " after " * 20))
        changes.append(_change("update", name, text, None, text))
        changes.append(_change("rename", name, text, text, text[::-1]))
        changes.append(_change("insert", name, text, None, text))
        changes.append(_change("delete", name, text, text, None))
    findings = [Finding("E_JSON", text, text, 3, text, text, text, text) for text in texts]
    ontology = [OntologyChange(text, text, None, text) for text in texts]
    label = Label("".join(texts)[:300] or "main")
    return Diff(label, label, tuple(changes), tuple(ontology), tuple(findings), 3)


def _markdown(diff: Diff, budget: int = 60_000, *, full: bool = False, links: ForgeLinks | None = None) -> str:
    return "\n".join(DIFF["markdown"].lines(diff, DiffOptions(full=full, budget=budget, links=links)))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_data_stays_inside_code_wherever_it_stands(text: str) -> None:
    _harmless(_markdown(_diff([text])))
    _harmless(_markdown(_diff([text * 40]), full=True))
    page = "https://github.com/team/kb"
    linked = _markdown(_diff([text]), links=ForgeLinks(page, "a" * 40, "b" * 40))
    assert linked.count(f"]({page}/") > 6
    _harmless(linked, page)


@settings(max_examples=150)
@given(
    st.lists(
        st.sampled_from([*"`~<>[]()!|\\*_#@$&-+ \n\r\t\"'\u202e知", CANARY, "```", "\n\n", "https://"]), max_size=30
    )
)
def test_no_mixture_of_markup_leaves_code(pieces: list[str]) -> None:
    _harmless(_markdown(_diff(["".join(pieces), CANARY])))


def test_spans_hold_exactly_the_text_that_they_were_given() -> None:
    for text in ["a", "`", "``a`", " a ", "a`b``c", "x" * 30, "\\", "<b>", "|"]:
        (paragraph,) = [token for token in MarkdownIt("commonmark").parse(span(text)) if token.type == "inline"]
        (code,) = paragraph.children or []
        assert (code.type, code.content) == ("code_inline", text)
        row = MarkdownIt("commonmark").enable("table").parse(f"| a |\n| --- |\n| {cell(text)} |")
        cells = [token.children or [] for token in row if token.type == "inline"]
        assert [one.content for one in cells[1]] == [text]


def test_blocks_hold_exactly_the_lines_that_they_were_given() -> None:
    lines = ["```", "  ````", "~~~", "", "</details>", "a\tb"]
    (token,) = MarkdownIt("commonmark").parse(block(lines, "diff"))
    assert (token.type, token.info, token.content) == ("fence", "diff", "\n".join(lines) + "\n")


@settings(max_examples=60, deadline=None)
@given(st.integers(2_000, 20_000), st.lists(NAMES, max_size=60), st.integers(0, 400))
def test_a_comment_keeps_its_budget_and_counts_what_it_leaves_out(budget: int, names: list[str], size: int) -> None:
    changes = [_change("insert", name, f"{name}-{number}", None, "x" * size) for number, name in enumerate(names)]
    changes += [_change("update", name, f"u-{name}-{number}", "x" * size, "y") for number, name in enumerate(names)]
    findings = [Finding("W_MASS_CHANGE", "x" * size, "data/x") for _ in names]
    text = _markdown(Diff(Label("a"), Label("b"), tuple(changes), (), tuple(findings), 1), budget)
    assert len(text) <= budget
    for head, shown in (("Changed", r"^##### "), ("added</summary>", r"^- ")):
        body = text.partition(head)[2].partition("#### Removed")[0] if head in text else ""
        body = body.partition("<details>")[0] if head == "Changed" else body
        left = sum(int(number.replace(",", "")) for number in re.findall(r"^_([\d,]+) more \(", body, re.MULTILINE))
        assert not body or len(re.findall(shown, body, re.MULTILINE)) + left == len(names)


def test_a_comment_on_fifty_thousand_records_keeps_its_budget() -> None:
    changes = tuple(_change("update", f"T{n % 400}", str(n), f"old {n}", f"new {n}") for n in range(50_000))
    text = _markdown(Diff(Label("a"), Label("b"), changes))
    assert 50_000 < len(text) <= 60_000
    assert "### Knowledge: 50,000 changed" in text


def test_what_is_left_out_is_named_by_type() -> None:
    assert more(["Note"] * 3 + ["Person"] * 1_200) == "1,203 more (1,200 `Person`, 3 `Note`)"


def test_order_is_findings_then_changed_then_removed_then_added() -> None:
    text = _markdown(_diff(["plain"]))
    heads = [
        "| `Note` | 1 | 2 | 1 | 1 |",
        "#### Findings",
        "#### Configuration",
        "#### Changed",
        "#### Removed",
        "<details>",
    ]
    places = [text.index(head) for head in heads]
    assert places == sorted(places)
    assert text == _markdown(_diff(["plain"]))
    assert "no record differs" in _markdown(Diff(Label("a"), Label("b")))


def test_a_long_text_is_shown_as_lines_of_words_around_what_changed() -> None:
    words = [f"word{number}" for number in range(200)]
    change = _change("update", "Note", "n1", " ".join(words), " ".join([*words[:100], "other", *words[101:]]))
    text = _markdown(Diff(Label("a"), Label("b"), (change,)))
    body = text.partition("```diff\n")[2].partition("\n```")[0].splitlines()
    assert "- word100" in body and "+ other" in body
    assert all(len(line) <= 100 for line in body)
    assert any("characters alike" in line for line in body) and "word50 " not in text
    assert "word50 " in "\n".join(
        DIFF["markdown"].lines(Diff(Label("a"), Label("b"), (change,)), DiffOptions(full=True))
    )
