"""A filter is applied before ranking: random filters over random collections, held against plain Python.

What a filter means is said again by three-valued logic over the records as they were given (`campaigns.sql_oracle`, which
imports nothing of duckkb); nearness is computed anew by numpy from the stored vectors.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import duckkb
from duckkb.types.queries import FindResult
from tests.conftest import make_base
from tests.fakes import HashEmbedder
from tests.harness.sql import oracle as o
from tests.harness.sql.grammar import OPERATORS, Piece, quoted

Row = Mapping[str, Any]
FILTERS = {"knowledge-base": 30, "feature-store": 24, "structured-logs": 24, "simple-kv": 12, "vector-store": 10}
COLLECTIONS = 3  # of each policy: 300 filters in all
ROWS = 70
EVERYTHING = 1_000_000
K = 60

WORDS = ("fox", "quick", "brown", "git", "storage", "内存", "数据库", "断电", "查询", "vector", "lane", "journal")
NAMES = ("alpha", "Alpha", "内存数据库", "张三", "it's", "", "42", "4.5", "100%", "倒数排名")
PATTERNS = ("%a%", "a%", "_l%", "%", "内存%", "%数据_", "100!%", "4_", "ALPHA", "%'s", "", "张_")
DAYS = ("2024-01-31", "2024-02-29", "1999-12-31", "2024-03-01", "soon")
MIXED = ("q", "5", 5, 2.5, True, "2024-02-29", 100, ["a"], -4)
CITIES = ("Zürich", "北京", "London", None)


@dataclass
class Known:
    """A collection and what was put into it, by identity; the vectors of each record as rows of a matrix."""

    kb: duckkb.KnowledgeBase
    name: str
    policy: str
    rows: Mapping[str, Row]
    vectors: dict[str, np.ndarray] = field(default_factory=dict)

    def find(self, query: str | None = None, **asked: Any) -> FindResult:
        return self.kb.find(self.name, query, **{"limit": EVERYTHING, **asked})

    def ids(self, query: str | None = None, **asked: Any) -> list[str]:
        return [str(hit.identity) for hit in self.find(query, **asked)]


class Filters:
    """Filters of a random shape over the fields of `some_row`, each with its meaning."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def condition(self, depth: int) -> Piece:
        pick = self._chance
        if depth <= 0 or pick.random() < 0.3:
            leaf = pick.choice(
                [self._text, self._number, self._boolean, self._day, self._mixed, self._nested, self._listed]
            )
            return leaf()
        if pick.random() < 0.25:
            inner = self.condition(depth - 1)
            return Piece(f"NOT ({inner.sql})", lambda row: o.not_(inner.value(row)))
        parts = [self.condition(depth - 1) for _ in range(pick.randint(2, 3))]
        word, fold = pick.choice([("AND", o.all_of), ("OR", o.any_of)])
        return Piece(
            f" {word} ".join(f"({part.sql})" for part in parts), lambda row: fold([part.value(row) for part in parts])
        )

    def _asked(
        self, sql: str, value: Callable[[Row], Any], constants: Sequence[Any], write: Callable[[Any], str]
    ) -> Piece:
        """A term compared with constants of its kind: by a sign, BETWEEN, IN, or IS NULL."""
        pick = self._chance
        first, second = pick.choice(constants), pick.choice(constants)
        negated, no = pick.choice([("", lambda held: held), ("NOT ", o.not_)])
        match pick.randrange(6):
            case 0:
                return Piece(
                    f"{sql} {negated}BETWEEN {write(first)} AND {write(second)}",
                    lambda row: no(
                        o.all_of([o.compared(">=", value(row), first), o.compared("<=", value(row), second)])
                    ),
                )
            case 1:
                some: list[Any] = [first, second, *([None] if pick.random() < 0.3 else [])]
                written = ", ".join("NULL" if one is None else write(one) for one in some)
                return Piece(
                    f"{sql} {negated}IN ({written})",
                    lambda row: no(o.any_of([o.compared("=", value(row), one) for one in some])),
                )
            case 2:
                return Piece(f"{sql} IS {negated}NULL", lambda row: no(value(row) is None))
            case _:
                sign = pick.choice(OPERATORS)
                return Piece(f"{sql} {sign} {write(first)}", lambda row: o.compared(sign, value(row), first))

    def _text(self) -> Piece:
        name = self._chance.choice(("name", "NAME", '"name"'))
        if self._chance.random() < 0.5:
            return self._asked(name, lambda row: row.get("name"), NAMES, quoted)
        return self._like(name, lambda row: row.get("name"))

    def _like(self, sql: str, value: Callable[[Row], str | None]) -> Piece:
        pattern, fold = self._chance.choice(PATTERNS), self._chance.random() < 0.4
        negated, no = self._chance.choice([("", lambda held: held), ("NOT ", o.not_)])
        escape = " ESCAPE '!'" if "!" in pattern else ""
        return Piece(
            f"{sql} {negated}{'I' if fold else ''}LIKE {quoted(pattern)}{escape}",
            lambda row: no(o.like(value(row), pattern, fold=fold, escape="!" if escape else "")),
        )

    def _number(self) -> Piece:
        name = self._chance.choice(("n", "x", '"级别"', "级别"))
        return self._asked(name, lambda row: row.get(name.strip('"')), (0, 1, 3, 7, 42, 2.5, -1), str)

    def _boolean(self) -> Piece:
        sql, test = self._chance.choice([("ok", True), ("NOT ok", False), ("ok = true", True), ("ok = 'false'", False)])
        return Piece(sql, lambda row: None if row.get("ok") is None else row["ok"] is test)

    def _day(self) -> Piece:
        """Texts beside dates: those that are no date compare as nothing, and as text beside text."""
        days = [date.fromisoformat(day) for day in DAYS[:4]]
        if self._chance.random() < 0.3:
            return self._asked("day", lambda row: row.get("day"), DAYS[:4], quoted)
        found = self._asked("day", lambda row: _day(row.get("day")), days, lambda day: f"DATE '{day}'")
        return found if "NULL" not in found.sql.partition("IN (")[0] else self._text()

    def _mixed(self) -> Piece:
        """A field that holds values of several types: beside a number they are numbers, beside a text their texts."""
        name = self._chance.choice(("mixed", "either"))

        def text(row: Row) -> str | None:
            return o.text_of_json(row.get(name))

        form = self._chance.randrange(3)
        if form == 0:
            found = self._asked(name, lambda row: o.number_of_text(text(row)), (5, 2.5, 100, 0), str)
            return found if "NULL" not in found.sql.partition("IN (")[0] else self._text()
        return self._like(name, text) if form == 1 else self._asked(name, text, ("q", "5", "true", "2.5"), quoted)

    def _nested(self) -> Piece:
        """Dotted paths into objects that some records lack."""

        def inside(*steps: str) -> Callable[[Row], str | None]:
            return lambda row: o.text_of_json(o.at(row.get("metadata"), *steps))

        form = self._chance.randrange(4)
        if form == 0:
            return self._like("metadata.author", inside("author"))
        if form == 1:
            return self._asked("metadata.deep.city", inside("deep", "city"), ("Zürich", "北京", "x"), quoted)
        if form == 2:
            pages = inside("pages")
            return self._asked("metadata.pages", lambda row: o.number_of_text(pages(row)), (1, 2, 3), str)
        return self._asked("metadata['author']", inside("author"), NAMES, quoted)

    def _listed(self) -> Piece:
        wanted, count = self._chance.choice(("a", "b", "内存")), self._chance.randint(0, 2)

        def on(test: Callable[[list[str]], bool]) -> Callable[[Row], bool | None]:
            return lambda row: None if row.get("tags") is None else test(row["tags"])

        return self._chance.choice(
            [
                Piece(f"list_contains(tags, {quoted(wanted)})", on(lambda tags: wanted in tags)),
                Piece(f"{quoted(wanted)} IN tags", on(lambda tags: wanted in tags)),
                Piece(f"len(tags) = {count}", on(lambda tags: len(tags) == count)),
                Piece(
                    f"tags[1] = {quoted(wanted)}", lambda row: o.compared("=", o.element(row.get("tags"), 1), wanted)
                ),
                Piece("tags IS NULL", lambda row: row.get("tags") is None),
            ]
        )


