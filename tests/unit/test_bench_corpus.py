"""The benchmark's corpus is the same for the same number, its right answers are right, and its ratios are of medians."""

import json
from pathlib import Path

import answers
import corpus
import goals
import measure
import numpy as np
import pytest
import report


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> corpus.Corpus:
    return corpus.make(tmp_path_factory.mktemp("corpus") / "small", 60, questions=3)


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.long
def test_a_corpus_is_the_same_bytes_again(small: corpus.Corpus, tmp_path: Path) -> None:
    assert _files(corpus.make(tmp_path / "again", 60, questions=3).folder) == _files(small.folder)


def test_a_smaller_corpus_is_the_beginning_of_a_larger_one(small: corpus.Corpus, tmp_path: Path) -> None:
    fewer = corpus.make(tmp_path / "fewer", 25, questions=1)
    assert list(fewer.rows()) == list(small.rows())[:25]
    assert np.array_equal(fewer.vectors, small.vectors[:25])
    assert np.array_equal(fewer.words, small.words[: fewer.ends[-1]])


def test_texts_have_the_words_that_are_counted(small: corpus.Corpus) -> None:
    words = corpus.Vocabulary().words
    starts = [0, *small.ends[:-1]]
    rows = list(small.rows())
    assert len(rows) == 60
    for row, start, end in zip(rows, starts, small.ends, strict=True):
        of_row = [words[number] for number in small.words[start:end]]
        assert 40 <= len(of_row) <= 160
        bare = row["text"].replace("。", "").replace(".", "").replace(" ", "").lower()
        assert bare == "".join(of_row).lower()
    assert 0 < sum("。" in row["text"] for row in rows) < 30
    assert small.text_bytes == sum(len(row["text"].encode()) for row in rows)


def test_vectors_are_of_unit_length_and_questions_are_near_a_record(small: corpus.Corpus) -> None:
    assert np.allclose(np.linalg.norm(small.vectors, axis=1), 1, atol=1e-6)
    questions = [*small.questions("en"), *small.questions("zh")]
    right = answers.Right(small, questions)
    for number, asked in enumerate(questions):
        nearest = right.vector(number)
        by_hand = sorted(range(60), key=lambda place: -float(small.vectors[place] @ asked.vector))[:10]
        assert nearest == [corpus.identity(place) for place in by_hand]
        assert float(small.vectors[by_hand[0]] @ asked.vector) > 0.7


def test_reference_ranking_by_words_has_records_with_these_words_and_keeps_to_a_filter(small: corpus.Corpus) -> None:
    asked = small.questions("en")[0]
    rows = {row["id"]: row for row in small.rows()}
    right = answers.Right(small, [asked])
    found = right.lexical(0)
    assert found and all(set(asked.text.split()) & set(_words(rows[one]["text"])) for one in found)
    allowed = answers.satisfying(small, asked, "hybrid 50 %")
    assert allowed is not None
    assert [rows[one]["side"] == asked.side for one in rows] == allowed.tolist()
    assert {rows[one]["side"] for one in right.lexical(0, allowed)} == {asked.side}
    kept = right.vector(0, allowed)
    assert answers.keeps_to(kept, allowed) and not answers.keeps_to(kept[:-1], allowed)
    assert not answers.keeps_to([*kept[:-1], next(one for one in rows if rows[one]["side"] != asked.side)], allowed)


def _words(text: str) -> list[str]:
    return text.lower().replace(".", "").split()


def test_goals_are_ratios_to_the_faster_peer_and_to_the_floor() -> None:
    medians = {
        "duckkb": {"hybrid": 0.010, "hybrid 1 %": 0.030},
        "lancedb": {"hybrid": 0.080, "hybrid 1 %": 0.060},
        "sqlite-vec": {"hybrid": 0.090, "hybrid 1 %": 0.050},
        "numpy": {"vector": 0.005},
        "processes": {
            "import duckdb": 0.1,
            "find, words": 0.3,
            "find, embedded question": 1.0,
        },
        "build": {"lancedb": 3.0},
        "memory": {},
    }
    found = goals.outcomes(goals.GOALS, medians)
    ratios = {(one.goal.name, one.goal.base_name): (round(one.ratio, 6), one.reached) for one in found}
    assert ratios == {
        ("warm hybrid", "the faster peer"): (0.125, True),
        ("warm hybrid", "the numpy scan"): (2.0, False),
        ("warm hybrid, filter of 1 %", "the faster peer"): (0.6, False),
        ("cold find, words", "`import duckdb`"): (3.0, True),
        ("cold find, embedded question", "`import duckdb`"): (10.0, False),
    }


