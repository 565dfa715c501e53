"""What the pages of a served base cost beside the bare search: the action `find` over HTTP, the page of search with the same question, and
its first paint in a browser; likewise `get` and the page of a record.

usage: python bench/room.py [--records N] [--repeats N] [--out FILE]

All are asked in turn of one server, after two rounds that are not counted. Figures are medians by the clock, and their ratios to the bare
action. A paint is the browser's own measure, `first-contentful-paint`, from the start of the navigation. Ends with 1 where a ratio is above
its goal.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from start import make_base

from duckkb.server.web.templates import files
from tests.browser import Page, browsing, chromium
from tests.harness.servers import ask, served

QUESTIONS = ("river stone", "a mountain of glass", "where the water runs", "the old wall")
GOALS = {"page of search": 2.0, "first paint of search": 6.0, "page of a record": 20.0, "first paint of a record": 60.0}
_ROUNDS_BEFORE = 2
_PATIENCE_S = 600  # the first search of a server reads lanes and a model
_MOST_BYTES = 300_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    browser = chromium()
    if browser is None:
        parser.error("a Chromium is needed: apt-get install -y chromium")
    with tempfile.TemporaryDirectory(prefix="duckkb-room-") as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        home = Path(folder, "kb")
        make_base(home, given.records)
        with served(home, "serve", "--open", log=Path(folder, "log")) as server, browsing(browser) as tab:
            taken = _measured(server, tab, given.repeats)
            size = _size(server, tab)
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    print("| what | ms | ratio | goal |\n|---|---|---|---|")
    missed = []
    for name, seconds in medians.items():
        ratio = seconds / medians["find" if "search" in name or name == "find" else "get"]
        missed += [name] if ratio > GOALS.get(name, ratio) else []
        print(f"| {name} | {seconds * 1000:.1f} | {ratio:.2f} | {GOALS.get(name, '')} |")
    print(f"\na page without its data, with all files that pages load: {size:,} bytes of at most {_MOST_BYTES:,}")
    missed += ["bytes"] if size > _MOST_BYTES else []
    if given.out:
        given.out.write_text(
            json.dumps({"records": given.records, "medians": medians, "bytes": size}, indent=1) + "\n", "utf-8"
        )
    return 1 if missed else 0


def _measured(server: Any, tab: Page, repeats: int) -> Mapping[str, list[float]]:
    """Seconds of each way, one for each repeat."""
    root, token = server.told["url"], Path(server.told["token"]).read_text("utf-8").strip()
    tab.visit(server.told["open"])
    (cookie,) = tab._send("Network.getCookies", urls=[f"{root}/web/"])["cookies"]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_PATIENCE_S)

    def action(name: str, given: Mapping[str, Any]) -> float:
        _opened_anew(connection)
        return _seconds(lambda: ask(connection, "POST", f"/actions/{name}", token, given))

    def page(address: str) -> float:
        _opened_anew(connection)
        return _seconds(
            lambda: ask(connection, "GET", address, headers={"cookie": f"{cookie['name']}={cookie['value']}"})
        )

    def paint(address: str) -> float:
        tab.visit(root + address)
        tab.wait(lambda: tab.run("performance.getEntriesByName('first-contentful-paint').length"))
        painted: float = tab.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        return painted / 1000

    taken: dict[str, list[float]] = {}
    for number in range(-_ROUNDS_BEFORE, repeats):
        question, record = QUESTIONS[number % len(QUESTIONS)], f"r{1 + number % 50}"
        search = f"/web/search?{urlencode({'q': question, 'type': 'Text'})}"
        shown = f"/web/record?{urlencode({'type': 'Text', 'id': record})}"
        once = {
            "find": action("find", {"type": "Text", "query": question, "limit": 10, "explain": True}),
            "page of search": page(search),
            "first paint of search": paint(search),
            "get": action("get", {"type": "Text", "identity": record}),
            "page of a record": page(shown),
            "first paint of a record": paint(shown),
        }
        for name, seconds in once.items() if number >= 0 else ():
            taken.setdefault(name, []).append(seconds)
    return taken


def _opened_anew(connection: http.client.HTTPConnection) -> None:
    """A server closes connections that are idle, as while a page is painted."""
    connection.close()
    connection.connect()


def _size(server: Any, tab: Page) -> int:
    """Bytes of the page of search before anything is asked, and of every file that pages load."""
    connection = server.connection()
    cookie = next(iter(tab._send("Network.getCookies", urls=[f"{server.told['url']}/web/"])["cookies"]))
    _, body = ask(connection, "GET", "/web/search", headers={"cookie": f"{cookie['name']}={cookie['value']}"})
    return len(body) + sum(map(len, files().values()))


def _seconds(act: Callable[[], tuple[Any, bytes]]) -> float:
    began = time.perf_counter()
    answer, _ = act()
    seconds = time.perf_counter() - began
    if answer.status != 200:
        raise subprocess.SubprocessError(f"the server answered {answer.status}")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
