"""Statements that the walk accepts and that would take all memory or all time. `{big}` is a table of 1,000 rows."""

_DOUBLED = "SELECT length({})"


def _nested(step: str, seed: str, depth: int) -> str:
    for _ in range(depth):
        seed = step.format(seed)
    return seed


TEXT = "'" + "a" * 1000 + "'"

MEMORY: dict[str, str] = {
    "doubled text": f"SELECT length({_nested('(SELECT x || x FROM (SELECT {} AS x))', TEXT, 30)})",
    "doubled list": f"SELECT len({_nested('(SELECT list_concat(x, x) FROM (SELECT {} AS x))', '[1]', 30)})",
    "doubled text in a recursion": "WITH RECURSIVE c AS (SELECT 1 AS v, 'a' AS s UNION ALL SELECT v + 1, s || s FROM c WHERE v < 60) SELECT max(length(s)) FROM c",
    "doubled list in a recursion": "WITH RECURSIVE c AS (SELECT 1 AS v, [1] AS s UNION ALL SELECT v + 1, list_concat(s, s) FROM c WHERE v < 60) SELECT max(len(s)) FROM c",
    "replaced letters": f"SELECT length(replace(replace(replace({TEXT}, 'a', {TEXT}), 'a', {TEXT}), 'a', {TEXT}))",
    "replaced by a pattern": f"SELECT length(regexp_replace(regexp_replace(regexp_replace({TEXT}, 'a', {TEXT}, 'g'), 'a', {TEXT}, 'g'), 'a', {TEXT}, 'g'))",
    "translated rows": "SELECT string_agg(a.name || b.name || c.name, '') FROM big a, big b, big c",
    "one long list": "SELECT list(a.name) FROM big a, big b, big c",
    "groups without end": "SELECT a.name || b.name || c.name, count(*) FROM big a, big b, big c GROUP BY 1",
    "sorted product": "SELECT * FROM big a, big b, big c ORDER BY a.name || b.name || c.name",
    "a list in every row": "SELECT list_transform(l, x -> l) FROM (SELECT list(a.name) AS l FROM big a, big b)",
    "recursion that multiplies": "WITH RECURSIVE c AS (SELECT 1 AS v UNION ALL SELECT v + 1 FROM c, big) SELECT count(*) FROM c",
    "wide rows": "SELECT " + ", ".join(["s || s"] * 3000) + " FROM (SELECT string_agg(name, '') AS s FROM big), big",
    "JSON of everything": "SELECT to_json(list(a.name)) FROM big a, big b, big c",
}  # fmt: skip

TIME: dict[str, str] = {
    "endless recursion": "WITH RECURSIVE c AS (SELECT 1 AS v UNION ALL SELECT (v + 1) % 1000 FROM c) SELECT count(*) FROM c",
    "nested recursion": "WITH RECURSIVE a AS (SELECT 1 AS v UNION ALL SELECT v + 1 FROM a WHERE v < 100000000), b AS (SELECT 1 AS v UNION ALL SELECT b.v FROM b, a) SELECT count(*) FROM b",
    "a product of tables": "SELECT count(*) FROM big a, big b, big c, big d WHERE sin(a.n * b.n * c.n * d.n) > 2",
    "rows that never end": "SELECT sin(a.n * b.n) FROM big a, big b, big c, big d WHERE sin(a.n * d.n) > 0.9999999",
}
