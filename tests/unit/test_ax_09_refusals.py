"""What is asked of tables that is unsafe or makes no sense: refused before any server is asked, with all problems at once."""

import json
import math
import re
from typing import Any
from urllib.parse import unquote

import numpy as np
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckkb.tables import connect, embed
from duckkb.tables.table_catalogue import column_name, table_name
from duckkb.tables.table_query import Postgres
from duckkb.types.errors import FilterError, Refused, UsageError
from tests.fakes import HashEmbedder

NOWHERE = "postgresql://nobody:hidden-word@127.0.0.1:1/none"
"""Nothing listens there: whoever asks it gets E_DATABASE."""
HOSTILE = (
    "", " ", "items;", "items; DROP TABLE items", "items--", "items/**/", "it'ems", 'it"ems', '"items', 'items"', '"a""b"', "a.b.c", ".a", "a.",
    "items items", "(SELECT 1)", "items\x00", "items\n", "1items", "pg_class; --", "a" * 64, '"' + "表" * 22 + '"', "a,b", "U&\"a\"", "$1", "%s", "\\", "items\u200b",
    "items\u2028", None, 7, ["items"], "a" * 10_000_000,
)  # fmt: skip


def tables(**more: Any) -> Any:
    return connect(NOWHERE, embedder=HashEmbedder(8), **more)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name)[:24])
def test_ax_09_an_unsafe_table_is_refused_before_any_query(name: Any) -> None:
    with pytest.raises(UsageError, match="invalid table") as told:
        tables().vector_search(name, [1.0] * 8)
    assert (told.value.code, told.value.exit_code) == ("E_TABLE", 2) and len(str(told.value)) < 1_000


@pytest.mark.parametrize("name", [*HOSTILE, "meta->>'a'", "meta.a", "meta['a']", "meta#>>'{a}'", "meta::text", "lower(title)", "*"], ids=lambda name: repr(name)[:24])  # fmt: skip
def test_ax_09_an_unsafe_column_is_refused_wherever_it_stands(name: Any) -> None:
    asked: list[dict[str, Any]] = [{"vector_column": name}, {"select": [name]}]
    if isinstance(name, (str, int)):
        asked.append({"filter": {name: 1}})
    for how in asked:
        with pytest.raises(UsageError, match="invalid column") as told:
            tables().vector_search("items", [1.0] * 8, **how)
        assert told.value.code == "E_TABLE"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("items", ("", "items")), ("Items", ("", "Items")), ("select", ("", "select")), ("shop.items", ("shop", "items")),
        ('shop."My Table"', ("shop", "My Table")), ('"a.b"."c-d"', ("a.b", "c-d")), ("商品", ("", "商品")), ("_a$1", ("", "_a$1")), ('"2024"', ("", "2024")),
    ],
)  # fmt: skip
def test_ax_09_names_that_are_safe_are_taken_as_they_stand(name: str, meant: tuple[str, str]) -> None:
    assert table_name(name) == meant


@given(st.text(max_size=80) | st.from_regex(r'["\w .;\'-]{1,20}', fullmatch=True))
def test_ax_09_what_is_taken_for_a_name_has_no_sign_that_ends_one(text: str) -> None:
    for part in [*(table_name(text) or ()), column_name(text) or ""]:
        assert not set(part) & set("\"'`;\\\0\n\r\t/*%()[],<>=#:") and len(part.encode()) <= 63


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"a": {"$ne": 1}}, "$ne"), ({"a": {"$regex": "x"}}, "$regex"), ({"a": {}}, "without an operator"), ({"a": {"$gt": None}}, "$gt is null"),
        ({"a": {"$in": [1]}}, "$in"), ({"$or": [{"a": 1}]}, "invalid column"), ({"a": {"$gt": [1]}}, "not a single value"), ({"a": [[1]]}, "not a single value"),
        ({"a": [{"$gt": 1}]}, "not a single value"), ({"a": math.nan}, "finite"), ({"a": math.inf}, "finite"), ({"a": "x\0y"}, "NUL"), ({"a": "\ud800"}, "surrogate"),
        ({"a": 10**2000}, "too large"), ({"a": list(range(10_001))}, "10,000"), ([1], "not an object"), ("a = 1", "not an object"), ({"a": object()}, "not a single value"),
    ],
    ids=lambda one: "object" if "object at" in str(one) else str(one)[:24],
)  # fmt: skip
def test_ax_09_a_filter_that_is_no_filter_is_refused(wanted: Any, said: str) -> None:
    with pytest.raises(UsageError) as told:
        tables().vector_search("items", [1.0] * 8, filter=wanted)
    assert (
        said in str(told.value)
        and told.value.exit_code == 2
        and (isinstance(told.value, FilterError) or told.value.code == "E_TABLE")
    )


