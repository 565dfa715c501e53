"""The same records give the same bytes under any hash seed, any locale, and from several threads at once."""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from duckkb.storage.line import LineShape, encode
from tests.conftest import NOTES, make_base, tree_bytes

_SCRIPT = """
import duckkb, sys
from tests.fakes import FrozenClock
with duckkb.open(sys.argv[1], clock=FrozenClock("2026-01-02T03:04:05.000006Z")) as kb:
    kb.put("Note", [{"id": name, "z": {"b": 1, "a": 0.1}, "text": "İ ß 线 \\u2028"} for name in ("é", "z", "一", "A", "10", "9")])
    kb.put("cites", [{"from": "é", "to": "z"}, {"from": "一", "to": "10"}])
    hits = [(hit.identity, hit.score) for hit in kb.find("Note", "线", mode="match")]
    print(hits)
"""


@pytest.mark.long
def test_trees_do_not_depend_on_hash_seed_or_locale(tmp_path: Path) -> None:
    seen = set()
    for seed, locale in (("0", "C"), ("1", "C.UTF-8"), ("4711", "POSIX")):
        root = make_base(tmp_path / f"{seed}-{locale}", NOTES)
        env = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "LC_ALL": locale,
            "DUCKKB_WRITER": "w",
            "PYTHONIOENCODING": "utf-8",
        }
        done = subprocess.run([sys.executable, "-c", _SCRIPT, str(root)], env=env, capture_output=True, check=True)
        digest = hashlib.sha256(repr(sorted(tree_bytes(root).items())).encode()).hexdigest()
        seen.add((digest, done.stdout))
    assert len(seen) == 1


def test_encoding_from_many_threads_gives_the_same_bytes() -> None:
    records = [
        {"__id": 1, "id": f"n{number}", "b": {"y": [1.5, None], "x": "文"}, "a": number} for number in range(500)
    ]
    shape = LineShape(("id",))
    expected = [encode(record, shape) for record in records]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(4):
            assert list(pool.map(lambda record: encode(record, shape), records)) == expected
