"""What a collection takes, from 10 thousand to 100 million chunks: a simulation from measured costs, on paper.

usage: python bench/scale_model.py [--sizes N,N,...] [--hours H] [--NAME VALUE ...] [--json]

Each cost is a constant below that says where it was measured; `--embed-per-core-s 40` and the like put another in its place.
Nothing is run. A base is one git repository, and as many of them are taken as keep each within `base_chunks`, the largest that was
measured. Machines embed for `hours`; each reads its whole base once a shard, loses now and then, goes on where it stopped.
"""

import argparse
import json
import math
from dataclasses import dataclass, fields
from typing import Any

SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
DAY = 86_400


@dataclass(frozen=True)
class Costs:
    """Seconds of one core where nothing else is said, and bytes."""

    embed_per_core_s: float = 6.7  # texts of 550 characters a core-second: docs/performance.md, "Embedding"
    cores: float = 4.0  # of a machine
    machine_hour: float = 0.17  # what 4 cores cost an hour, in dollars: an assumption
    look: float = 12e-6  # a chunk's text cut and its key made, by whoever makes a shard: 6,000 chunks, busy machine, processor time
    tokenise: float = 8e-6  # an English text; Chinese takes ten times as long: ADR 13
    read: float = 19e-6  # a record read from its line, checked and noted: docs/performance.md, "Boot without a store"
    words: float = (
        185e-6  # a record put into the lexical lane: 6,000 records of 550 characters, busy machine, processor time
    )
    put: float = 133e-6  # a record of many in one write, without its vector: as `words`
    adopt: float = 121e-6  # a vector of a shard taken in, beside the sample: as `words`
    sample: int = 32  # texts of each shard that are embedded again: ADR 13
    model_start: float = 0.8  # until the first text is embedded: docs/performance.md
    truth_bytes: float = 817.0  # a record of one chunk in its line: as `words`
    vector_bytes: float = (
        1_486.0  # a vector of 384 numbers in a shard, or in the team's cache: 26 texts, the offline model
    )
    derived_bytes: float = 2_813.0  # a record's rows and lanes at a base's place: as `words`
    open_bytes: float = 1_800.0  # of memory, a record of a base that is open: docs/performance.md, "A million records"
    base_chunks: int = 1_000_000  # the largest base that was measured: docs/performance.md
    file_bytes: int = 512 * 1024 * 1024  # the largest shard: duckkb/index/team_cache.py
    batch: int = 64  # texts that a kill may cost
    hours_between_losses: float = 200.0  # of one machine: an assumption
    changed: int = 1_000  # records in a commit
    postgres_row: float = (
        0.82e-3  # by the clock, with its postings: bench/publish.py, 100,000 records of 100 words in 82 s
    )
    postgres_hnsw: float = 0.34e-3  # a row put into HNSW: the same with `ann: hnsw` in 116 s
    postgres_bytes: float = 19_500.0  # there: postings 16.2 kB, vector 2.1 kB, record 1.1 kB
    lance_row: float = 1.1e-3  # by the clock, with its postings: bench/publish.py --to lance:FOLDER, 100,000 records in 109 s, busy machine
    lance_bytes: float = 5_700.0  # there: postings 3.4 kB, vector 1.5 kB, record .8 kB
    storage_month: float = 0.023  # a GB of object storage a month, in dollars: an assumption


