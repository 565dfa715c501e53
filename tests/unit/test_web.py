"""Parts of the pages: Markdown, marked terms, filters, values, versions."""

import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("jinja2", reason="serving needs the extra `serve`")

from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from duckkb.server.web import templates
from duckkb.server.web.diff_view import compare, version
from duckkb.server.web.form_fields import condition, controls, fields_of, show_json_value
from duckkb.server.web.templates import excerpt, mark_terms, place_of, terms_of
from duckkb.types.errors import UsageError

ALLOWED = {
    "a", "blockquote", "br", "code", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s", "span", "strong", "table", "tbody",
    "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {"href", "title", "target", "rel", "class", "start"}
_PIECES = ["[a](", ")", "javascript:", "data:", "https://a.example/", "<", ">", "!", "[", "]", "`", "*", "_", "#", "\n", "\n\n", "|", "---",
           "script", "onerror=", '"', "'", "&#x6a;", "&colon;", "\\", " ", "x", "\t", "//e", "  - ", "> ", "\x00", "‮", "\u200b"]  # fmt: skip


class _Checked(HTMLParser):
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        for name, value in attrs:
            assert name in ATTRIBUTES, (tag, name)
            assert name != "href" or re.match(r"(https?|mailto):", value or "", re.IGNORECASE), value


@given(st.lists(st.sampled_from(_PIECES), max_size=40).map("".join))
def test_markdown_of_a_record_can_do_nothing(text: str) -> None:
    found = _Checked()
    found.feed(str(templates.html(text)))


def test_markdown_is_what_it_says() -> None:
    said = str(
        templates.html(
            "# A\n\n**b** [c](https://d.example) `e`\n\n- f\n\n|g|h|\n|:-|-|\n|1|2|\n\n![i](https://j.example/k.png)"
        )
    )
    for one in (
        "<h3>A</h3>",
        "<strong>b</strong>",
        'href="https://d.example"',
        "<code>e</code>",
        "<li>f</li>",
        "<td>2</td>",
    ):
        assert one in said
    assert "<img" not in said and 'class="image" href="https://j.example/k.png"' in said


@given(st.text(max_size=200), st.lists(st.text(min_size=1, max_size=6), max_size=5))
def test_marks_lose_and_change_nothing(text: str, terms: list[str]) -> None:
    found = mark_terms(text, terms_of(" ".join(terms), terms))
    assert Markup(str(found).replace("<mark>", "").replace("</mark>", "")).unescape() == text


def test_an_excerpt_begins_before_the_first_term() -> None:
    text = "a " * 1_000 + "needle " + "b " * 1_000
    found = excerpt(text, place_of(text, ["needle"]))
    assert "needle" in found and len(found) < 400 and found.startswith("…") and found.endswith("…")


def test_a_filter_is_what_the_controls_and_the_free_text_say() -> None:
    rules = {
        "kind": {"enum": ["a'b", "c"]}, "open": {"type": "boolean"}, "size": {"type": ["integer", "null"]}, "day": {"type": "string", "format": "date"},
        "odd name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}, "map": {"type": "object"},
    }  # fmt: skip
    fields = controls({"properties": rules})
    assert [(one.name, one.form) for one in fields] == [
        ("kind", "choice"), ("open", "flag"), ("size", "number"), ("day", "date"), ("odd name", "text"), ("tags", "member"),
    ]  # fmt: skip
    asked = {
        "f.kind": "a'b",
        "f.open": "true",
        "f.size": "1",
        "f.day.to": "2026-01-01",
        "f.odd name": "It's",
        "f.tags": "t",
    }
    assert condition(fields, asked, "a = 1 OR b = 2") == (
        "kind = 'a''b' AND open = true AND size >= 1 AND day <= '2026-01-01' AND contains(lower(\"odd name\"), 'it''s') "
        "AND list_contains(tags, 't') AND (a = 1 OR b = 2)"
    )
    for name, value in (("kind", "neither"), ("size.to", "x; DROP")):
        with pytest.raises(UsageError, match=re.escape(f"'{value}' is not a")):
            condition(fields, {f"f.{name}": value}, "x = 1")


def test_values_are_shown_by_what_they_are() -> None:
    record = {
        "b": 1,
        "a": "x",
        "long": "# head\n\ntext",
        "list": ["x", 2],
        "map": {"k": [{"v": True}]},
        "_etag": "e",
        "url": "https://a.example/",
    }
    found = fields_of(record, {"properties": {"a": {"description": "said"}, "long": {}, "none": {}}}, ("a",))
    assert [(one.name, one.value.form) for one in found] == [
        ("a", "text"), ("long", "markdown"), ("b", "number"), ("list", "list"), ("map", "map"), ("url", "address"),
    ]  # fmt: skip
    assert found[0].said == "said" and found[0].is_identity
    assert (
        show_json_value("x\ny", "text/plain").form == "plain" and show_json_value("javascript:alert(1)").form == "text"
    )
    assert show_json_value([0] * 80).rest == 30 and len(show_json_value("x" * 50_000).text) == 20_000
    nested: object = "end"
    for _ in range(40):
        nested = [nested, {"deeper": nested}] if isinstance(nested, str) else [nested]
    assert show_json_value(nested).form == "values"


def test_versions_are_made_of_what_changed() -> None:
    changes = [
        {"op": "update", "fields": {"a": {"before": 1, "after": 2}, "b": {"before": "x"}}},
        {"op": "insert", "fields": {"a": {"after": 1}, "b": {"after": "x"}, "c": {"after": "one two"}}},
    ]
    assert version(changes, 1) == {"a": 1, "b": "x", "c": "one two"} and version(changes, 0) == {"a": 2, "c": "one two"}
    found, same = compare({"c": "one <two>", "d": 1, "f": [1]}, {"c": "one three", "e": None, "f": [1]})
    assert [(one.path, str(one.old), str(one.new)) for one in found] == [
        ("c", "one <del>&lt;two&gt;</del>", "one <ins>three</ins>"),
        ("d", "<del>1</del>", ""),
        ("e", "", "<ins>null</ins>"),
    ]
    assert same == ["f"]
    (hidden,), _ = compare({"c": "a" * 30_000}, {"c": "a" * 29_999 + "\u202eb"})
    assert "\u202e" not in hidden.new and "u202e" in hidden.new, (
        "also what differs far behind is shown, and what nobody sees"
    )
