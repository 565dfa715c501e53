"""The lexical lane as every one has it: what matches, in which order, shown by which chunk."""

import math

import pytest

from duckkb.types.queries import LexicalQuery
from tests.conformance.lane_suite import NOTE, SILENT, WEIGHED, Held, MakeLanes, every_lane, ids, notes, real_lanes, row

ENGLISH = [
    "DuckDB runs inside the process and keeps its tables in memory.",
    "Snakes shed their skins; a snake in the grass is hard to see.",
    "Grass snakes swim. They eat frogs and newts.",
    "The model text-embedding-3-small failed with E_DUP_ID in v2.0.1.",
    "",
]
CHINESE = [
    "知识引擎把记录保存在仓库里。",
    "DuckDB内存数据库适合分析。",
    "水是生命之源，喝水有益健康。",
    "这本书讨论内部存储的结构。",
    "数据库的内存管理很重要。",
]


def base(make: MakeLanes, bodies: list[str]) -> Held:
    lanes = make()
    lanes.load(NOTE, notes(bodies))
    return lanes


def found(lanes: Held, query: LexicalQuery, depth: int = 50) -> list[int]:
    return ids(lanes.match(NOTE, query, depth))


@real_lanes
def test_words_match_in_their_other_forms(make: MakeLanes) -> None:
    assert set(found(base(make, ENGLISH), LexicalQuery("swimming snake"))) == {2, 3}


@real_lanes
def test_the_record_with_more_of_the_query_comes_first(make: MakeLanes) -> None:
    assert found(base(make, ENGLISH), LexicalQuery("grass frogs"))[0] == 3


@real_lanes
@pytest.mark.parametrize("text", ["text-embedding-3-small", "embedding", "E_DUP_ID", "e_dup_id", "v2.0.1"])
def test_identifiers_are_found_whole_and_by_part(make: MakeLanes, text: str) -> None:
    assert found(base(make, ENGLISH), LexicalQuery(text)) == [4]


@real_lanes
@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (LexicalQuery("知识"), {1}),
        (LexicalQuery("内存"), {1, 2, 4, 5}),
        (LexicalQuery("水"), {3}),
        (LexicalQuery("ＤｕｃｋＤＢ"), {2}),
        (LexicalQuery(phrases=("内存",)), {2, 5}),
        (LexicalQuery(phrases=("DuckDB内存",)), {2}),
        (LexicalQuery(phrases=("存",)), {1, 2, 4, 5}),
        (LexicalQuery(prefixes=("内存",)), {2, 5}),
        (LexicalQuery("数据库", excluded=("内存",)), {1}),
        (LexicalQuery("水", excluded=("生命",)), set()),
    ],
)
def test_dk_21_chinese_is_found_by_words_characters_and_phrases(
    make: MakeLanes, query: LexicalQuery, wanted: set[int]
) -> None:
    assert set(found(base(make, CHINESE), query)) == wanted


@real_lanes
def test_a_chinese_word_ranks_above_its_scattered_characters(make: MakeLanes) -> None:
    assert set(found(base(make, CHINESE), LexicalQuery("内存"), 2)) == {2, 5}


@real_lanes
@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (LexicalQuery(phrases=("grass snakes",)), [3]),
        (LexicalQuery(phrases=("snakes grass",)), []),
        (LexicalQuery(phrases=("snakes",)), [2, 3]),
        (LexicalQuery("frogs", phrases=("shed their",)), [2]),
        (LexicalQuery(phrases=("shed their", "grass is")), [2]),
        (LexicalQuery(phrases=("shed their", "swim they")), []),
        (LexicalQuery(phrases=("?!", "shed")), [2]),
        (LexicalQuery(prefixes=("sna",)), [2, 3]),
        (LexicalQuery(prefixes=("text-emb",)), [4]),
        (LexicalQuery(prefixes=("zzz",)), []),
        (LexicalQuery("snake", excluded=("frog",)), [2]),
        (LexicalQuery("grass", excluded=("swim they eat",)), [2]),
        (LexicalQuery("grass", excluded=("they swim",)), [3, 2]),
        (LexicalQuery("grass", excluded=("...",)), [3, 2]),
        (LexicalQuery(excluded=("snake",)), [1, 4, 5]),
        (LexicalQuery("!!", excluded=("snake",)), [1, 4, 5]),
        (LexicalQuery(excluded=("snake", "duckdb", "model")), [5]),
    ],
)
def test_phrases_are_required_prefixes_open_and_exclusions_final(
    make: MakeLanes, query: LexicalQuery, wanted: list[int]
) -> None:
    answered = found(base(make, ENGLISH), query)
    assert sorted(answered) == sorted(wanted)


