"""What each page of a served base costs the server, at a million records: seconds of CPU of a warm server, for records with few edges and
for one with very many, for first pages and for those behind them.

usage: python bench/pages.py [--records N] [--repeats N] [--home FOLDER] [--only PAGE,...] [--most SECONDS] [--out FILE]

Seven of ten records are nodes, the others edges, of which a tenth of all records, at most 100,000, are at one node. Every page of the site is
asked, those that were added later too. CPU is that of the server's process and those that it starts; figures are medians after one round that
is not counted. With --home the base is made there once, and found there again. Ends with 1 where a page takes more than --most seconds.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from start import WORDS

import duckkb
from duckkb.server.web.site import PAGES
from tests.harness.reading_room import Elements
from tests.harness.servers import Server, ask, served

MOST_AT_ONE = 100_000
_CONFIG = """\
global: {embedding_model: none}
nodes:
  Item:
    table: item
    identity: id
    schema:
      type: object
      properties: {id: {type: string}, title: {type: string}, topic: {type: string}, size: {type: integer}, text: {type: string}}
      required: [id]
    search: {full_text: [title, text]}
edges:
  joins: {from: Item, to: Item, schema: {type: object, properties: {why: {type: string}}}}
"""
_PATIENCE_S = 900
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--most", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="duckkb-pages-") as folder:
        home = given.home or Path(folder, "kb")
        os.environ |= {"XDG_STATE_HOME": f"{home.parent}/state", "XDG_CACHE_HOME": f"{home.parent}/cache"}
        if not (home / "config.yaml").exists():
            make_base(home, given.records)
        with served(home, "serve", "--open", "--log", "off", log=Path(folder, "log")) as server:
            taken = _measured(server, given.records, given.repeats, frozenset(filter(None, given.only.split(","))))
            memory = server.memory_kib / 1024
    print("| page | CPU ms | ms | status | bytes |\n|---|---|---|---|---|")
    slow = []
    for name, (cpu, clock, status, size) in taken.items():
        slow += [name] if cpu > given.most else []
        print(f"| {name} | {cpu * 1000:.0f} | {clock * 1000:.0f} | {status} | {size:,} |")
    print(
        f"\n{given.records:,} records; the server holds {memory:,.0f} MiB at the end; {len(slow)} above {given.most:g} s: {slow}"
    )
    if given.out:
        given.out.write_text(
            json.dumps({"records": given.records, "pages": taken, "mib": memory}, indent=1) + "\n", "utf-8"
        )
    return 1 if slow else 0


def make_base(home: Path, records: int) -> None:
    """A base with two commits, of which the second changes one record."""
    home.mkdir(parents=True)
    (home / "config.yaml").write_text(_CONFIG, "utf-8")
    nodes = records * 7 // 10
    for name, lines in (("Item", _nodes(nodes)), ("joins", _edges(nodes, records - nodes))):
        source = home.parent / f"{name}.jsonl"
        with source.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        with duckkb.open(home) as kb:
            kb.import_files(name, source)
        source.unlink()
    git = ("git", "-C", str(home), "-c", "user.name=bench", "-c", "user.email=bench@example.org")
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "all records"]):
        subprocess.run([*git, *command], check=True)
    with duckkb.open(home) as kb:
        kb.put("Item", {"id": _name(7), "title": "changed", "text": "a river that changed"})
        kb.find("all", "river", mode="match")  # makes the lane, which takes minutes at a million
    subprocess.run([*git, "commit", "-q", "-a", "-m", "one changed"], check=True)


def _name(number: int) -> str:
    return f"i{number:07}"


def _nodes(count: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(1)
    for number in range(count):
        text = " ".join(rng.choices(WORDS, k=12))
        if number % 100_000 == 5:
            text += f" duckkb://Item/{_name(0)}"
        yield {"id": _name(number), "title": f"item {number}", "topic": f"t{number % 10}", "size": number, "text": text}


def _edges(nodes: int, count: int) -> Iterator[dict[str, Any]]:
    at_one = min(MOST_AT_ONE, count // 3)
    for number in range(count):
        first = 0 if number < at_one else number % (nodes - 2) + 1
        second = number + 1 if number < at_one else (number * 7 + 3) % nodes
        yield {"from": _name(first), "to": _name(second), "why": f"w{number % 5}"}


def _places(records: int) -> Mapping[str, Mapping[str, str]]:
    """What pages are asked with, by a name."""
    edge = json.dumps([_name(0), _name(9)], separators=(",", ":"))
    middle = _name(records * 7 // 20)
    around = {"name": "text", "q": "river stone"}
    return {
        "nothing": {},
        "a node": {"type": "Item", "id": _name(7), **around},
        "a node of very many edges": {"type": "Item", "id": _name(0), **around},
        "an edge": {"type": "joins", "id": edge, **around},
        "behind the middle": {"type": "Item", "id": _name(0), "after": middle, "page": "10", **around},
        "edges behind the middle": {"type": "joins", "id": edge, "after": json.dumps([_name(0), middle])},
        "a filter": {"type": "Item", "id": _name(7), "f.topic": "t3", "f.size.to": "1000"},
        "all types": {"type": "all", "id": _name(7), "q": "river"},
        "many around": {"type": "Item", "id": _name(0), "depth": "3", "limit": "500", "label": "joins"},
    }


def _measured(server: Server, records: int, repeats: int, only: frozenset[str]) -> dict[str, Any]:
    """By page and place: seconds of CPU and by the clock, the status, and the bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_PATIENCE_S)
    opened, _ = ask(connection, "GET", server.told["open"].removeprefix(server.told["url"]))
    cookie = {"cookie": opened.getheader("set-cookie", "").partition(";")[0]}
    taken: dict[str, Any] = {}
    for page in PAGES:
        if only and page.address not in only:
            continue
        seen: set[tuple[int, bytes]] = set()
        for place, given in _places(records).items():
            address = f"/web/{page.address}?{urlencode(given)}"
            rounds = []
            for _ in range(repeats + 1):
                before, began = _cpu(server.process.pid), time.perf_counter()
                answer, body = ask(connection, "GET", address, headers=cookie)
                rounds.append((_cpu(server.process.pid) - before, time.perf_counter() - began))
            cpu, clock = (statistics.median(one) for one in zip(*rounds[1:], strict=True))
            if answer.status == 200 and (answer.status, body) not in seen:
                taken[f"{page.address}, {place}"] = cpu, clock, answer.status, len(body)
                following = next(
                    (str(one["href"]) for one in Elements(body.decode()).of("a") if one.get("rel") == "next"), ""
                )
                if following:
                    before, began = _cpu(server.process.pid), time.perf_counter()
                    answer, body = ask(connection, "GET", following, headers=cookie)
                    figures = _cpu(server.process.pid) - before, time.perf_counter() - began, answer.status, len(body)
                    taken[f"{page.address}, {place}, next"] = figures
            seen.add((answer.status, body))
            print(address, [f"{one:.2f}/{other:.2f}" for one, other in rounds], answer.status, file=sys.stderr)
    return taken


def _cpu(pid: int) -> float:
    """Of a process and those that it started, also where they have ended."""
    total = 0.0
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rsplit(")", 1)[1].split()
        total += sum(map(int, fields[11:15])) / _TICKS
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split():
            total += _cpu(int(child))
    return total


if __name__ == "__main__":
    sys.exit(main())
