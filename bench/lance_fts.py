"""LanceDB's own full-text index beside exact BM25, over the same terms: how far are its answers from those that are exact?

usage: python bench/lance_fts.py [--size N] [--parts N] [--keep FOLDER] [--out FILE]

A base is published to Lance tables; of its postings each record's terms are put down as one text, and indexed by LanceDB (split at
spaces, nothing stemmed or left out) in three ways: in one piece; in so many parts, of which the index is kept up with each; and in so many
of which it knows the first alone, as between two calls of `optimize`. Each question is asked by its terms, in LanceDB and of what is published, whose answers are a clone's. `recall@10`,
`first` (share of questions with the same first record), and `score`, the median deviation of a score where both have the record, after
the one factor between the two scales. Needs `make test-lance`'s folder on PYTHONPATH. The result is JSON.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ours
import publish as publishing
import pyarrow as pa
from corpus import make
from measure import say

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

SPLIT: dict[str, Any] = {
    "base_tokenizer": "whitespace",
    "lower_case": False,
    "stem": False,
    "remove_stop_words": False,
    "ascii_folding": False,
    "max_token_length": None,
}
"""Terms as they are given."""
Answer = list[tuple[int, float]]
DEPTH = 10


def texts_of(store: Any, head: Any) -> dict[int, list[str]]:
    """The terms of each record, by its id, without those that keep the order of tokens."""
    name, version, _ = head.kinds[ours.TYPE].tables["posting"]
    rows = store.open_version(name, version).search().where("term >= '0001'").select(["term", "id", "times"]).to_arrow()
    found: dict[int, list[str]] = defaultdict(list)
    for term, one, times in zip(*(rows[column].to_pylist() for column in ("term", "id", "times")), strict=True):
        found[one] += [term] * times
    return found


def table_of(connection: Any, name: str, texts: dict[int, list[str]], parts: int, *, kept_up: bool) -> Any:
    """A table with an index over the first of so many parts; the index takes in those that came later where it is kept up."""
    from lancedb.index import FTS

    ids, table = sorted(texts, key=lambda one: max(texts[one])), None  # parts that differ: Chinese records come last
    size = -(-len(ids) // parts)
    for start in range(0, len(ids), size):
        some = ids[start : start + size]
        rows = pa.table({"id": some, "text": [" ".join(texts[one]) for one in some]})
        if table is None:
            table = connection.create_table(name, rows, mode="overwrite")
            table.create_index("text", config=FTS(**SPLIT))
            continue
        table.add(rows)
        if kept_up:
            table.optimize()
    return table


def asked(table: Any, terms: Sequence[str]) -> Answer:
    rows = table.search(" ".join(terms), query_type="fts", fts_columns="text").select(["id", "_score"]).limit(DEPTH)
    return [(row["id"], row["_score"]) for row in rows.to_list()]


def compared(table: Any, questions: Sequence[tuple[list[str], Answer]]) -> dict[str, float]:
    recalls, firsts, ratios, taken = [], [], [], []
    for terms, right in questions:
        start = time.perf_counter()
        found = asked(table, terms)
        taken.append(time.perf_counter() - start)
        recalls.append(len({one for one, _ in found} & {one for one, _ in right}) / max(len(right), 1))
        firsts.append(bool(found) and found[0][0] == right[0][0])
        exact = dict(right)
        ratios += [score / exact[one] for one, score in found if one in exact]
    scale = statistics.median(ratios)
    return {
        "recall@10": round(statistics.mean(recalls), 4),
        "first": round(statistics.mean(firsts), 4),
        "score": round(statistics.median(abs(one / scale - 1) for one in ratios), 5),
        "score, worst": round(max(abs(one / scale - 1) for one in ratios), 4),
        "ms": round(statistics.median(taken) * 1000, 2),
    }


def measure(size: int, parts: int, folder: Path) -> dict[str, Any]:
    import lancedb

    from duckkb import app
    from duckkb.databases.lance_tables import Store, term_of
    from duckkb.databases.published_words import numbers_of
    from duckkb.index.tokens import JiebaTokenizer
    from duckkb.index.word_fields import words_fields
    from duckkb.index.word_query import clauses
    from duckkb.types.database_urls import LanceAddress
    from duckkb.types.queries import LexicalQuery

    corpus = make(folder / f"corpus-{size}", size)
    home, url = folder / "kb", f"lance:{folder / 'published'}"
    if not (home / "config.yaml").exists():
        ours.Duckkb().build(corpus, home)
    publishing.commit(home)
    start = time.perf_counter()
    app.publish(home, to=url)
    say(f"published in {time.perf_counter() - start:.0f} s")
    store = Store(LanceAddress.parse(url))
    head = store.head()
    tokenizer = JiebaTokenizer()
    told = [*corpus.questions("en"), *corpus.questions("zh")]
    with app.open(home, backend=url) as kb:
        kind = kb._answer(lambda base: base.ontology.find(ours.TYPE))
        fields = words_fields(kind, "english")
        numbers, questions, taken = numbers_of(fields), [], []
        for one in told:
            found = clauses(LexicalQuery(one.text), tokenizer, fields)
            terms = [
                term_of(numbers[clause.field], clause.tokens[0]) for clause in found.scored if clause.part == "word"
            ]
            start = time.perf_counter()
            hits = kb.find(ours.TYPE, one.text, mode="match", limit=DEPTH)
            taken.append(time.perf_counter() - start)
            if len(terms) == len(found.counted) and hits:
                questions.append((terms, [(hit.id, hit.score) for hit in hits]))
    texts = texts_of(store, head)
    connection = lancedb.connect(str(folder / "fts"))
    result: dict[str, Any] = {"records": size, "questions": len(questions), "our postings, ms": round(statistics.median(taken) * 1000, 2)}  # fmt: skip
    for name, count, kept_up in (("whole", 1, True), ("kept up", parts, True), ("behind", parts, False)):
        table = table_of(connection, name.replace(" ", "-"), texts, count, kept_up=kept_up)
        result[f"fts, {name}"] = compared(table, questions)
        say(f"asked {name}: {result[f'fts, {name}']}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--keep", type=Path, help="Where corpus and base lie, or are made.")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ.update(ours.machine_state(folder / "kb"))
        text = json.dumps(measure(given.size, given.parts, folder), indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