@real_lanes
def test_a_prefix_ranks_beside_words(make: MakeLanes) -> None:
    lanes = base(make, ENGLISH)
    assert set(found(lanes, LexicalQuery("duckdb", prefixes=("new",)))) == {1, 3}


@real_lanes
def test_an_excluded_prefix_of_a_word_excludes_nothing_else(make: MakeLanes) -> None:
    assert set(found(base(make, ENGLISH), LexicalQuery("grass", excluded=("gra",)))) == {2, 3}


@real_lanes
def test_excluded_names_the_records_that_a_negation_rules_out(make: MakeLanes) -> None:
    lanes = base(make, ENGLISH)
    assert lanes.find_excluded_ids(NOTE, LexicalQuery("x", excluded=("snake", "e_dup_id"))) == {2, 3, 4}
    assert lanes.find_excluded_ids(NOTE, LexicalQuery("snake")) == frozenset()
    assert lanes.find_excluded_ids(NOTE, LexicalQuery(excluded=("?!",))) == frozenset()
    assert lanes.find_excluded_ids(SILENT, LexicalQuery(excluded=("snake",))) == frozenset()


@real_lanes
@pytest.mark.parametrize(
    "text",
    ["", " ", '" * ( ) : NEAR', '"', "*", "(", ":", "NEAR", "AND OR NOT", "?!。，", "\x00", "a" * 70_000, "\u202eabc"],
)
@pytest.mark.parametrize("part", ["text", "phrases", "excluded", "prefixes"])
def test_odd_queries_are_answered_without_an_error(make: MakeLanes, text: str, part: str) -> None:
    query = LexicalQuery(text) if part == "text" else LexicalQuery("snake", **{part: (text,)})
    assert set(found(base(make, ENGLISH), query)) <= {1, 2, 3, 4, 5}


@real_lanes
@pytest.mark.parametrize("text", ["?!", "。，", "", "   ", '" * ( ) :'])
def test_a_query_without_any_token_matches_nothing(make: MakeLanes, text: str) -> None:
    lanes = base(make, [*ENGLISH, *CHINESE])
    assert found(lanes, LexicalQuery(text)) == []
    assert found(lanes, LexicalQuery(phrases=(text,), prefixes=(text,), excluded=(text,))) == []


@real_lanes
def test_emoji_are_found(make: MakeLanes) -> None:
    assert found(base(make, ["we ship 🚀 today", "we ship tomorrow"]), LexicalQuery("🚀")) == [1]


@real_lanes
def test_a_query_of_a_megabyte_is_answered(make: MakeLanes) -> None:
    lanes = base(make, [*ENGLISH, *CHINESE])
    long = " ".join(f"word{number}" for number in range(100_000))
    assert set(found(lanes, LexicalQuery(f"snakes {long}"))) == {2, 3}
    assert found(lanes, LexicalQuery(phrases=("snake " * 150_000,))) == []
    assert set(found(lanes, LexicalQuery("内存" * 5_000), 2)) == {7, 10}


@real_lanes
def test_words_over_the_limit_of_an_index_are_found_and_lose_no_neighbour(make: MakeLanes) -> None:
    long = "x" * 70_000
    lanes = make()
    lanes.load(NOTE, [row(1, body=f"before {long} after", size=100_000)])
    assert found(lanes, LexicalQuery(long)) == [1]
    assert found(lanes, LexicalQuery("before after")) == [1]


