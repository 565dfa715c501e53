"""Two bases of one shape: in one all that people, files and commits can say is hostile, in the other it is harmless and as long."""

import json
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import duckkb
from tests.conftest import commit, git, make_base, run_in
from tests.fakes import HashEmbedder
from tests.harness.pages.walk import Values

RUNS = "document.title='owned'"
ELSEWHERE = "http://127.0.0.1:9"
"""Nothing may be loaded from there."""
TEXTS = (
    f"<script>{RUNS}</script>", f"</script><script src={ELSEWHERE}/x.js></script>", f'<img src=x onerror="{RUNS}">', f"<svg/onload={RUNS}>",
    f"<svg><animate onbegin={RUNS} attributeName=x dur=1s><script>{RUNS}</script></svg>", f"<math><mtext></form><form><mglyph><svg><mtext><textarea><path id=\"</textarea><img onerror={RUNS} src=1>\">",
    f'"><iframe srcdoc="<script>{RUNS}</script>">', f"' autofocus onfocus={RUNS} x='", f'" style="position:fixed;inset:0;background:url({ELSEWHERE}/b)" x="',
    "</main></body></html><h1>another page", "</title></head><body>", "</textarea></select></option><form action=//evil.example><button>", "--><!-- <!--[if IE]>", "<![CDATA[ ]]>",
    f'<meta http-equiv="refresh" content="0;url={ELSEWHERE}">', f"<base href={ELSEWHERE}/>", f'<link rel="stylesheet" href="{ELSEWHERE}/x.css">', f"<object data={ELSEWHERE}></object><embed src={ELSEWHERE}>",
    '<input name="proof" value="x">', '<a data-within data-part="/web/sign-out" href="/web/sign-out">x</a>', "<details data-part=//evil.example open>", '<body data-words="{}">',
    "javascript:alert(1)", f"https://example.org/\"onmouseover={RUNS}", "https://user@example.org/%00?a=<b>&c='d'", "data:text/html,<script>1</script>",
    f"[a](javascript:{RUNS}) [b](data:text/html;base64,PHNjcmlwdD4=) [c](vbscript:x) [d](JaVaScRiPt:x) [e](java&#x0A;script:x) [f](//evil.example/x) [g](/web/sign-out)",
    f"![p]({ELSEWHERE}/track.png) ![q](data:image/svg+xml,<svg/onload=1>) ![r](x \"onerror={RUNS}\")", f"<javascript:{RUNS}> <https://example.org/<b>> [x][y]\n\n[y]: javascript:{RUNS} 'a\"b'",
    "# head\n\n<div>\n\n* list\n\n```html\n<script>1</script>\n```\n\n| a | <b> |\n|:-:|---|\n| <i> | `</td>` |\n\n> quote\n\n&lt;b&gt; &#60;script&#62; &colon;",
    "[" * 60 + "x" + "]" * 60 + "(y)", "*" * 400, "> " * 80 + "deep", "{{ 7 * 7 }}{% include 'page.html' %}{# x #}${7*7}#{7*7}<%= 7 %>", "{visit.sessions} {0.__class__} %(proof)s {count}",
    "\u202ereversed \u2066isolated\u202d \u200f\u061c", "zero\u200bwidth\u2060\ufeff\u00ad", "\U000e0041\U000e0042 tags", "\x1b]0;owned\x07\x1b[2J\x1b[31mred", "\x00nul\x01\x7f\x85\u2028\u2029", "half \ud83d a",
    "\ufffe\uffff\U0010ffff", "p\u0430ypal.com", "a\u0301" * 60, "\ufdfd" * 50, "line\r\nline\rline", "&amp;lt;script&amp;gt; &#0; &#x110000; &nosuch;", "x" * 5_000, "\n" * 500 + "end", "0" * 400, "ﬃ İ ſ ß Ǆ",
)  # fmt: skip
"""What is hostile: markup and what ends it, addresses that run, Markdown, templates, what reorders or is not seen, terminals, sizes."""
_TYPES = ("Note", "constructor", "\uff53cript", "\u06cc\u0627\u062f")
"""An ontology lets letters of any script name a type."""
Spelled = Callable[[str], str]


def hostile(text: str) -> str:
    """As it is, but for what no file can hold."""
    return "".join(one for one in text if not "\ud800" <= one <= "\udfff")


def harmless(text: str) -> str:
    """As long, with its words and lines, and nothing that means anything to anybody."""
    return "".join(one if one.isascii() and (one.isalnum() or one in " \n") else "x" for one in hostile(text))


