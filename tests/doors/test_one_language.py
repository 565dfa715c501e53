"""Filters and the WHERE of statements are one language: the same fields, the same meaning, the same refusals and advice."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import duckkb
from duckkb.ports import SqlLimits
from duckkb.types.errors import FilterError
from tests.conftest import make_base, run_in
from tests.record_tables import RecordTables
from tests.unit.test_condition_laws import CONDITIONS, FIELDS, FRAGMENTS, SHARED, THING, Case, _loaded

HEAD = "SELECT __id FROM thing WHERE "


def _asked(tables: RecordTables, condition: str, *, by_statement: bool) -> Any:
    """The ids; or what a caller learns of a refusal, with its place as it is in the condition, and the condition advised."""
    try:
        if not by_statement:
            return set(tables.where(THING, condition))
        return {row[0] for row in tables.sql(f"{HEAD}({condition}\n)", SqlLimits()).rows}
    except FilterError as error:
        command = shlex.split(error.suggestion) if error.suggestion.startswith("duckkb ") else [""]
        place = error.details.get("position")
        moved = len(HEAD) + 1 if by_statement else 0
        told = error.details.get("construct"), error.details.get("field"), place - moved if place else None
        return (*told, error.exit_code), command[-1].removeprefix(f"{HEAD}(").removesuffix("\n)")


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(FIELDS, min_size=1, max_size=6), st.lists(CONDITIONS, min_size=8, max_size=12))
def test_a_statement_gives_the_records_of_the_filter_which_are_those_of_three_valued_logic(
    rows: list[dict[str, Any]], cases: list[Case]
) -> None:
    tables = _loaded(rows)
    for case in cases:
        wanted = {number for number, row in enumerate(rows, 1) if case.value(row) is True}
        for by_statement in (False, True):
            assert _asked(tables, case.sql, by_statement=by_statement) - {999} == wanted, case.sql
    tables.close()


@pytest.mark.long
@settings(max_examples=20, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(st.lists(FRAGMENTS, min_size=20, max_size=30))
def test_whatever_is_asked_is_answered_or_refused_alike(fragments: list[str]) -> None:
    for fragment in (one.replace("--", "- -") for one in fragments):  # a comment ends elsewhere in a longer text
        filtered, stated = (_asked(SHARED, fragment, by_statement=by_statement) for by_statement in (False, True))
        if isinstance(filtered, set) or isinstance(stated, set):
            assert filtered == stated, fragment
            continue
        assert filtered[0] == stated[0], fragment
        if filtered[1] and stated[1]:  # a filter that is no more than a name is advised beyond that
            assert filtered[1] == stated[1], fragment


NOTES = [
    {"id": "a", "tags": ["red", "blue"], "ctx": {"user": "ann", "n": 3}, "y": 2020, "size": 7},
    {"id": "b", "tags": [], "ctx": {"user": "bob"}, "y": 1999, "size": "large"},
    {"id": "c", "tags": ["blue"], "list": [{"k": 1}]},
]
ODD = {"id": "odd", "tags": ["red", 5], "y": 7, "ctx": ["ann"]}


@pytest.fixture(scope="module", params=["clean", "with an odd record"])
def notes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckkb.KnowledgeBase]:
    root = make_base(tmp_path_factory.mktemp("language") / "kb", "global: {embedding_model: none}\n")
    with duckkb.open(root) as kb:
        kb.collections.init("notes", policy="knowledge-base")
        kb.put("notes", NOTES)
        if request.param != "clean":
            kb.put("notes", [ODD])
        yield kb


def _both(kb: duckkb.KnowledgeBase, condition: str) -> set[str]:
    found = {hit.identity for hit in kb.find("notes", where=condition)} - {"odd"}
    stated = {row[0] for row in kb.sql(f"SELECT id FROM notes WHERE {condition}").rows} - {"odd"}
    assert found == stated
    return {str(one) for one in found}


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("ctx.user = 'ann'", {"a"}),
        ("notes_ctx_user IS NULL OR ctx.n > 2", None),
        ("ctx.n > 2", {"a"}),
        ("ctx.n IS NULL", {"b", "c"}),
        ("y IS DISTINCT FROM NULL", {"a", "b"}),
        ("list_contains(tags, 'red')", {"a"}),
        ("tags = ['blue']", {"c"}),
        ("tags[1] = 'red'", {"a"}),
        ("len(tags) = 2", {"a"}),
        ("len(list_distinct(tags)) = 1", {"c"}),
        ("size = 7", {"a"}),
        ("size = 'large'", {"b"}),
        ("list[1].k = 1", {"c"}),
        ("list_has_any(tags, ['red', 'green'])", {"a"}),
    ],
)
@pytest.mark.long
def test_filters_and_statements_see_the_same_fields_also_after_an_odd_record(
    notes: duckkb.KnowledgeBase, condition: str, wanted: set[str] | None
) -> None:
    if wanted is None:
        with pytest.raises(FilterError):
            _both(notes, condition)
    else:
        assert _both(notes, condition) == wanted


@pytest.mark.parametrize("condition", ["ctx.n = NULL", "y <> NULL", "NOT (id = 'a' AND NULL < y)"])
def test_a_comparison_with_null_which_nothing_satisfies_is_refused_with_what_is_meant(
    notes: duckkb.KnowledgeBase, condition: str
) -> None:
    for ask in (
        lambda: notes.find("notes", where=condition),
        lambda: notes.sql(f"SELECT id FROM notes WHERE {condition}"),
    ):
        with pytest.raises(FilterError, match="a comparison with NULL") as caught:
            ask()
        assert "IS NULL" in caught.value.suggestion or "IS NOT NULL" in caught.value.suggestion


def test_what_a_filter_names_can_be_selected_grouped_and_ordered(notes: duckkb.KnowledgeBase) -> None:
    found = notes.sql("SELECT id, ctx.user, ctx FROM notes WHERE ctx.user IS NOT NULL ORDER BY ctx.user DESC")
    assert found.columns == ("id", "user", "ctx")
    assert found.rows == (("b", "bob", {"user": "bob"}), ("a", "ann", {"user": "ann", "n": 3}))
    grouped = "SELECT ctx.user AS who, count(*), sum(ctx.n) FROM notes n WHERE y > 100 GROUP BY n.ctx.user HAVING ctx.user > 'an'"
    assert set(notes.sql(grouped).rows) == {("bob", 1, None), ("ann", 1, 3)}
    joined = "SELECT a.id, lower(b.ctx.user) FROM notes a JOIN notes b ON a.y = b.y AND b.ctx.user = 'ann'"
    assert notes.sql(joined).rows == (("a", "ann"),)


@pytest.mark.parametrize("condition", ["tags = 'red'", "tags LIKE '%red%'", "tags[0] = 'red'", "tags > 5"])
def test_a_list_is_no_single_value_also_after_an_odd_record(notes: duckkb.KnowledgeBase, condition: str) -> None:
    told = []
    for ask in (
        lambda: notes.find("notes", where=condition),
        lambda: notes.sql(f"SELECT id FROM notes WHERE {condition}"),
    ):
        with pytest.raises(FilterError) as caught:
            ask()
        told.append((caught.value.details["construct"], caught.value.details["field"]))
        if condition == "tags = 'red'":
            assert "list_contains(tags, 'red')" in shlex.split(caught.value.suggestion)[-1]
    assert told[0] == told[1]


@pytest.mark.long
def test_advice_names_a_statement_or_a_verb_that_works(notes: duckkb.KnowledgeBase) -> None:
    root = Path(notes.root)
    slips = (
        ["sql", "SELECT nothing FROM notes"],
        ["sql", "SELECT id FROM notes WHERE tags = 'red'"],
        ["sql", "SELECT id FROM notes WHERE y === 2020 && ctx.user = `ann`"],
        ["sql", "SELECT list_sum(id) FROM notes"],
        ["sql", "SELECT id FROM nots"],
        ["find", "notes", "-w", "nothing = 1"],
    )
    for slip in slips:
        ran = run_in(root, [*slip, "--json"])
        assert ran.code == 2, slip
        advised = shlex.split(ran.error["suggestion"])
        assert advised[0] == "duckkb" and run_in(root, advised[1:]).code == 0, ran.error