@real_lanes
def test_identical_texts_tie_and_go_by_identity(make: MakeLanes) -> None:
    lanes = make()
    names = ["b", "a", "10", "B", "é", "中"]
    lanes.load(NOTE, [row(number, name=name, body="the same words") for number, name in enumerate(names, 1)])
    hits = lanes.match(NOTE, LexicalQuery("same words"), 6)
    assert [names[hit.id - 1] for hit in hits] == sorted(names)
    assert len({hit.score for hit in hits}) == 1


@real_lanes
def test_a_longer_list_starts_with_the_shorter_one(make: MakeLanes) -> None:
    lanes = base(make, [f"word {'filler ' * (number % 3)} common" for number in range(100)])
    whole = lanes.match(NOTE, LexicalQuery("common word"), 100)
    assert len(whole) == 100
    for depth in (1, 2, 33, 34, 35, 66, 67, 99):
        assert lanes.match(NOTE, LexicalQuery("common word"), depth) == whole[:depth]


@real_lanes
@pytest.mark.parametrize("depth", [10**6, 10**12])
def test_dk_24_a_huge_depth_is_as_many_as_there_are(make: MakeLanes, depth: int) -> None:
    assert set(found(base(make, ENGLISH), LexicalQuery("snake"), depth)) == {2, 3}


@real_lanes
@pytest.mark.parametrize("depth", [0, -1])
def test_no_depth_is_no_hits(make: MakeLanes, depth: int) -> None:
    assert found(base(make, ENGLISH), LexicalQuery("snake"), depth) == []


@real_lanes
def test_an_empty_type_and_one_without_searched_text_match_nothing(make: MakeLanes) -> None:
    lanes = make()
    lanes.load(SILENT, [row(1, SILENT)])
    for kind in (NOTE, SILENT):
        for query in (LexicalQuery("snake"), LexicalQuery(excluded=("snake",)), LexicalQuery(phrases=("a b",))):
            assert lanes.match(kind, query, 10) == []


@real_lanes
def test_dk_19_one_hit_per_record_with_the_chunk_that_holds_the_match(make: MakeLanes) -> None:
    filler = "Nothing to see in this long paragraph about other things entirely.\n\n"
    lanes = make()
    lanes.load(NOTE, [row(1, body=filler * 20 + "At the very end hides a platypus.", size=200), row(2, body=filler)])
    assert ids(lanes.match(NOTE, LexicalQuery("platypus"), 10)) == [1]
    last = lanes.entries(NOTE, 1)[-1]
    assert lanes.chunks(NOTE, LexicalQuery("platypus"), [1]) == [("body", last.seq)]
    assert "platypus" in last.content and last.seq > 0


@real_lanes
def test_the_best_chunk_holds_most_of_the_query_and_the_first_of_equals_wins(make: MakeLanes) -> None:
    lanes = make()
    lanes.load(
        NOTE,
        [
            row(1, title="alpha", body="beta gamma. " * 10 + "\n\n" + "alpha beta gamma. " * 10, size=180),
            row(2, title="alpha", body="alpha " * 100, size=100),
            row(3, title="filler", body="beta"),
        ],
    )
    best = lanes.chunks(NOTE, LexicalQuery("alpha beta"), [3, 1, 2])
    assert best == [("body", 0), ("body", 1), ("title", 0)]


@real_lanes
def test_a_rare_word_counts_more_for_a_chunk_than_two_common_ones(make: MakeLanes) -> None:
    lanes = make()
    common, rare = "common words again. " * 6, "nothing but a platypus. " * 6
    others = [row(number, body="common words") for number in range(2, 40)]
    lanes.load(NOTE, [row(1, body=f"{common}\n\n{rare}", size=150), *others])
    ((_, seq),) = lanes.chunks(NOTE, LexicalQuery("common words platypus"), [1])
    assert "platypus" in lanes.entries(NOTE, 1)[seq].content