def named(number: int, text: str) -> str:
    """A name of one line that sorts by its number in both bases; identities hold no controls, and are in Unicode's form NFC."""
    seen = "".join(one if one.isprintable() else " " for one in hostile(text))
    return f"r{number:02} {' '.join(unicodedata.normalize('NFC', seen).split())}"[:200].strip()


def base(root: Path, spelled: Spelled, *, edges: int = 30, size: int = 50_000) -> Path:
    """Make one: records, edges, documents, a history with three authors, branches, and a change that is not committed. One node has so
    many edges, and one record a field of so many characters."""
    make_base(root, json.dumps(_config(spelled)))
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        kb.put("Note", [*_notes(spelled, size)])
        for at, name in enumerate(_TYPES[1:]):
            kb.put(name, [{"id": spelled(named(at, TEXTS[at])), "text": spelled(TEXTS[-at])}])
        kb.put("cites", [*_edges(spelled, edges)])
    _documents(root, spelled)
    _commit(root, spelled, 0)
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        kb.put("Note", [*_notes(spelled, size // 2, turn=11)])
    _commit(root, spelled, 1)
    _branches(root, spelled)
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        kb.put("Note", {"id": spelled(named(3, TEXTS[3])), "title": spelled(TEXTS[4]), "text": spelled(TEXTS[5])})
        kb.find("all", "alpha")
    return root


def _config(spelled: Spelled) -> dict[str, Any]:
    """Fields, descriptions and choices can say anything; names of types cannot."""
    odd = {
        spelled(f"f{at:02} {TEXTS[at]}"[:60]): {"type": "string", "description": spelled(TEXTS[at])}
        for at in (0, 2, 7, 33, 34)
    }
    choices = [spelled(named(at, TEXTS[at])) for at in (1, 6, 8)]
    fields = {
        "id": {"type": "string", "title": spelled(TEXTS[0])}, "title": {"type": "string", "description": spelled(TEXTS[2])},
        "text": {"type": "string", "description": spelled(TEXTS[35])}, "kind": {"enum": choices, "description": spelled(TEXTS[9])},
        "plain": {"type": "string", "contentMediaType": "text/plain"}, "tags": {"type": "array", "items": {"type": "string"}},
        "size": {"type": "integer"}, "day": {"type": "string", "format": "date"}, "is_old": {"type": "boolean"}, **odd,
    }  # fmt: skip
    search = {"full_text": ["title", "text"], "vectors": ["title"]}
    node = {"identity": "id", "schema": {"type": "object", "properties": fields, "required": ["id"]}, "search": search}
    tables = dict(zip(_TYPES, ("note", "constructor", "script", "yad"), strict=True))
    why = {"type": "object", "properties": {"why": {"type": "string", "description": spelled(TEXTS[11])}}}
    return {
        "global": {"embedding_model": "none"},
        "limits": {"max_record_bytes": 40_000_000},
        "nodes": {name: {"table": table, **node} for name, table in tables.items()},
        "edges": {
            "cites": {"from": "Note", "to": "Note", "schema": why},
            "toString": {"from": "Note", "to": [*_TYPES], "label": "to_string"},
        },
        "questions": [
            {
                "question": spelled(TEXTS[0]),
                "type": "Note",
                "mode": "match",
                "expected": {spelled(named(0, TEXTS[0])): 1},
            }
        ],
    }


def _notes(spelled: Spelled, size: int, turn: int = 0) -> Iterator[dict[str, Any]]:
    """Another `turn` has other texts under the same names."""
    for at, own in enumerate(TEXTS):
        text, other = TEXTS[(at + turn) % len(TEXTS)], TEXTS[(at * 7 + turn + 3) % len(TEXTS)]
        yield {
            "id": spelled(named(at, own)), "title": spelled(f"mark{at:02} {text}"), "text": spelled(f"mark{at:02} {other}\n\n{text}"),
            "plain": spelled(text + "\n" + other), "tags": [spelled(text[:100]), spelled(other)], "size": at,
            "loose": {spelled(f"z {text[:80]}"): [spelled(other), {spelled(other[:80]): None}], "deep": [[[[[[[[spelled(text)]]]]]]]]},
            spelled(f"f00 {TEXTS[0]}"[:60]): spelled(other), "address": spelled(other) if at % 2 else f"https://example.org/{at}",
        }  # fmt: skip
    yield {
        "id": "huge",
        "title": spelled("mark98 " + TEXTS[0]),
        "text": spelled(("<b onclick=1>" * (size // 13 + 1))[:size]),
    }
    cites = f"mark97 duckkb://Note/huge <b>duckkb://Note/{'%3Cscript%3E'}</b>"
    yield {
        "id": "citing",
        "title": "mark97",
        "text": spelled(cites) if spelled is hostile else f"mark97 duckkb://Note/huge {harmless(cites)}",
    }


def _edges(spelled: Spelled, count: int) -> Iterator[dict[str, Any]]:
    names = [spelled(named(at, text)) for at, text in enumerate(TEXTS)]
    for at in range(count):
        first, second = (
            ("huge", names[at])
            if at < len(names)
            else (names[at % len(names)], names[(at * 3 + at // len(names)) % len(names)])
        )
        yield {"from": first, "to": second, "why": spelled(TEXTS[at % len(TEXTS)])}


def _documents(root: Path, spelled: Spelled) -> None:
    """Files may be called nearly anything."""
    folder = root / "docs"
    folder.mkdir()
    for at in (0, 2, 7, 8, 17, 33, 35, 36):
        name = spelled(named(at, TEXTS[at])).replace("/", "_").replace("\x00", "_").replace("\x1b", "_")[:80]
        (folder / f"{name}.md").write_text(f"# {spelled(TEXTS[at])}\n\n{spelled(TEXTS[at])}\n", "utf-8", newline="")
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        kb.documents.add(folder, name="docs")


def _commit(root: Path, spelled: Spelled, number: int) -> None:
    """By an author whose name, and with a message that, is hostile. What git takes out of names is out of both."""
    author = spelled(("&lt;script&gt;\"onload='1", '\u202e{{7*7}}\x1b]0;owned\x07 a"b')[number])
    minute = git(root, "rev-list", "--all", "--count").strip()  # each commit is a minute younger, in both bases
    said = f"{TEXTS[number]} {TEXTS[35]} {TEXTS[33]}\n\n{TEXTS[2]}"
    with pytest.MonkeyPatch.context() as environment:
        for role in ("AUTHOR", "COMMITTER"):
            environment.setenv(f"GIT_{role}_NAME", author)
            environment.setenv(f"GIT_{role}_EMAIL", spelled("\"'@x;y"))
            environment.setenv(f"GIT_{role}_DATE", f"2026-01-02T03:{int(minute):02}:00Z")
        commit(root, spelled(said))


def _branches(root: Path, spelled: Spelled) -> None:
    """Names of branches can have markup, too; one changes, inserts and deletes records."""
    for at, name in enumerate(("a/<script>1</script>", "b/\"onload=1'{{7-7}}", "c/&lt;b>\u202e")):
        git(root, "checkout", "-q", "-b", f"{name[:2]}{spelled(name[2:].replace('/', '|'))}")
        with duckkb.open(root, embedder=HashEmbedder()) as kb:
            kb.put(
                "Note",
                {"id": spelled(named(at, TEXTS[at])), "title": spelled(TEXTS[2]), "text": spelled(TEXTS[28] + str(at))},
            )
            kb.put("Note", {"id": spelled(f"new {TEXTS[0]}"), "title": spelled(TEXTS[7])})
            kb.delete("constructor", [spelled(named(0, TEXTS[0]))])
        _commit(root, spelled, at % 2)
        git(root, "checkout", "-q", "main")


def in_conflict(root: Path, spelled: Spelled) -> Path:
    """Have a base stop in a merge in which records of both sides are in conflict."""
    commit(root, "as it was")
    branch = git(root, "for-each-ref", "--format=%(refname:short)", "refs/heads/a").split()[0]
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        kb.put("Note", {"id": spelled(named(0, TEXTS[0])), "title": spelled(TEXTS[8]), "text": spelled(TEXTS[9])})
    commit(root, "ours")
    assert run_in(root, ["merge", branch]).code == 1
    return root


def values(spelled: Spelled) -> Values:
    """What requests for the pages of such a base say."""
    types = ["Note", "Note", "Note", "cites", "docs", "constructor", "all", "", spelled(TEXTS[0])]
    identities = [spelled(named(at, text)) for at, text in enumerate(TEXTS)] + [
        "huge",
        "citing",
        json.dumps(["huge", named(3, TEXTS[3])]),
    ]
    known = [("Note", one) for one in identities[:-1]] + [("cites", identities[-1])]
    return Values(
        types,
        identities,
        [*map(spelled, TEXTS), "text", "title", "plain", "loose", "mark01", "a/<script>1<|script>"],
        known,
    )