def test_growth_compares_two_sizes_and_floors_are_no_steps_of_ours() -> None:
    small = {"processes": {"find, words": 0.3, "import duckdb": 0.2}, "duckkb": {"hybrid": 0.02}}
    large = {"processes": {"find, words": 0.75, "import duckdb": 0.1}, "duckkb": {"hybrid": 0.01}}
    (grown,) = goals.growth(small, large, "at 100,000")
    assert (grown.ratio, grown.reached) == (2.5, False)
    assert goals.slower(small, large) == {"hybrid": 2.0}


def test_a_summary_has_median_and_nearest_rank_percentile() -> None:
    assert measure.summary([float(number) for number in range(1, 41)]) == {"median": 20.5, "p95": 38.0, "n": 40}
    assert json.loads(json.dumps(measure.summary([2.0]))) == {"median": 2.0, "p95": 2.0, "n": 1}


def test_the_page_says_what_was_measured() -> None:
    page = report.PAGE.read_text("utf-8")
    assert report.written(page) == page


def test_the_page_shows_ratios_and_answers_of_a_result(tmp_path: Path) -> None:
    about = {"date": "2026-11-22", "commit": "abc", "processor": "P", "cores": 2, "memory_gb": 8, "system": "S"}
    seconds = {
        "build": {"duckkb": 5.0, "lancedb": 3.0},
        "duckkb": {"hybrid": 0.012, "vector": 0.005},
        "lancedb": {"hybrid": 0.08},
        "numpy": {"vector": 0.004},
        "processes": {"import duckdb": 0.1, "find, words": 0.45},
        "processes, busy": {"import duckdb": 0.1, "find, words": 0.3},
    }
    of_size = {
        "seconds": {part: {step: measure.summary([one]) for step, one in its.items()} for part, its in seconds.items()},
        "answers": {
            "duckkb": {"vector": {"agree": 1.0}},
            "lancedb": {"hybrid 1 %": {"agree": 0.5, "keeps to the filter": 0.9}},
        },
        "memory": {"duckkb": 300_000_000, "duckkb, no mapped files": 90_000_000, "vectors and texts": 200_000_000},
    }
    result = {"about": about | {"python": "3.11", "versions": {"duckdb": "1"}}, "sizes": {"100000": of_size}}
    (tmp_path / "r.json").write_text(json.dumps(result), "utf-8")
    lines = report.figures(*report.load([tmp_path / "r.json"])).splitlines()
    assert "| warm hybrid | 12.0 ms | the faster peer: 80.0 ms | 0.15 |  | 1/5 | yes |" in lines
    assert "| cold find, words | 450 ms | `import duckdb`: 100 ms | 4.50 | 3.00 | 4 | **no** |" in lines
    assert "| find, words | 450 ms (4.5 x) |" in lines
    assert "| hybrid, filter of 1 % |  | 0.500 ! |" in lines
    assert any(line.startswith("| 100,000 | 300 MB | 90 MB |  |  | 200 MB | 1.50 |") for line in lines)


def test_boots_are_compared_process_with_process_and_shown_step_by_step() -> None:
    ours = {"command line": 5.7, "process": 5.5, "without imports": 5.3, "makes indices": 4.26, "answers": 0.012}
    theirs = {"process": 6.0, "without imports": 5.0, "builds rows and indices": 4.35, "opens and answers": 0.1}
    seconds = {
        system: {step: measure.summary([one]) for step, one in its.items()}
        for system, its in (("duckkb", ours), ("lancedb", theirs))
    }
    said = {"about": {"commit": "abc", "date": "2026-11-22"}, "size": 100_000, "seconds": seconds}
    sizes = {100_000: {"seconds": {}, "memory": {}}, 100: {"seconds": {}, "memory": {}}}
    report.with_boots(sizes, said)
    (outcome,) = goals.outcomes(goals.GOALS, report.medians(sizes[100_000]))
    assert (outcome.goal.base_name, outcome.ratio, outcome.reached) == ("LanceDB's process", 5.7 / 6.0, True)
    assert not sizes[100]["seconds"]
    lines = report.boots(said).splitlines()
    assert "| makes rows and indices | 4.26 s (4.26 s) | 4.35 s (4.35 s) |" in lines
    assert "| answers | 12.0 ms (12.0 ms) | 100 ms (100 ms) |" in lines
    assert any("duckkb's command line | 5.70 s (5.70 s) |  |" in line for line in lines)