def _day(text: str | None) -> date | None:
    return date.fromisoformat(text) if text in DAYS[:4] else None


def some_row(chance: random.Random, number: int) -> dict[str, Any]:
    """A record in which anything may be missing; the first ones have everything, so that no field is unknown and no field
    of several types happens to have one."""

    def maybe(value: Any) -> Any:
        return value if number < len(MIXED) or chance.random() < 0.75 else None

    texts = [chance.choice(WORDS) for _ in range(chance.choice((3, 8, 30)))]
    row = {
        "name": maybe(chance.choice(NAMES)),
        "n": maybe(chance.choice((0, 1, 3, 7, 42, -1))),
        "x": maybe(chance.choice((0.5, 1.5, 2.5, 42.0, 7, -1.0))),
        "级别": maybe(chance.randint(0, 3)),
        "ok": maybe(chance.random() < 0.5),
        "day": maybe(DAYS[number] if number < len(DAYS) else chance.choice(DAYS)),
        "mixed": maybe(MIXED[number] if number < len(MIXED) else chance.choice(MIXED)),
        "either": maybe(MIXED[number] if number < 4 else chance.choice(MIXED[:4])),  # no list: two scalar types alone
        "tags": maybe(["a", "内存"] if number == 0 else chance.sample(("a", "b", "内存"), chance.randint(0, 3))),
        "metadata": maybe({"author": chance.choice(NAMES), "pages": maybe(chance.choice((1, 2, "3"))), "deep": {"city": chance.choice(CITIES)}}),
        "content": maybe(" ".join(texts)),
    }  # fmt: skip
    return {name: value for name, value in row.items() if value is not None}


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckkb.KnowledgeBase]:
    root = make_base(tmp_path_factory.mktemp("prefilter") / "kb", "global: {chunk_size: 100}\n")
    with duckkb.open(root, embedder=HashEmbedder(32)) as opened:
        yield opened