@real_lanes
def test_the_best_chunk_holds_the_phrase_as_a_whole(make: MakeLanes) -> None:
    lanes = make()
    apart, together = "memory of a database here. " * 6, "the database memory here. " * 6
    lanes.load(NOTE, [row(1, body=f"{apart}\n\n{together}", size=180)])
    ((_, seq),) = lanes.chunks(NOTE, LexicalQuery(phrases=("database memory",)), [1])
    assert "database memory" in lanes.entries(NOTE, 1)[seq].content


@real_lanes
def test_phrases_cross_chunks_but_not_fields(make: MakeLanes) -> None:
    lanes = make()
    lanes.load(NOTE, [row(1, title="red", body="apple pie " + "filler " * 40 + "green pear", size=60)])
    text = " ".join(entry.content for entry in lanes.entries(NOTE, 1) if entry.field == "body")
    assert len(lanes.entries(NOTE, 1)) > 3 and text
    assert found(lanes, LexicalQuery(phrases=("pie " + "filler " * 40 + "green",))) == [1]
    assert found(lanes, LexicalQuery(phrases=("red apple",))) == []


@real_lanes
def test_weights_and_languages_of_fields_shape_the_ranking(make: MakeLanes) -> None:
    lanes = make()
    lanes.load(
        WEIGHED,
        [
            row(1, WEIGHED, title="other words", body="owls here", exact="one"),
            row(2, WEIGHED, title="owls here", body="other words", exact="two"),
            row(3, WEIGHED, title="other words", body="more of them", exact="owls"),
        ],
    )
    assert ids(lanes.match(WEIGHED, LexicalQuery("owls"), 10))[0] == 2
    assert set(ids(lanes.match(WEIGHED, LexicalQuery("owls"), 10))) == {1, 2, 3}
    assert set(ids(lanes.match(WEIGHED, LexicalQuery("owl"), 10))) == {1, 2}


@real_lanes
def test_explain_accounts_for_the_whole_score(make: MakeLanes) -> None:
    lanes = base(make, [*ENGLISH, *CHINESE])
    query = LexicalQuery("DuckDB内存 memory", phrases=("数据库",), prefixes=("duc",))
    for hit in lanes.match(NOTE, query, 10):
        account = lanes.explain(NOTE, query, hit.id)
        assert account["score"] == pytest.approx(hit.score, abs=1e-4)
        assert sum(term["score"] for term in account["terms"]) == pytest.approx(hit.score, abs=1e-4)
    terms = {(term["part"], term["token"]): term for term in lanes.explain(NOTE, query, 7)["terms"]}
    assert terms["word", "duckdb"]["doc_freq"] == 2
    assert terms["character", "内"]["doc_freq"] == 3
    assert terms["phrase", "数据库"]["doc_freq"] == 2
    assert terms["prefix", "duc*"]["fields"] == ["title", "body"]


@real_lanes
def test_explain_of_what_does_not_match_is_nought(make: MakeLanes) -> None:
    lanes = base(make, ENGLISH)
    for query, record in (
        (LexicalQuery("snake"), 1),
        (LexicalQuery("snake"), 99),
        (LexicalQuery("snake", excluded=("frogs",)), 3),
        (LexicalQuery("?!"), 2),
    ):
        assert lanes.explain(NOTE, query, record) == {"score": 0.0, "terms": []}


@every_lane
def test_coverage_is_the_share_of_what_is_asked_by_how_rare_it_is(make: MakeLanes) -> None:
    lane = base(make, ["storm river", "river bank", "river"]).words(NOTE)
    idf = {"storm": math.log(4 / 1.5), "river": math.log(4 / 3.5), "nowhere": math.log(4 / 0.5)}
    for said, number, held in (("storm river", 1, "storm river"), ("storm nowhere river storm", 2, "river")):
        asked = {*said.split()}
        expected = sum(idf[word] for word in held.split()) / sum(idf[word] for word in asked)
        assert lane.coverage(LexicalQuery(said, excluded=("bank",)), number) == pytest.approx(expected)
    assert lane.coverage(LexicalQuery("nowhere"), 1) == 0
    assert lane.coverage(LexicalQuery(excluded=("storm",)), 2) is None