def plan(chunks: int, hours: float, costs: Costs) -> dict[str, Any]:
    """What so many chunks take, each a record of its own, if they are to be embedded within so many hours."""
    bases = math.ceil(chunks / costs.base_chunks)
    each = chunks / bases
    core_s = chunks / costs.embed_per_core_s
    machines = max(1, math.ceil(core_s / costs.cores / (hours * 3600)))
    by_file = math.ceil(each * costs.vector_bytes / costs.file_bytes)
    shards = max(by_file, math.ceil(machines / bases))
    looking = bases * shards * (each * (costs.read + costs.look) + costs.model_start)
    run_s = (core_s / costs.cores + looking) / min(machines, bases * shards)
    losses = machines * run_s / 3600 / costs.hours_between_losses
    lost_s = (
        each * (costs.read + costs.look) + costs.model_start + costs.batch / costs.embed_per_core_s / costs.cores / 2
    )
    adopting = each * (costs.look + costs.adopt) + shards * costs.sample / costs.embed_per_core_s / costs.cores
    changed = min(costs.changed, chunks)
    delta = changed * (costs.put + costs.words) + changed / costs.embed_per_core_s / costs.cores
    return {
        "chunks": chunks,
        "bases": bases,
        "truth_gb": chunks * costs.truth_bytes / 1e9,
        "vectors_gb": chunks * costs.vector_bytes / 1e9,
        "derived_gb": chunks * costs.derived_bytes / 1e9,
        "memory_gb_a_base": each * costs.open_bytes / 1e9,
        "core_hours": (core_s + looking) / 3600,
        "machines": machines,
        "shards_a_base": shards,
        "hours": (run_s + losses * lost_s / machines) / 3600,
        "read_share": 100 * looking * costs.cores / (core_s + looking * costs.cores),
        "losses": losses,
        "lost_s": lost_s,
        "dollars": machines * run_s / 3600 * costs.machine_hour,
        "adopt_h_a_base": adopting / 3600,
        "build_h_a_base": each * (costs.read + costs.tokenise + costs.words) / 3600,
        "commit_s": delta,
        "postgres_gb": chunks * costs.postgres_bytes / 1e9,
        "postgres_full_h": chunks * (costs.postgres_row + costs.postgres_hnsw) / 3600,
        "postgres_commit_s": changed * (costs.postgres_row + costs.postgres_hnsw),
        "lance_gb": chunks * costs.lance_bytes / 1e9,
        "lance_full_h": chunks * costs.lance_row / 3600,
        "lance_dollars_a_month": chunks * costs.lance_bytes / 1e9 * costs.storage_month,
    }


ROWS = (
    ("git repositories", "bases"),
    ("truth in git, GB", "truth_gb"),
    ("vectors in shards or the team's cache, GB", "vectors_gb"),
    ("lanes and rows on disk, GB", "derived_gb"),
    ("memory of one open base, GB", "memory_gb_a_base"),
    ("core-hours to embed", "core_hours"),
    ("machines", "machines"),
    ("shards of each base", "shards_a_base"),
    ("hours to embed", "hours"),
    ("of which read, to find a shard's texts, %", "read_share"),
    ("machines lost meanwhile", "losses"),
    ("seconds that each loss costs", "lost_s"),
    ("dollars to embed", "dollars"),
    ("hours to adopt one base", "adopt_h_a_base"),
    ("hours to build one base's words", "build_h_a_base"),
    ("a commit of 1,000 records, s", "commit_s"),
    ("PostgreSQL, GB", "postgres_gb"),
    ("PostgreSQL, published anew, h", "postgres_full_h"),
    ("PostgreSQL, that commit, s", "postgres_commit_s"),
    ("LanceDB, GB", "lance_gb"),
    ("LanceDB, published anew, h", "lance_full_h"),
    ("LanceDB, dollars a month", "lance_dollars_a_month"),
)


def table(plans: list[dict[str, Any]]) -> str:
    """The plans side by side, as Markdown."""
    lines = ["| chunks | " + " | ".join(f"{one['chunks']:,}" for one in plans) + " |", "|---" * (len(plans) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(_rounded(one[key]) for one in plans) + " |" for name, key in ROWS]
    return "\n".join(lines)


def _rounded(value: float) -> str:
    """To two digits, or to whole numbers where these are more."""
    digits = 1 - math.floor(math.log10(value)) if value else 0
    return f"{value:,.0f}" if digits <= 0 else f"{value:,.{digits}f}".rstrip("0").rstrip(".")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--json", action="store_true")
    for one in fields(Costs):
        parser.add_argument(f"--{one.name.replace('_', '-')}", type=type(one.default), default=one.default)
    given = vars(parser.parse_args())
    costs = Costs(**{one.name: given[one.name] for one in fields(Costs)})
    plans = [plan(int(size), given["hours"], costs) for size in given["sizes"].split(",")]
    print(json.dumps(plans) if given["json"] else table(plans))


if __name__ == "__main__":
    main()