def filled(kb: duckkb.KnowledgeBase, policy: str, number: int, chance: random.Random) -> Known:
    name = f"{policy}-{number}"
    kb.collections.init(name, policy=policy)
    key = {"simple-kv": "key"}.get(policy, "id")
    records = []
    for place in range(ROWS):
        row = some_row(chance, place)
        if policy == "vector-store":
            row |= {"embedding_text": f"{row.pop('content', '')} {place}", "value": place}
        else:
            row[key] = f"r{place:03}"
        if policy == "feature-store":
            row["tensor"] = [round(chance.uniform(-1, 1), 3) for _ in range(8)]
        records.append(row)
    receipt = kb.put(name, records)
    rows = dict(zip((str(identity[0]) for identity in receipt.identities), records, strict=True))
    known = Known(kb, name, policy, rows)
    if policy == "feature-store":
        known.vectors = {one: np.asarray([row["tensor"]], np.float64) for one, row in rows.items()}
    elif policy in ("knowledge-base", "vector-store"):
        known.vectors = stored_vectors(known)
    return known


def stored_vectors(known: Known) -> dict[str, np.ndarray]:
    """What `search_index` holds, by record."""
    known.find("fox", mode="similar")
    names = {hit.id: str(hit.identity) for hit in known.find(where="true")}
    found: dict[str, list[Any]] = {}
    statement = "SELECT source_id, vector FROM search_index WHERE vector IS NOT NULL"
    for source, vector in known.kb.sql(statement, limit=EVERYTHING).rows:
        if source in names:
            found.setdefault(names[source], []).append(vector)
    return {name: np.asarray(vectors, np.float64) for name, vectors in found.items()}


def cosines(known: Known, asked: Sequence[float]) -> dict[str, float]:
    """The best cosine over each record's vectors."""
    query = np.asarray(asked, np.float64)
    query = query / np.linalg.norm(query)
    return {name: float(((rows @ query) / np.linalg.norm(rows, axis=1)).max()) for name, rows in known.vectors.items()}


