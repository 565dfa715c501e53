"""Filters by grammar: honest ones that carry their meaning along, and what mutation and splicing make of them."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from tests.harness.sql import oracle as o
from tests.harness.sql.attacks import aimed

Row = Mapping[str, Any]
Value = Callable[[Row], Any]


@dataclass(frozen=True)
class Piece:
    """A part of a filter and what it is for a record. `exact` is whether a number is an integer by its type."""

    sql: str
    value: Value
    exact: bool = True


TEXTS = (
    "a",
    "b",
    "alpha",
    "Alpha",
    "内存数据库",
    "张三",
    "it's",
    "",
    "42",
    "4.5",
    "hi",
    "zz-literal",
    "true",
    "canary-row-7f3a",
)
PATTERNS = (
    "%a%",
    "a%",
    "_l%",
    "%",
    "",
    "内存%",
    "%数据_",
    "100%",
    "%\\b%",
    "4_",
    "ALPHA",
    "%'s",
    "zz-literal%",
    "_",
    "%_%",
)
NUMBERS = (0, 1, 2, 3, 5, 7, 10, 42, 100, -1, -3, 9007199254740993)
FRACTIONS = (0.5, 1.5, -2.0, 2.5, 7.25, 42.0)
DAYS = ("2024-01-31", "2024-02-29", "1999-12-31", "2024-03-01", "2024-01-01")
TIMES = ("2024-01-31T15:30:00Z", "2024-02-29T00:00:00Z", "2024-01-31 15:30:00.000001", "2024-03-01T00:00:00+02:00")
OPERATORS = ("=", "<>", "!=", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
NOW = datetime(2024, 5, 3, 12, 0)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _field(name: str, convert: Callable[[Any], Any] = lambda value: value) -> Value:
    return lambda row: convert(row.get(name))


def _constant(value: Any) -> Value:
    return lambda row: value


def _in_kind(number: float | None, exact: bool) -> float | None:
    """What is picked among integers and fractions is a fraction by its type."""
    return number if exact or number is None else float(number)


class Honest:
    """Well-typed filters of a random shape. Every one must be accepted."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def condition(self, depth: int = 3) -> Piece:
        pick = self._chance
        if depth <= 0 or pick.random() < 0.35:
            return self._leaf(max(0, min(depth, 2)))
        match pick.randrange(5):
            case 0:
                inner = self.condition(depth - 1)
                return Piece(f"NOT ({inner.sql})", lambda row: o.not_(inner.value(row)))
            case 1 | 2:
                return self._joined("AND", o.all_of, depth)
            case 3:
                return self._joined("OR", o.any_of, depth)
            case _:
                inner = self.condition(depth - 1)
                word, wanted = pick.choice([("TRUE", True), ("FALSE", False), ("NULL", None), ("UNKNOWN", None)])
                negated = pick.random() < 0.4
                sql = f"(({inner.sql}) IS {'NOT ' if negated else ''}{word})"
                return Piece(sql, lambda row: (inner.value(row) is wanted) is not negated)

    def _joined(self, word: str, fold: Callable[[list[bool | None]], bool | None], depth: int) -> Piece:
        parts = [self.condition(depth - 1) for _ in range(self._chance.randint(2, 3))]
        sql = f" {word} ".join(f"({part.sql})" for part in parts)
        return Piece(sql, lambda row: fold([part.value(row) for part in parts]))

    def _leaf(self, depth: int) -> Piece:
        forms = [
            self._compared, self._compared, self._compared, self._mixed, self._between, self._among, self._matched, self._list,
            self._null, self._truth, self._inside_text, self._chosen,
        ]  # fmt: skip
        return self._chance.choice(forms)(depth)

    def _kinds(self) -> list[Callable[[int], Piece]]:
        return [self.number, self.text, self.day, self.time]

    def _compared(self, depth: int) -> Piece:
        make = self._chance.choice(self._kinds())
        left, right, sign = make(depth), make(depth), self._chance.choice(OPERATORS)
        return Piece(f"{left.sql} {sign} {right.sql}", lambda row: o.compared(sign, left.value(row), right.value(row)))

    def _mixed(self, depth: int) -> Piece:
        """Two kinds that meet: text with numbers, JSON with anything, days with times."""
        sign = self._chance.choice(OPERATORS)
        json, number, text, day, time = self.json(), self.number(depth), self.text_field(), self.day(0), self.time(0)
        left, right, kind = self._chance.choice(
            [
                (json, number, o.number_of_text),
                (text, number, o.number_of_text),
                (json, Piece(quoted(word := self._chance.choice(TEXTS)), _constant(word)), None),
                (json, text, None),
                (Piece("i", _field("i")), Piece("x", _field("x")), None),
                (day, time, o.midnight),
                (json, Piece("TRUE", _constant(True)), o.boolean_of_text),
            ]
        )
        convert = kind or (lambda value: value)
        return Piece(
            f"{left.sql} {sign} {right.sql}", lambda row: o.compared(sign, convert(left.value(row)), right.value(row))
        )

    def _between(self, depth: int) -> Piece:
        make = self._chance.choice(self._kinds())
        term, low, high = make(depth), make(0), make(0)
        negated = self._chance.random() < 0.3

        def value(row: Row) -> bool | None:
            found = term.value(row)
            held = o.all_of([o.compared(">=", found, low.value(row)), o.compared("<=", found, high.value(row))])
            return o.not_(held) if negated else held

        return Piece(f"{term.sql} {'NOT ' if negated else ''}BETWEEN {low.sql} AND {high.sql}", value)

    def _among(self, depth: int) -> Piece:
        make = self._chance.choice(self._kinds())
        term, items = make(depth), [make(0) for _ in range(self._chance.randint(1, 4))]
        items += [Piece("NULL", _constant(None))] if self._chance.random() < 0.2 else []
        negated = self._chance.random() < 0.3

        def value(row: Row) -> bool | None:
            held = o.any_of([o.compared("=", term.value(row), item.value(row)) for item in items])
            return o.not_(held) if negated else held

        return Piece(f"{term.sql} {'NOT ' if negated else ''}IN ({', '.join(item.sql for item in items)})", value)

    def _matched(self, depth: int) -> Piece:
        term, pattern = self.text(depth), self._chance.choice(PATTERNS)
        fold, negated, escape = (self._chance.random() < 0.3 for _ in range(3))
        pattern = pattern.replace("100%", "100!%%") if escape else pattern
        sql = f"{term.sql} {'NOT ' if negated else ''}{'I' if fold else ''}LIKE {quoted(pattern)}"

        def value(row: Row) -> bool | None:
            held = o.like(term.value(row), pattern, fold=fold, escape="!" if escape else "")
            return o.not_(held) if negated else held

        return Piece(sql + (" ESCAPE '!'" if escape else ""), value)

    def _list(self, depth: int) -> Piece:
        wanted, number = self._chance.choice(TEXTS[:4]), self._chance.choice(NUMBERS)
        few = self._chance.sample(("a", "b", "内", "zz-literal"), 2)
        written = f"[{', '.join(map(quoted, few))}]"

        def of(name: str, test: Callable[[Any], bool | None]) -> Value:
            return lambda row: None if row.get(name) is None else test(row[name])

        def inside(row: Row) -> bool | None:
            items = o.texts_of_array(o.at(row.get("meta"), "list"))
            return None if items is None else wanted in items

        return self._chance.choice(
            [
                Piece(f"list_contains(tags, {quoted(wanted)})", of("tags", lambda v: wanted in v)),
                Piece(f"{quoted(wanted)} IN tags", of("tags", lambda v: wanted in v)),
                Piece(f"list_contains(nums, {number})", of("nums", lambda v: number in v)),
                Piece(f"array_has(nums, '{number}')", of("nums", lambda v: number in v)),
                Piece(f"list_has_any(tags, {written})", of("tags", lambda v: bool(set(v) & set(few)))),
                Piece(f"list_has_all(tags, {written})", of("tags", lambda v: set(few) <= set(v))),
                Piece(f"tags = {written}", of("tags", lambda v: v == few)),
                Piece(f"list_contains(meta.list, {quoted(wanted)})", inside),
                Piece("len(tags) = 2", of("tags", lambda v: len(v) == 2)),
                Piece("length(nums) > 1", of("nums", lambda v: len(v) > 1)),
            ]
        )

    def _null(self, depth: int) -> Piece:
        term = self._chance.choice([*self._kinds(), lambda depth: self.json()])(depth)
        negated = self._chance.random() < 0.5
        return Piece(
            f"{term.sql} IS {'NOT ' if negated else ''}NULL", lambda row: (term.value(row) is None) is not negated
        )

    def _truth(self, depth: int) -> Piece:
        return self._chance.choice(
            [
                Piece("b", _field("b")),
                Piece("b = 'true'", _field("b")),
                Piece("meta.flag", lambda row: o.boolean_of_text(o.text_of_json(o.at(row.get("meta"), "flag")))),
                Piece("TRUE", _constant(True)),
                Piece("1 = 1", _constant(True)),
                Piece("NULL", _constant(None)),
                Piece("note::boolean", lambda row: o.boolean_of_text(row.get("note"))),
            ]
        )

    def _inside_text(self, depth: int) -> Piece:
        term, word = self.text(depth), self._chance.choice(TEXTS[:7])

        def on(test: Callable[[str], bool]) -> Value:
            return lambda row: None if (found := term.value(row)) is None else test(found)

        return self._chance.choice(
            [
                Piece(f"contains({term.sql}, {quoted(word)})", on(lambda v: word in v)),
                Piece(f"starts_with({term.sql}, {quoted(word)})", on(lambda v: v.startswith(word))),
                Piece(f"suffix({term.sql}, {quoted(word)})", on(lambda v: v.endswith(word))),
                Piece(f"strpos({term.sql}, {quoted(word or 'a')}) > 1", on(lambda v: v.find(word or "a") > 0)),
            ]
        )

    def _chosen(self, depth: int) -> Piece:
        test, first, other = self._leaf(0) if depth else self._truth(0), self.number(0), self.number(0)
        sign, beside = self._chance.choice(OPERATORS), self.number(0)

        def value(row: Row) -> bool | None:
            found = first.value(row) if test.value(row) is True else other.value(row)
            return o.compared(sign, _in_kind(found, first.exact and other.exact), beside.value(row))

        return Piece(f"CASE WHEN {test.sql} THEN {first.sql} ELSE {other.sql} END {sign} {beside.sql}", value)

    def number(self, depth: int) -> Piece:
        pick = self._chance
        if depth <= 0 or pick.random() < 0.5:
            whole, part = pick.choice(NUMBERS), pick.choice(FRACTIONS)
            return pick.choice(
                [
                    Piece("i", _field("i")),
                    Piece("I", _field("i")),
                    Piece("x", _field("x"), exact=False),
                    Piece('"级别"', _field("级别")),
                    Piece(str(whole), _constant(whole)),
                    Piece(str(part), _constant(part), exact=False),
                    Piece("nums[1]", lambda row: o.element(row.get("nums"), 1)),
                    Piece("nums[-1]", lambda row: o.element(row.get("nums"), -1)),
                ]
            )
        return pick.choice([self._calculated, self._calculated, self._counted, self._picked_number])(depth - 1)

    def _calculated(self, depth: int) -> Piece:
        left, right, sign = self.number(depth), self.number(depth), self._chance.choice(("+", "-", "*", "/", "//", "%"))
        sql = f"({left.sql} {sign} {right.sql})"
        exact = left.exact and right.exact and sign != "/"
        return Piece(sql, lambda row: o.arithmetic(sign, left.value(row), right.value(row)), exact)

    def _counted(self, depth: int) -> Piece:
        text, field, inner, day = self.text(depth), self.text_field(), self.number(depth), self.day(depth)

        def on(piece: Piece, made: Callable[[Any], Any]) -> Value:
            return lambda row: None if (found := piece.value(row)) is None else made(found)

        return self._chance.choice(
            [
                Piece(f"length({text.sql})", on(text, len)),
                Piece(f"abs({inner.sql})", on(inner, abs), inner.exact),
                Piece(f"floor({inner.sql})", on(inner, lambda v: v if inner.exact else float(v) // 1), inner.exact),
                Piece(f"round({inner.sql})", on(inner, lambda v: v if inner.exact else o.rounded(float(v))), inner.exact),
                Piece(f"(-{inner.sql})" if inner.sql[0] != "-" else f"(0 - ({inner.sql}))", on(inner, lambda v: -v), inner.exact),
                Piece(f"year({day.sql})", on(day, lambda v: v.year)),
                Piece(f"extract(month FROM {day.sql})", on(day, lambda v: v.month)),
                Piece(f"date_part('day', {day.sql})", on(day, lambda v: v.day)),
                Piece(f"{field.sql}::double", on(field, o.number_of_text), exact=False),
                Piece(f"date_diff('day', {day.sql}, d)", lambda row: o.days_between(o.midnight(day.value(row)), o.midnight(o.day(row.get("d"))))),
            ]
        )  # fmt: skip

    def _picked_number(self, depth: int) -> Piece:
        parts = [self.number(depth) for _ in range(2)]

        def values(row: Row) -> list[Any]:
            return [found for part in parts if (found := part.value(row)) is not None]

        name = self._chance.choice(["coalesce", "greatest", "least"])
        choose: dict[str, Callable[[list[Any]], Any]] = {"coalesce": lambda v: v[0], "greatest": max, "least": min}
        sql = f"{name}({', '.join(part.sql for part in parts)})"
        exact = all(part.exact for part in parts)
        return Piece(sql, lambda row: _in_kind(choose[name](found), exact) if (found := values(row)) else None, exact)

    def text_field(self) -> Piece:
        name = self._chance.choice(("name", "note", "NAME"))
        return Piece(name, _field(name.lower()))

    def text(self, depth: int) -> Piece:
        pick = self._chance
        if depth <= 0 or pick.random() < 0.5:
            word = pick.choice(TEXTS)
            return pick.choice(
                [
                    self.text_field(),
                    self.text_field(),
                    Piece(quoted(word), _constant(word)),
                    Piece("tags[1]", lambda row: o.element(row.get("tags"), 1)),
                    Piece("(meta->>'k')", lambda row: o.text_of_json(o.at(row.get("meta"), "k"))),
                ]
            )
        inner, count = self.text(depth - 1), pick.randint(0, 3)

        def on(made: Callable[[str], Any]) -> Value:
            return lambda row: None if (found := inner.value(row)) is None else made(found)

        sql = inner.sql
        return pick.choice(
            [
                Piece(f"lower({sql})", on(str.lower)),
                Piece(f"upper({sql})", on(str.upper)),
                Piece(f"trim({sql})", on(lambda v: v.strip(" "))),
                Piece(f"left({sql}, {count})", on(lambda v: o.left_part(v, count))),
                Piece(f"right({sql}, {count})", on(lambda v: o.right_part(v, count))),
                Piece(f"substring({sql}, {count + 1}, 2)", on(lambda v: v[count : count + 2])),
                Piece(f"({sql} || '-zz')", on(lambda v: v + "-zz")),
                Piece(f"nullif({sql}, '')", on(lambda v: v or None)),
                Piece(
                    f"coalesce({sql}, name)", lambda row: row["name"] if (found := inner.value(row)) is None else found
                ),
                Piece("i::varchar", lambda row: o.text_of_number(row.get("i"))),
                Piece("d::varchar", _field("d")),
            ]
        )

    def day(self, depth: int) -> Piece:
        written, count = self._chance.choice(DAYS), self._chance.randint(-40, 40)
        forms = [
            Piece("d", _field("d", o.day)),
            Piece(f"DATE '{written}'", _constant(date.fromisoformat(written))),
            Piece("current_date", _constant(NOW.date())),
        ]
        if depth > 0:
            inner = self.day(depth - 1)
            forms.append(
                Piece(f"({inner.sql} + {count})".replace("+ -", "- "), lambda row: None if (v := inner.value(row)) is None else v + timedelta(days=count))
            )  # fmt: skip
        return self._chance.choice(forms)

    def time(self, depth: int) -> Piece:
        written, part = self._chance.choice(TIMES), self._chance.choice(("year", "month", "week", "day"))
        forms = [
            Piece("t", _field("t", o.moment)),
            Piece("__created_at", _field("__created_at", o.moment)),
            Piece(f"TIMESTAMP '{written}'", _constant(o.moment(written if written[-1] == "Z" or "+" in written else written + "Z"))),
            Piece("now()", _constant(NOW)),
        ]  # fmt: skip
        if depth > 0:
            inner, day = self.time(depth - 1), self.day(depth - 1)
            forms += [
                Piece(f"date_trunc('{part}', {inner.sql})", lambda row: o.truncated(part, inner.value(row))),
                Piece(f"({inner.sql} - INTERVAL '3 days')", lambda row: None if (v := inner.value(row)) is None else v - timedelta(days=3)),
                Piece(f"{day.sql}::timestamp", lambda row: o.midnight(day.value(row))),
            ]  # fmt: skip
        return self._chance.choice(forms)

    def json(self) -> Piece:
        """JSON as its text."""

        def inside(name: str, *steps: str | int) -> Value:
            return lambda row: o.text_of_json(o.at(row.get(name), *steps))

        return self._chance.choice(
            [
                Piece("meta.k", inside("meta", "k")),
                Piece("meta.n", inside("meta", "n")),
                Piece("meta['n']", inside("meta", "n")),
                Piece("meta.deep.z", inside("meta", "deep", "z")),
                Piece("(meta->>'$.deep.s')", inside("meta", "deep", "s")),
                Piece("meta.list[1]", inside("meta", "list", 0)),
                Piece("m", inside("m")),
                Piece("free", inside("free")),
                Piece("FREE", inside("free")),
                Piece('"Odd name"', inside("Odd name")),
            ]
        )


SPLICES: Sequence[str] = (
    ") UNION SELECT 1 --", ") OR (1=1", "; DROP TABLE doc", ") FROM vault --", " OR EXISTS (SELECT 1 FROM vault)", "(SELECT 1)",
    "(SELECT max(secret) FROM vault)", "read_text('FILE')", "'FILE'", "getenv('ENV')", "current_setting('threads')", "query('SELECT 1')",
    "ANY(SELECT i FROM vault)", "vault.secret", "secret", "doc.i", "main.lower(name)", "?", "$1", "$x", "#1", "*", "COLUMNS(*)",
    "COLLATE nocase", "OVER ()", "x -> x", "lambda x: x", "repeat(name, 9)", "list_resize(tags, 9)", "range(9)", "printf('%s', name)",
    "format('{}', name)", "regexp_matches(name, 'a')", "hex(name)", "base64(encode(name))", "levenshtein(name, 'a')", "lpad(name, 9, 'x')",
    '"="(i, 1)', "\"IS NOT DISTINCT FROM\"(i, 1)", "::blob", "::json", "::uuid", "::integer[]", "::struct(a integer)", "/*", "*/", "--", "\n",
    "'", '"', "$$", "$$x$$", "e'\\x41'", "x'41'", "\\", "\0", "‘", "“", "１", "＝", "🦆", "\u200b", "\ufeff", "(", ")", "[", "]", "{", "}", "((((((((", "NOT NOT",
    "enable_logging(storage='file')", "COPY doc TO 'FILE.out'", "ATTACH 'FILE'", "PRAGMA version", "SET threads=1", "INSTALL httpfs",
    "EXPORT DATABASE 'FILE.d'", "CALL pragma_version()", "json_execute_serialized_sql('x')", "error(name)", "sum(i)", "count(*)", "random()",
    "uuid()", "version()", "nextval('s')", "map {'a': 1}", "{'a': 1}", "ROW(1, 2)", "(1, 2)", "TRY(i)", "[x FOR x IN tags]", "tags[1:2]",
    "i::integer::varchar::date", "name = i AND d", "99999999999999999999", "1e999", "1e308 * 10", "-0.0", ".5", "5.", "0x1F", "1_000", "DEFAULT", "LIMIT 1",
    "GROUP BY i", "ORDER BY i", "HAVING true", "QUALIFY true", "USING SAMPLE 1", "WINDOW w AS ()", "AT TIME ZONE 'UTC'", "SIMILAR TO 'a'", "~ 'a'",
    "GLOB '*'", "IS NOT NULL", "ISNULL", "NOTNULL", "BETWEEN SYMMETRIC 1 AND 2", "IN (SELECT 1)", "IN ()", "interval '1 day'", "interval i day",
    "date '2024-02-30'", "meta.k.l.m", "meta->i", "meta->>'$..k'", "meta->'$[*]'", "json_extract(meta, '$.k')", "struct_extract(meta, 'k')", "name[1]",
    "grouping(i)", "unnest(tags)", "strftime(t, '%Y')", "md5(name)", "concat_ws(',', name)", "translate(name, 'a', 'b')", "getvariable('x')",
)  # fmt: skip


# Well-formed expressions that no filter may have. Some are harmless and simply not offered.
FORBIDDEN: Sequence[str] = (
    "(SELECT max(secret) FROM vault)", "(SELECT 1)", "(SELECT content FROM read_text('FILE'))", "(i IN (SELECT i FROM vault))", "(i = ANY(SELECT 1))",
    "EXISTS (FROM vault)", "EXISTS (FROM 'FILE')", "read_text('FILE')", "getenv('ENV')", "current_setting('threads')", "query('SELECT 1')",
    "query_table('vault')", "json_execute_serialized_sql('{}')", "json_serialize_sql('SELECT 1')", "enable_logging(storage='file')", "pragma_version()",
    "vault.secret", "secret", "doc.name", "memory.main.doc.name", "main.lower(name)", "name.lower()", "?", "$1", "$x", "#1", "COLUMNS('i')", "doc.*", "*",
    "(name COLLATE nocase)", "(count(*) OVER ())", "sum(i)", "max(name)", "first(name)", "list(name)", "string_agg(name, ',')", "row_number() OVER ()",
    "list_transform(tags, x -> x)", "list_filter(tags, lambda x: x = 'a')", "list_reduce(nums, (a, b) -> a + b)", "[x FOR x IN tags]", "repeat(name, 9)",
    "list_resize(tags, 9)", "range(9)", "generate_series(1, 9)", "printf('%s', name)", "format('{}', name)", "replace(name, 'a', 'b')",
    "regexp_matches(name, 'a')", "regexp_replace(name, 'a', 'b')", "(name ~ 'a')", "(name SIMILAR TO 'a')", "(name GLOB '*')", "hex(name)", "unhex(name)",
    "base64(encode(name))", "levenshtein(name, 'a')", "jaccard(name, 'a')", "lpad(name, 9, 'x')", "md5(name)", "hash(name)", "random()", "uuid()", "version()",
    "current_user", "current_database()", "nextval('s')", "getvariable('x')", "error(name)", "'=' (i, 1)", '"="(i, 1)', '"+"(i, 1)', '"~~"(name, name)',
    "\"IS NOT DISTINCT FROM\"(ROW(1, 2), 'a')", "name::blob", "name::json", "name::uuid", "nums::varchar::integer[]", "name::bit", "i::hugeint::bit",
    "(name = name::struct(a integer))", "ROW(1, 2)", "(1, 2)", "{'a': 1}", "MAP {'a': 1}", "TRY(i)", "tags[1:2]", "tags[i]", "meta->>name", "meta->i",
    "(t AT TIME ZONE 'UTC')", "(i & 1)", "(i << 62)", "(i ^ 2)", "(i // 0)", "i!", "@i", "~i", "grouping(i)", "unnest(tags)", "DEFAULT", "DATE '2024-02-30'",
    "(name LIKE name)", "(name LIKE 'a!' ESCAPE '!')", "concat_ws(',', name)", "translate(name, 'a', 'b')", "split(name, 'a')", "strftime(t, '%Y')",
    "to_json(doc)", "doc", "rowid", "typeof(i)", "if(i)", "lower(name, name)", "lower(DISTINCT name)", "lower(name ORDER BY i)", "e'\\x00'", "INTERVAL (i) DAY",
    "(i + INTERVAL 1 DAY)", "(b + 1)", "(d * 2)", "(tags = 1)", "(name[1:2])", "1e999", "(d = 'zz-literal')", "(i = 'zz-literal')", "(b = 'zz-literal')",
)  # fmt: skip


class Tainted(Honest):
    """Filters of an honest shape with something in them that none may have."""

    def __init__(self, chance: random.Random, forbidden: Sequence[str]) -> None:
        super().__init__(chance)
        self._forbidden = forbidden

    def _tainted(self, honest: Callable[[int], Piece], depth: int) -> Piece:
        if self._chance.random() < 0.3:
            return Piece(self._chance.choice(self._forbidden), _constant(None))
        return honest(depth)

    def condition(self, depth: int = 3) -> Piece:
        return self._tainted(super().condition, depth)

    def number(self, depth: int) -> Piece:
        return self._tainted(super().number, depth)

    def text(self, depth: int) -> Piece:
        return self._tainted(super().text, depth)


class Hostile:
    """What becomes of honest filters by splicing, swapping, cutting and repeating. Some stay honest by chance."""

    def __init__(self, chance: random.Random, file: str, env: str) -> None:
        self._chance = chance
        self._honest = Honest(chance)
        self._splices = [aimed(splice, file, env) for splice in SPLICES]
        self._tainted = Tainted(chance, [aimed(part, file, env) for part in FORBIDDEN])

    def fragment(self) -> str:
        if self._chance.random() < 0.5:
            return self._tainted.condition(self._chance.randint(0, 2)).sql
        return self._mutated()

    def _mutated(self) -> str:
        text = self._honest.condition(self._chance.randint(0, 2)).sql
        for _ in range(self._chance.choice((1, 1, 1, 2, 3))):
            text = self._chance.choice(
                (self._spliced, self._spliced, self._replaced, self._cut, self._doubled, self._swapped, self._crossed)
            )(text)
        return text

    def _spliced(self, text: str) -> str:
        place = self._chance.choice([0, len(text), *(at for at, sign in enumerate(text) if sign in " (),")])
        return f"{text[:place]} {self._chance.choice(self._splices)} {text[place:]}"

    def _replaced(self, text: str) -> str:
        words = text.split(" ")
        words[self._chance.randrange(len(words))] = self._chance.choice(self._splices)
        return " ".join(words)

    def _cut(self, text: str) -> str:
        start = self._chance.randrange(len(text) + 1)
        return text[:start] + text[start + self._chance.randint(1, 5) :]

    def _doubled(self, text: str) -> str:
        start = self._chance.randrange(len(text) + 1)
        return text[:start] + text[start : start + 6] * self._chance.randint(2, 4) + text[start + 6 :]

    def _swapped(self, text: str) -> str:
        words = text.split(" ")
        first, second = (self._chance.randrange(len(words)) for _ in range(2))
        words[first], words[second] = words[second], words[first]
        return " ".join(words)

    def _crossed(self, text: str) -> str:
        other = self._honest.condition(1).sql
        return text[: self._chance.randrange(len(text) + 1)] + other[self._chance.randrange(len(other) + 1) :]
