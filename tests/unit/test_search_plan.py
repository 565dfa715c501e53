"""Plans are pure functions of intent, search fields, policy and capabilities."""

import pytest
from msgspec.structs import replace

from duckkb.engine.rank_fusion import Intent, plan, servable
from duckkb.ontology.model import NodeType, Policy, SearchField, settings_of
from duckkb.types.errors import UsageError
from duckkb.types.queries import Mode
from duckkb.types.settings import DEFAULT_MODEL, NO_MODEL, EmbeddingSettings, Fusion, Settings

BODY = (SearchField("body"),)
BOTH = NodeType("Both", "both", ("id",), {}, BODY, BODY)
WORDS = NodeType("Words", "words", ("id",), {}, BODY, ())
VECTORS = NodeType("Vectors", "vectors", ("id",), {}, (), BODY)
BARE = NodeType("Bare", "bare", ("id",), {})


def _plan(
    kind: NodeType, mode: Mode | None = None, *, limit: int = 10, records: int = 1000, model: bool = True, **ask: bool
):
    given = {"has_text": True, "has_vector": False, "has_where": False} | ask
    intent = Intent(
        text="rivers" if given["has_text"] else None,
        mode=mode,
        where="x = 1" if given["has_where"] else None,
        limit=limit,
        vector=[1.0] if given["has_vector"] else None,
        kinds=(kind,),
    )
    settings = Settings(embedding=EmbeddingSettings(model=DEFAULT_MODEL if model else NO_MODEL))
    return plan(intent, records, settings)


@pytest.mark.parametrize(
    ("kind", "mode", "expected", "lanes"),
    [
        (BOTH, None, "hybrid", ("vector", "fts")),
        (BOTH, "match", "match", ("fts",)),
        (BOTH, "similar", "similar", ("vector",)),
        (WORDS, None, "match", ("fts",)),
        (VECTORS, None, "similar", ("vector",)),
    ],
)
def test_a_mode_chooses_its_lanes(kind: NodeType, mode: Mode | None, expected: str, lanes: tuple[str, ...]) -> None:
    made = _plan(kind, mode)
    assert (made.mode, made.lanes, made.notices) == (expected, lanes, ())


@pytest.mark.parametrize(("kind", "expected"), [(WORDS, "match"), (VECTORS, "similar")])
def test_xd_05_hybrid_narrows_to_the_lane_there_is_and_says_so(kind: NodeType, expected: str) -> None:
    made = _plan(kind, "hybrid")
    assert made.mode == expected
    assert [notice.code for notice in made.notices] == ["W_MODE"]


@pytest.mark.parametrize(
    ("kind", "mode"), [(WORDS, "similar"), (VECTORS, "match"), (BARE, None), (BARE, "match"), (BARE, "hybrid")]
)
def test_what_a_type_cannot_serve_is_refused_with_what_to_use(kind: NodeType, mode: Mode | None) -> None:
    with pytest.raises(UsageError) as caught:
        _plan(kind, mode)
    assert caught.value.code == "E_INTENT" and caught.value.suggestion


def test_a_policy_decides_the_default_and_what_is_allowed() -> None:
    policy = Policy(
        "p", intents=("match", "hybrid"), default_intent="match", overrides={"fusion": Fusion("minmax", weight=0.5)}
    )
    kind = NodeType("P", "p", ("id",), {}, BODY, BODY, policy)
    assert _plan(kind).mode == "match"
    assert _plan(kind, "hybrid").fusion == Fusion("minmax", weight=0.5)
    with pytest.raises(UsageError):
        _plan(kind, "similar")


def test_without_a_model_in_the_configuration_the_default_is_words() -> None:
    assert _plan(BOTH, model=False).mode == "match"


@pytest.mark.parametrize(
    ("limit", "records", "clamped", "depth"), [(10, 1000, 10, 50), (30, 1000, 30, 150), (10**9, 70, 70, 350)]
)
def test_dk_24_limits_are_clamped_and_depth_follows(limit: int, records: int, clamped: int, depth: int) -> None:
    made = _plan(BOTH, "hybrid", limit=limit, records=records)
    assert (made.limit, made.depth) == (clamped, depth)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(UsageError):
        _plan(BOTH, limit=limit)


def test_a_filter_alone_runs_no_lane_and_nothing_at_all_is_refused() -> None:
    assert _plan(BARE, has_text=False, has_where=True).lanes == ()
    with pytest.raises(UsageError):
        _plan(BOTH, has_text=False)
    with pytest.raises(UsageError):
        _plan(BOTH, "match", has_text=False, has_where=True)


def test_a_vector_alone_is_similar_and_with_words_hybrid() -> None:
    assert _plan(BOTH, has_text=False, has_vector=True).mode == "similar"
    assert _plan(BOTH, has_vector=True).mode == "hybrid"
    with pytest.raises(UsageError):
        _plan(BOTH, "match", has_vector=True)


def test_servable_leaves_out_what_a_mode_cannot_use() -> None:
    kinds = [BOTH, WORDS, VECTORS, BARE]
    assert servable(kinds, "match") == [BOTH, WORDS]
    assert servable(kinds, "similar") == [BOTH, VECTORS]
    assert servable(kinds, None) == [BOTH, WORDS, VECTORS]
    assert servable(kinds, "where") == kinds


def test_of_several_types_what_their_policies_set_alike_goes_before_the_base() -> None:
    base = Settings(fusion=Fusion("rrf", k=10))
    scores, loose = Policy("a", overrides={"fusion": Fusion("minmax"), "chunk_size": 300}), Policy("b")
    assert settings_of([scores, loose, None], base) == replace(base, fusion=Fusion("minmax"), chunk_size=300)
    assert settings_of([scores, Policy("c", overrides={"fusion": Fusion("rrf")})], base).fusion == base.fusion


def test_a_policy_with_the_offline_model_asks_at_no_address() -> None:
    base = Settings(embedding=EmbeddingSettings("far", "https://host/v1", "KEY", 64, symmetric=True))
    offline = settings_of([Policy("a", overrides={"embedding.model": DEFAULT_MODEL})], base).embedding
    assert (offline.base_url, offline.api_key_env, offline.dimensions, offline.symmetric) == (None, None, None, True)
    other = settings_of([Policy("b", overrides={"embedding.model": "near"})], base).embedding
    assert (other.model, other.base_url) == ("near", "https://host/v1")