def check_similar(found: FindResult, expected: Mapping[str, float], limit: int) -> None:
    """The nearest of those that may be found, in falling order; equal ones in any that six decimals leave open."""
    assert len(found) == min(limit, len(expected))
    scores = [expected[str(hit.identity)] for hit in found]
    assert len({hit.identity for hit in found}) == len(found)
    assert [hit.score for hit in found] == pytest.approx(scores, abs=1e-6)
    assert all(first >= second - 2e-6 for first, second in pairwise(scores))
    left = sorted(set(expected) - {str(hit.identity) for hit in found}, key=lambda name: -expected[name])
    assert not left or not scores or expected[left[0]] <= scores[-1] + 2e-6


def check_hybrid(lanes: Sequence[Sequence[str]], found: FindResult, limit: int) -> None:
    """Reciprocal ranks of the two lists that the filter leaves."""
    scores: dict[str, float] = {}
    for lane in lanes:
        for rank, name in enumerate(lane, 1):
            scores[name] = scores.get(name, 0.0) + 1.0 / (K + rank)
    expected = sorted(scores, key=lambda name: (-scores[name], name))[:limit]
    assert [str(hit.identity) for hit in found] == expected
    assert [hit.score for hit in found] == pytest.approx([scores[name] for name in expected], abs=1e-9)


def check_texts(known: Known, where: str, wanted: set[str], chance: random.Random) -> None:
    """By words: what an unfiltered search finds, less what the filter leaves out, in the same order. By meaning, of a text or
    of a vector that is given: the nearest. Both: reciprocal ranks."""
    query, limit = " ".join(chance.sample(WORDS, 2)), chance.choice((1, 5, 10, ROWS))
    depth = max(50, 5 * limit)
    words = [name for name in known.ids(query, mode="match") if name in wanted]
    assert known.ids(query, mode="match", where=where, limit=limit) == words[:limit]
    given = random_vector(chance, 32) if chance.random() < 0.5 else None
    asked = given or HashEmbedder(32).embed_queries([query])[0].tolist()
    text = query if given is None else None
    near = known.find(text, mode="similar", where=where, limit=depth, vector=given)
    check_similar(near, within(cosines(known, asked), wanted), depth)
    found = known.find(query, mode="hybrid", where=where, limit=limit, vector=given)
    check_hybrid([[str(hit.identity) for hit in near], words[:depth]], found, limit)


def random_vector(chance: random.Random, dimension: int) -> list[float]:
    return [round(chance.uniform(-1, 1), 2) for _ in range(dimension)]


def within(scores: Mapping[str, float], wanted: set[str]) -> dict[str, float]:
    return {name: score for name, score in scores.items() if name in wanted}


@pytest.mark.parametrize("policy", FILTERS)
@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number, marks=pytest.mark.larger) for number in range(1, COLLECTIONS))]
)
def test_xd_06_every_mode_answers_within_the_filter(
    kb: duckkb.KnowledgeBase, request: pytest.FixtureRequest, policy: str, number: int
) -> None:
    chance = random.Random(f"{request.config.getoption('--seed')} {policy} {number}")
    known, grammar = filled(kb, policy, number, chance), Filters(chance)
    split = 0
    for _ in range(FILTERS[policy]):
        piece, limit = grammar.condition(chance.randint(0, 3)), chance.choice((1, 7, EVERYTHING))
        wanted = {name for name, row in known.rows.items() if piece.value(row) is True}
        split += 0 < len(wanted) < ROWS
        assert known.ids(where=piece.sql, limit=limit) == sorted(wanted)[:limit], piece.sql
        if policy == "feature-store":
            given = random_vector(chance, 8)
            found = known.find(vector=given, where=piece.sql, limit=limit)
            check_similar(found, within(cosines(known, given), wanted), limit)
        elif known.vectors:
            check_texts(known, piece.sql, wanted, chance)
    assert split > FILTERS[policy] / 4, "many filters keep some records and leave others out"


def test_the_filters_are_three_hundred() -> None:
    assert COLLECTIONS * sum(FILTERS.values()) == 300
