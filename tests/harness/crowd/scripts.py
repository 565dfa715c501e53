"""Programs that tests start in numbers: each is run as `python -c PROGRAM ARGUMENTS`."""

import os
import subprocess
import sys
from pathlib import Path

from tests.harness.forks import ROOT, SOURCES

PUT = """
import duckkb, sys
with duckkb.open(sys.argv[1], lock_timeout=600) as kb:
    for number in range(int(sys.argv[3])):
        kb.put('Note', {'id': f'{sys.argv[2]}-{number:03}', 'text': 'x' * 300})
"""

COUNT_UP = """
import duckkb, sys
from duckkb.types.errors import Conflict
kb, won = duckkb.open(sys.argv[1], lock_timeout=600), 0
while won < int(sys.argv[2]):
    seen = kb.get('Note', 'counter')
    try:
        kb.put('Note', {'id': 'counter', 'size': seen['size'] + 1}, if_match=seen['_etag'])
        won += 1
    except Conflict as error:
        assert error.code == 'E_STALE', error.code
"""

GENERATIONS = """
import duckkb, sys
kb = duckkb.open(sys.argv[1], lock_timeout=600)
for number in range(1, int(sys.argv[2]) + 1):
    changes = []
    for name in ('Note', 'Person', 'cites'):
        changes += [(name, row) for row in kb.list(name, limit=1000)]
    from duckkb import Change, Changeset, Record
    made = []
    for name, row in changes:
        fields = {key: value for key, value in row.items() if not key.startswith('_')}
        identity = {'Note': ['id'], 'Person': ['country', 'number'], 'cites': ['from', 'to']}[name]
        named = tuple(fields[key] for key in identity)
        times = row['__created_at'], row['__updated_at']
        mark = {'cites': 'why', 'Person': 'name', 'Note': 'title'}[name]
        made.append(Change(
            Record(name, row['__id'], named, fields, *times),
            Record(name, row['__id'], named, fields | {mark: str(number)}, *times),
        ))
    kb.apply(Changeset(tuple(made)))
    print(number, flush=True)
"""

READ_FILES = """
import json, sys
from pathlib import Path
root, last = Path(sys.argv[1]), sys.argv[2]
from duckkb.storage import commit_protocol as protocol
reads, seen = 0, set()
while last not in seen:
    with protocol.lock_for_reading(root, 600):
        texts = [path.read_text() for path in sorted((root / 'data').rglob('part_*.jsonl'))]
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    seen = {row.get('why') or row.get('name') or row.get('title') for row in rows}
    assert len(seen) == 1, f'mixed: {seen}'
    reads += 1
print(reads)
"""

READ_OPEN = """
import duckkb, sys
root, last = sys.argv[1], sys.argv[2]
reads, seen = 0, set()
kb = duckkb.open(root, lock_timeout=600)
while last not in seen:
    if reads % 3 == 0:
        kb.close()
        kb = duckkb.open(root, lock_timeout=600)
    rows = kb.sql('SELECT title FROM note UNION SELECT name FROM person UNION SELECT why FROM cites').rows
    seen = {row[0] for row in rows}
    assert len(seen) == 1, f'mixed: {seen}'
    reads += 1
print(reads)
"""


def start(program: str, *arguments: object, sources: Path = SOURCES) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(sources), str(ROOT)])}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        command, cwd=sources, env=environment, text=True, **pipes
    )  # -c imports from the folder first


def ended(process: "subprocess.Popen[str]") -> str:
    """What it printed, once it has ended well."""
    out, err = process.communicate(timeout=1200)
    assert process.returncode == 0, err[-2000:]
    return out
