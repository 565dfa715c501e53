"""The arithmetic of `query`, against the same written from the text in exact numbers."""

import random
from decimal import Decimal, getcontext
from fractions import Fraction

import pytest

from duckkb.engine.rank_fusion import DOCUMENTS, QueryKind, RankedList, fuse
from duckkb.engine.rerank import blend, lexical_score, vector_score
from duckkb.types.queries import Lane

getcontext().prec = 40
LANES: list[Lane] = ["fts", "vector"]
QUERIES: list[tuple[QueryKind, str]] = [
    ("original", "who keeps ids"),
    ("variant", "ids kept"),
    ("variant", "谁保存编号"),
    ("variant", "identity store"),
]


def drawn(draw: random.Random) -> tuple[list[RankedList], dict[str, float] | None, int]:
    lists = []
    for kind, query in QUERIES[: draw.randint(1, 4)]:
        for lane in draw.sample(LANES, draw.randint(1, 2)):
            keys = draw.sample([f"k{number:02}" for number in range(60)], draw.randint(0, 50))
            scores = sorted((draw.uniform(-1, 20) for _ in keys), reverse=True)
            lists.append(RankedList(lane, list(zip(keys, scores, strict=True)), kind, query))
    draw.shuffle(lists)
    read = draw.choice([1, 5, 30])
    if draw.random() < 0.2:
        return lists, None, read
    scored = {key for one in lists for key, _ in one.ranking}
    return lists, {key: draw.choice([0.0, 0.5, 1.0, draw.random()]) for key in scored}, read


def fused_by_the_text(lists: list[RankedList]) -> list[tuple[str, Fraction, Fraction]]:
    """(key, base, bonus), best first."""
    rows = []
    for key in sorted({key for one in lists for key, _ in one.ranking}):
        base, best = Fraction(0), 99
        for one in lists:
            names = [name for name, _ in one.ranking]
            if key in names:
                rank = names.index(key) + 1
                base += Fraction(2 if one.kind == "original" else 1, 60 + rank)
                best = min(best, rank)
        bonus = Fraction(5, 100) if best == 1 else Fraction(2, 100) if best <= 3 else Fraction(0)
        rows.append((key, base, bonus))
    return sorted(rows, key=lambda row: -(row[1] + row[2]))


def final_by_the_text(rank: int, score: float) -> tuple[Decimal, Decimal, Decimal]:
    """(position, weight, final)."""
    position = max(Decimal("0.01"), (Decimal(1 - rank) / Decimal("5.5")).exp())
    weight = Decimal("0.75") if rank <= 3 else Decimal("0.60") if rank <= 10 else Decimal("0.40")
    return position, weight, weight * position + (1 - weight) * Decimal(score)


def lane_scores_by_the_text(lists: list[RankedList], key: str) -> dict[str, float]:
    """By words |s| / (1 + |s|), by meaning 1 / (1 + distance): the best in each lane that was asked."""
    scores = dict.fromkeys((one.lane for one in lists), 0.0)
    for one in lists:
        for raw in (score for name, score in one.ranking if name == key):
            shown = abs(raw) / (1 + abs(raw)) if one.lane == "fts" else 1 / (1 + max(0, 1 - raw))
            scores[one.lane] = max(scores[one.lane], shown)
    return scores


@pytest.mark.long
@pytest.mark.parametrize("seed", range(0, 300, 10))
def test_kx_05_every_score_is_that_of_the_text(seed: int) -> None:
    for case in range(seed, seed + 10):
        lists, scores, read = drawn(random.Random(case))
        candidates = fuse(lists, DOCUMENTS, str)
        expected = fused_by_the_text(lists)
        assert [one.key for one in candidates] == [key for key, _, _ in expected]
        assert [one.rank for one in candidates] == list(range(1, len(expected) + 1))
        rerank = None if scores is None else {one.key: scores[one.key] for one in candidates[:read]}
        found = blend(candidates, list(dict.fromkeys(one.lane for one in lists)), rerank, str)
        finals: dict[str, Decimal] = {}
        for rank, (key, base, bonus) in enumerate(expected, 1):
            account = next(one for one in found if one.record.key == key).account
            score = None if rerank is None else rerank.get(key)
            position, weight, final = final_by_the_text(rank, score or 0.0)
            lanes = lane_scores_by_the_text(lists, key)
            if rerank is None:
                weight, final = Decimal(0), Decimal(sum(lanes.values()) / len(lanes))
            finals[key] = final
            assert account["lane_scores"] == pytest.approx(lanes, abs=1e-9)
            told = [account[name] for name in ("base_score", "bonus", "position_score", "final")]
            assert told == pytest.approx([float(one) for one in (base, bonus, position, final)], abs=1e-9)
            assert (account["fused_rank"], account["rerank_score"]) == (rank, score)
            assert account["weights"] == pytest.approx(
                {"position": float(weight), "rerank": 0.0 if rerank is None else float(1 - weight)}
            )
            assert account["contributions"] == [
                {
                    "lane": one.lane,
                    "query_kind": one.kind,
                    "query": one.query,
                    "rank": place,
                    "weight": {"original": 2, "variant": 1}[one.kind],
                    "raw_score": raw,
                    "contribution": pytest.approx({"original": 2, "variant": 1}[one.kind] / (60 + place), abs=1e-9),
                }
                for one in lists
                for place, (name, raw) in enumerate(one.ranking, 1)
                if name == key
            ]
        order, fused_order = [one.record.key for one in found], [key for key, _, _ in expected]
        first = fused_order[: len(rerank or ())]
        if rerank is None:
            assert order == fused_order
            continue
        by_final = sorted(first, key=lambda key: (-round(finals[key], 12), key))
        assert order == by_final + fused_order[len(first) :]


def test_kx_05_the_kind_of_a_question_weighs_and_not_its_place() -> None:
    original = RankedList("fts", [("x", 3.0)], "original", "a")
    variant = RankedList("vector", [("y", 0.9)], "variant", "b")
    for lists in ([original, variant], [variant, original]):
        assert [(one.key, one.base) for one in fuse(lists, DOCUMENTS, str)] == [("x", 2 / 61), ("y", 1 / 61)]


def test_kx_05_an_answer_of_a_reranker_that_is_not_whole_is_refused() -> None:
    candidates = fuse([RankedList("fts", [("x", 3.0), ("y", 2.0), ("z", 1.0)])], DOCUMENTS, str)
    wrong = [{"y": 0.5}, {"x": 0.5, "z": 0.5}, {"x": 1.5}, {"x": -0.1}, {"x": float("nan")}, {"w": 0.5}]
    for scores in wrong:
        with pytest.raises(ValueError):
            blend(candidates, ["fts"], scores, str)
    assert [one.record.key for one in blend(candidates, ["fts"], {"x": 0.0, "y": 1.0}, str)] == ["y", "x", "z"]


@pytest.mark.parametrize(("raw", "shown"), [(0.0, 0.0), (1.0, 0.5), (-3.0, 0.75), (9.0, 0.9)])
def test_kx_05_lexical_scores_are_shown_between_nought_and_one(raw: float, shown: float) -> None:
    assert lexical_score(raw) == pytest.approx(shown, abs=1e-9)


@pytest.mark.parametrize(("cosine", "shown"), [(1.0, 1.0), (0.0, 0.5), (-1.0, 1 / 3), (0.75, 0.8), (1.0000001, 1.0)])
def test_kx_05_vector_scores_are_shown_by_distance(cosine: float, shown: float) -> None:
    assert vector_score(cosine) == pytest.approx(shown, abs=1e-9)
