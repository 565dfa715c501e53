"""Every page of a served base, those that are added later too: what records, files, commits and requests say changes nothing outside of
its box."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

from duckkb.server.web import page_request, templates
from tests.harness.campaign import Campaign
from tests.harness.pages import bases
from tests.harness.pages.bases import TEXTS, harmless, hostile, in_conflict, named
from tests.harness.pages.judge import judged
from tests.harness.pages.walk import Twins, addresses, asked, drawn, opened
from tests.harness.reading_room import Room

SPELLED = {"hostile": hostile, "harmless": harmless}


def _starts(found: Room, spelled: Any) -> list[str]:
    """Each page's bare address, questions that find one record, and filters."""
    searches = [{"q": f"mark{at:02}", "mode": "match", "type": "Note"} for at in range(len(TEXTS))]
    searches += [
        {"type": "Note", "mode": "match", "where": spelled(text), "f.title": spelled(text)} for text in TEXTS[:6]
    ]
    pages = [*addresses(found), "/web/nope", "/web/record/nope"]
    around = [
        {},
        {"type": "Note", "id": spelled(named(0, TEXTS[0])), "name": "text", "part": "1"},
        {"type": spelled(TEXTS[0]), "id": spelled(TEXTS[1])},
    ]
    around += [
        {
            "type": "Note",
            "id": spelled(TEXTS[33]),
            "at": spelled(TEXTS[2]),
            "label": spelled(TEXTS[7]),
            "after": spelled(named(0, TEXTS[0])),  # which sorts alike in both
        }
    ]
    return [f"/web/search?{urlencode(one)}" for one in searches] + [
        f"{page}?{urlencode(one)}" for page in pages for one in around
    ]


@contextmanager
def _twins(folder: Path, **more: int) -> Iterator[tuple[Room, Twins, list[tuple[str, str]]]]:
    roots = {name: bases.base(folder / name, spelled, **more) for name, spelled in SPELLED.items()}
    with _rooms(roots) as found:
        yield found


@contextmanager
def _rooms(roots: Mapping[str, Path]) -> Iterator[tuple[Room, Twins, list[tuple[str, str]]]]:
    with ExitStack() as stack:
        rooms = {name: stack.enter_context(opened(root)) for name, root in roots.items()}
        first, second = (one.signed_in() for one in rooms.values())
        starts = [_starts(rooms[name], spelled) for name, spelled in SPELLED.items()]
        yield rooms["hostile"], Twins(first, second, Counter()), [*zip(*starts, strict=True)]


def test_what_is_hostile_changes_nothing_outside_of_its_box(campaign: Campaign, tmp_path: Path) -> None:
    """Pages of two bases, link by link: of one shape, of which one is hostile in all that it says."""
    more = {"edges": campaign.pick(120, 100_000), "size": campaign.pick(100_000, 10_000_000)}
    with _twins(tmp_path, **more) as (found, twins, starts):
        twins.walk(starts, campaign.random("walk"), campaign.pick(90, 2_000))
        pages = {one.partition("?")[0] for one in twins.seen}
        assert {*addresses(found)} <= pages, "every page was seen"
    campaign.count("pages held against those of a harmless base", twins.seen.total())
    roots = {name: in_conflict(tmp_path / name, spelled) for name, spelled in SPELLED.items()}
    with _rooms(roots) as (found, twins, starts):
        twins.walk(starts, campaign.random("conflict"), campaign.pick(20, 400))
    campaign.count("of these while records were in conflict", twins.seen.total())


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bases.base(tmp_path_factory.mktemp("evil") / "kb", hostile)


def test_what_requests_say_changes_nothing_outside_of_its_box_either(campaign: Campaign, evil: Path) -> None:
    """Also of forms that are sent with their proof: whatever is sent, each answer is a page as it may be."""
    chance, statuses = campaign.random("requests"), Counter[int]()
    with opened(evil) as found:
        client, forms = found.signed_in(), addresses(found, "POST")
        for _ in range(campaign.pick(120, 3_000)):
            request = drawn(chance, addresses(found), forms, bases.values(hostile))
            answer = asked(client, request)
            try:
                judged(answer)
            except AssertionError as problem:
                raise AssertionError(f"{request}: {problem}") from problem
            assert answer.status_code != 500, (request, answer.text[-1_500:])
            statuses[answer.status_code] += 1
        assert statuses[200] > statuses.total() / 5, statuses
    campaign.count("random requests for pages of hostile records", statuses.total())


def _forget_templates() -> None:
    cache = templates._load_templates().cache
    assert cache is not None
    cache.clear()


def _alter(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    match how:
        case "no escapes":
            monkeypatch.setattr(templates._load_templates(), "autoescape", False)
            _forget_templates()
        case "tags in Markdown":
            monkeypatch.setitem(templates._build_reader().options, "html", True)
        case "any link":
            monkeypatch.setattr(templates._build_reader(), "validateLink", lambda address: True)
        case "no policy":
            monkeypatch.setattr(
                page_request,
                "_HEADERS",
                {name: one for name, one in page_request._HEADERS.items() if name != "content-security-policy"},
            )
        case "inline scripts":
            monkeypatch.setitem(
                page_request._HEADERS,
                "content-security-policy",
                page_request._POLICY.replace("script-src 'self'", "script-src 'self' 'unsafe-inline'"),
            )
        case "no frame options":
            monkeypatch.setitem(
                page_request._HEADERS,
                "content-security-policy",
                page_request._POLICY.replace("frame-ancestors 'none'; ", ""),
            )
        case "what is not seen":
            monkeypatch.setitem(templates._load_templates().filters, "visible", str)
            _forget_templates()


@pytest.mark.parametrize(
    "how",
    [
        "no escapes",
        "tags in Markdown",
        "any link",
        "no policy",
        "inline scripts",
        "no frame options",
        "what is not seen",
    ],
)
def test_the_judge_sees_pages_that_are_careless(evil: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with any of these, pages of hostile records are not as they may be."""
    given = [{"type": "Note", "id": named(at, TEXTS[at])} for at in (0, 2, 24, 25, 26, 28)]
    wrong = []
    with opened(evil) as found:
        client = found.signed_in()
        for is_altered in (False, True):
            if is_altered:
                _alter(monkeypatch, how)
            problems = 0
            for one in given:
                for page in ("record", "record/history"):
                    try:
                        judged(client.get(f"/web/{page}", params=one))
                    except (AssertionError, KeyError):
                        problems += 1
            wrong.append(problems)
    monkeypatch.undo()
    _forget_templates()
    assert wrong[0] == 0 and wrong[1] > 0, wrong