def test_ax_09_all_problems_come_at_once() -> None:
    with pytest.raises(UsageError) as told:
        tables().query("", "it;ems", top_k=0, final=0, threshold=2, rerank_threshold=-1, vector_column="a b", select=["x->y"], filter={"a": {"$like": "x"}, "b": {}})  # fmt: skip
    found = [finding.message for finding in told.value.findings]
    assert len(found) == 10 and len(set(found)) == 10, found


@pytest.mark.parametrize("top_k", [0, -1, 1_001, 10**30, 1.5, "10", True, None])
def test_ax_09_a_limit_that_is_none_or_huge_is_refused(top_k: Any) -> None:
    with pytest.raises(UsageError, match="top_k is not from 1 to 1,000"):
        tables().vector_search("items", [1.0], top_k=top_k)


@pytest.mark.parametrize("vector", [[], [0.0, 0.0], [math.nan], [1.0, math.inf], ["a"], None, "abc", [[1.0]], [1.0] * 16_001, np.full(3, np.nan), {"a": 1}, [10**400]], ids=lambda one: str(one)[:20])  # fmt: skip
def test_ax_09_a_vector_that_points_nowhere_is_refused(vector: Any) -> None:
    with pytest.raises(UsageError, match="finite numbers"):
        tables().vector_search("items", vector)


@pytest.mark.parametrize("url", ["", "mysql://a:hidden-word@h/d", "postgresql://a:hidden-word@b@h/d", "postgresql://a:x/hidden-word@h/d", "postgresql://a:1/hidden-word@h/d", "postgresql://a:1?hidden-word@h/d", "postgresql://a:1#hidden-word@h/d", "postgresql://a:hidden-word[@h/d", "postgresql://a:hidden-word@h:port/d?x=1", "hidden-word", "postgresql://a:hidden-word@[h/d", "host=h password=hidden-word", "postgresql://a:hidden-word@h/d?hidden-word", None, 7])  # fmt: skip
def test_ax_09_a_url_that_is_none_is_refused_and_not_repeated(url: Any) -> None:
    with pytest.raises(UsageError) as told:
        connect(url).show()
    shown = json.dumps([str(told.value), repr(told.value), told.value.suggestion])
    assert told.value.code == "E_URL" and "hidden-word" not in shown and told.value.__cause__ is None


def test_ax_09_a_password_shows_in_no_repr() -> None:
    db = tables()
    assert "hidden-word" not in repr(db) + str(db) + repr(db._postgres) and "127.0.0.1:1/none" in repr(db)


@pytest.mark.parametrize("secret", ["hidden-word", "hidden%20word", "x"])
def test_ax_09_a_server_that_repeats_a_password_is_not_quoted(secret: str) -> None:
    given = Postgres(f"postgresql://a:{secret}@127.0.0.1:1/none?sslpassword=other-word")
    said = f"who are you, {secret} or {unquote(secret)}\n or other-word?"
    told = given._problem(psycopg.OperationalError(said))
    assert told.code == "E_DATABASE" and told.message.startswith("[database] ")
    words = re.findall(r"[\w-]+", told.message)
    assert not {"hidden-word", "hidden", "other-word", "x"} & set(words), told.message


@pytest.mark.parametrize("dimensions", [0, -1, 1_025, 1.5, True, "8"])
def test_ax_09_embed_takes_dimensions_from_1_to_1024(dimensions: Any) -> None:
    with pytest.raises(UsageError, match="from 1 to 1,024"):
        tables().embed("a text", dimensions)


def test_ax_09_dimensions_that_the_model_has_not_are_refused_before_it_is_asked() -> None:
    model = HashEmbedder(8)
    with pytest.raises(UsageError, match="has 8 dimensions, not 9") as told:
        connect(NOWHERE, embedder=model).embed("a text", 9)
    assert told.value.code == "E_DIMENSION" and model.calls == 0
    with pytest.raises(UsageError, match="has 384 dimensions, not 383"):
        embed("a text", 383)
    assert np.allclose(connect(NOWHERE, embedder=model).embed("a text", 8), model.embed_queries(["a text"])[0])


def test_ax_09_a_sandbox_reaches_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKKB_SANDBOX", "1")
    with pytest.raises(Refused, match="SANDBOX"):
        tables()
