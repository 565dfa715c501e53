"""Wrong commands of all kinds: the command that each error suggests runs as it is printed, and leads on."""

import json
import re
import shutil
from pathlib import Path

import pytest

import duckkb
from tests.conftest import commit, git, make_base, run_in
from tests.doors.shell import run_script

EDGES = """edges:
  filed_by: {from: tickets, to: faq}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base with records, an edge, documents, a branch, and beside it files to import and a backup."""
    folder = tmp_path_factory.mktemp("wrong")
    root = make_base(folder / "kb", "global: {embedding_model: none}\n")
    with duckkb.open(root) as kb:
        kb.collections.init("faq", policy="knowledge-base")
        kb.collections.init("tickets", policy="knowledge-base")
        kb.put("faq", [{"id": f"f{n}", "content": "How a refund is paid.", "topic": "billing"} for n in (1, 2)])
        kb.put("tickets", {"id": "t 1", "content": "The lag of kafka grows; when is a refund paid?"})
    (root / "ontology" / "edges.yaml").write_text(EDGES)
    (root / "runbooks").mkdir()
    (root / "runbooks" / "lag.md").write_text("---\nowner: data\n---\n# Kafka lag\n\nDrain the queue.\n")
    (root / "pages").mkdir()
    (root / "pages" / "a.md").write_text("# A page\n")
    for args in (["put", "filed_by", '{"from": "t 1", "to": "f1"}'], ["collection", "add", "runbooks"], ["update"]):
        assert run_in(root, args).code == 0
    commit(root)
    git(root, "branch", "topic")
    (folder / "faq.jsonl").write_text('{"id": "f1", "content": "How a refund is paid.", "topic": "billing"}\n')
    for file in (["../base.backup"], []):
        assert run_in(root, ["backup", "create", *file]).code == 0
    return folder


WRONG = """
search "kafka lag" -w "owner='data'"
query "kafka lag" --where "owner='data'" -l 2
vsearch "kafka lag" --filter "owner = 'data'" --json
query "kafka lag" --type runbooks
query "kafka lag" --type faq
query "kafka lag" --mode match
query "kafka lag" --fields title
search kafka lag
search refund faq
ls faq
rename faq/f1 faq/f9 --dry-run
mcp config CURSOR
search kafka --top 3
search kafka --nonsense
find "kafka lag"
find "kafka lag" -n 3
find faqs refund
find faq,runbooks refund
find faq refund --top 3
find faq refund --sort topic
find faq refund --mode match
find faq refund --min-score 0.3
find faq refund -c faq
find faq refund --files
find faq refund billing
find faq refund --limit all
find faq -w "topic='billing'" --count
list faq --order topic
list faq --offset 10
list faq --where "topic='billing'"
get f1
get faq/f1
get faq:f1
get runbooks/lak.md
get nothing-like-it
show faq f1
cat runbooks/lag.md
blame faq/f1
blame f1
log
log f1
history faq f1
rename faq/f2 f3
delete faq/f2
delete faq f1
delete faq --all
delete faq --where "topic='none'"
graph
graph faq f1
graph neighbors faq/f1
graph neighbors faq f1 --type tickets
graph neighbors faq f1 --hops 2
graph path "tickets/t 1" faq/f1
collections
collections list
collection list runbooks
collection add faq
collection create pages
collection create papers pages
collection add runbooks
collection delete runbooks --dry-run
collection rename runbooks
col create x
col add foo
col list faq
col delete faq
tables
tables list
types
diff topic HEAD
diff topic --type faq
check faq
check --fix
dedupe faq
fix
lint
merge
branches list
import faq
import pages
import ../faq.jsonl
import faq --file ../faq.jsonl
import --type faq ../faq.jsonl
load faq ../faq.jsonl
put faq ../faq.jsonl
put faq --file ../faq.jsonl
put faq id=f1 topic=billing
put nofaq '{"id": "x"}'
edit faq f1 '{"topic": "refunds"}'
memory get phone
memory list
pack refund -c faq
pack refund -n 3 --nope
pack refund money
why refund
restore ../base.backup
backup
backup ../other.backup
backup verify
restore
index
index rebuild
index embed
index plan --full
config
config get global.fusion
config set global.fusion rrf
settings
models
models pull
model list
mcp config nobody
mcp install
skill
tenant create x
arch
serve x
reindex
sync
commit -m x
sql "delete from faq"
sql "select * from faqs"
sql "select sum(topic) from faq"
"kafka lag" "how long"
embed --all
embed "hello" --model x
update runbooks --embed
watch --once
scheduler
put faq '{"id": "f1"}' --branch b
search refund -c faq
import ../faq.jsonl
diff main topic
""".strip().splitlines()
BEYOND = ("serve", "duckkb mcp", "embed", "git ", "duckkb index build")
"""Suggestions that run until they are stopped, need a model, or ask a repository for what this one has not."""


@pytest.mark.long
@pytest.mark.parametrize("line", WRONG)
def test_what_an_error_suggests_is_a_command_that_works(whole: Path, tmp_path: Path, line: str) -> None:
    shutil.copytree(whole, tmp_path / "w", symlinks=True)
    root = tmp_path / "w" / "kb"
    ran = run_script(f"duckkb {line}", root)
    if ran.returncode == 0:
        return  # it is taken as it was meant
    suggestion = ran.stderr.splitlines()[-1].partition("try: ")[2] or suggestion_in_json(ran.stderr)
    command = next(iter(re.findall(r"`(duckkb [^`]+)`", suggestion)), suggestion)
    assert re.match("duckkb |git |echo ", command) and not command.endswith("--help"), ran.stderr
    if any(word in command for word in BEYOND):
        return
    done = run_script(command, root)
    assert done.returncode == 0 or done.stdout or is_an_answer(done.stderr), (suggestion, done.stderr)


def suggestion_in_json(stderr: str) -> str:
    told = json.loads(stderr.splitlines()[-1])
    return str(told["suggestion"])


def is_an_answer(stderr: str) -> bool:
    """Whether a command did not fail, but found nothing, or asks to be sure before it deletes."""
    return any(
        words in stderr for words in ("no results", "no branch has", "--yes", "--cascade", "exists already", "no scope")
    )
