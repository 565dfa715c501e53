"""Lines of git, gh, kubectl, docker, sqlite-utils, psql, grep and jq: the command that the error prints does what was meant."""

import json
import re
import shutil
from pathlib import Path

import pytest

import duckkb
from tests.conftest import commit, git, make_base, run_in
from tests.doors.shell import run_script

EDGES = """edges:
  filed_by: {from: tickets, to: people}
"""
RECORDS = {
    "faq": [
        {"id": f"f{n}", "content": "How a refund is paid.", "topic": topic} for n, topic in ((1, "pay"), (2, "api"))
    ],
    "tickets": [{"id": "T-1", "content": "When is a refund paid?"}, {"id": "T-2", "content": "The lag grows."}],
    "people": [{"id": "C-1", "content": "Ann"}, {"id": "C-2", "content": "Bob"}],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base with records, an edge, documents and two branches, and beside it files to import."""
    folder = tmp_path_factory.mktemp("tools")
    root = make_base(folder / "kb", "global: {embedding_model: none}\n")
    with duckkb.open(root) as kb:
        for name, records in RECORDS.items():
            kb.collections.init(name, policy="knowledge-base")
            kb.put(name, records)
    (root / "ontology" / "edges.yaml").write_text(EDGES)
    (root / "runbooks").mkdir()
    (root / "runbooks" / "lag.md").write_text("---\nowner: data\n---\n# Kafka lag\n\nDrain the queue.\n")
    for args in (["put", "filed_by", '{"from": "T-1", "to": "C-1"}'], ["collection", "add", "runbooks"], ["update"]):
        assert run_in(root, args).code == 0
    commit(root)
    assert run_in(root, ["put", "faq", '{"id": "f1", "topic": "billing"}', "--merge"]).code == 0
    commit(root)
    proposed = ["propose", "--branch", "fix", "put", "faq", '{"id": "f2", "topic": "new"}', "--merge"]
    assert run_in(root, proposed).code == 0
    (folder / "faq.jsonl").write_text('{"id": "f3", "content": "A third.", "topic": "pay"}\n')
    (folder / "papers").mkdir()
    (folder / "papers" / "a.md").write_text("# A paper\n")
    return folder


OF_ONE = "sql \"SELECT topic, count(*) AS count FROM faq WHERE id = 'f2' GROUP BY topic ORDER BY count DESC\""
LINES = [
    # a line, the command that it leads to, and what that prints
    ("faq", "list faq", '"f1"'),
    ("faq f1", "get faq f1", '"f1"'),
    ("faq list", "list faq", '"f1"'),
    ("faq refund", "find faq refund", '"f1"'),
    ("tickets --where \"id='T-2'\"", "list tickets --where \"id='T-2'\"", '"T-2"'),
    ("find refund faq", "find faq refund", '"f1"'),
    ("find refund in faq", "find faq refund", '"f1"'),
    (
        "find faq,tickets refund -l 9",
        'find all refund -l 9 -l 1000000 | jq -sc \'[.[] | select(._type | IN("faq", "tickets"))][:9][]\'',
        '"T-1"',
    ),
    ("find faq refund --offset 1", "find faq refund -l 11 | tail -n +2", '"id"'),
    ("find faq refund --page 2 -l 1", "find faq refund -l 2 | tail -n +2", '"id"'),
    ("query lag --page 2", "query lag -l 10 | tail -n +6", ""),
    ("backup restore latest", "backup restore FILE", ""),
    ("diff faq f1 HEAD~1", "log faq f1", '"commit"'),
    ("get faq f1 f2 --fields topic", "list faq -w \"id IN ('f1', 'f2')\" --fields topic", '"api"'),
    ("sql --file ../q.sql", "sql < ../q.sql", ""),
    ("find faq refund --mode fuzzy", "find faq refund --hybrid", ""),
    ("find all refund --type faq", "find faq refund", '"f1"'),
    ("list faq -o ../out.jsonl", "list faq > ../out.jsonl", ""),
    ("sql 'show databases'", "col list", '"faq"'),
    ("sql 'describe ticket'", "sql 'describe tickets'", '"id"'),
    ("sql 'select id form faq limit 1'", "sql 'select id FROM faq limit 1'", '"f1"'),
    (
        "sql 'DELETE FROM faq'",
        "export faq | jq -r .id | xargs -r -d '\\n' duckkb delete faq --cascade --allow-shrink --dry-run",
        '"deleted":2',
    ),
    (
        "sql \"DELETE FROM faq WHERE topic = 'billing'\"",
        "find faq -w \"topic='billing'\" --fields id -l 1000000 | jq -r .id | xargs -r -d '\\n' duckkb delete faq --dry-run",
        '"deleted":1',
    ),
    (
        "sql \"UPDATE faq SET topic = 'x' WHERE id = 'f1'\"",
        'list faq -w "id=\'f1\'" --fields id -l 1000000 | jq -c \'{id, "topic": "x"}\' | duckkb put faq --batch --merge --dry-run',
        '"updated":1',
    ),
    ("export faq --where \"id = 'f1'\"", "list faq --where \"id = 'f1'\" -l 1000000", '"f1"'),
    ("export faq --fields id -o ../f.csv", "list faq --fields id --format csv -l 1000000 > ../f.csv", ""),
    ("collection add ../papers --glob '*.md'", "collection add ../papers --mask '*.md'", '"documents":1'),
    ("mcp config cursor --global", "mcp config cursor", "duckkb"),
    ("tenant add bob --role writer", "tenant add bob --role editor", '"role":"editor"'),
    ("tenant add bob --role nobody", "tenant add bob --role viewer", '"role":"viewer"'),
    ("backup verify", "backup create", '"file"'),
    ("recover --dry-run", "recover --show", '"state"'),
    ("config show --key embedding_model", "config show | jq -c ", '"none"'),
    ("publish lance:../out", "publish --to lance:../out", ""),
    ("index build --model bge", "index migrate --to bge --dry-run", ""),
    ("search faq refund", "find faq refund", '"f1"'),
    ("grep -c refund faq", "find faq refund", '"f1"'),
    ('grep -rn "kafka lag" runbooks/', "find runbooks 'kafka lag'", "lag.md"),
    ("grep -l refund", "find all refund", '"f1"'),
    ("match faq refund", "find faq refund", '"f1"'),
    ("find faq -name refund", "find faq refund", '"f1"'),
    ("find faq --contains refund", "find faq --match refund", '"f1"'),
    ("why faq refund", "find faq refund --explain", '"f1"'),
    ("why f1 refund", "why faq f1 refund", "f1"),
    ("why faq refund f1", "why faq f1 refund", "f1"),
    ("explain faq f1 refund", "why faq f1 refund", "f1"),
    ("pack faq refund", "pack refund --type faq", "refund"),
    ("describe faq f1", "get faq f1", '"f1"'),
    ("inspect faq", "schema faq", '"title":"faq"'),
    ("get faq f1 topic", "get faq f1 --fields topic", "billing"),
    ("get faq f1 f2", "list faq -w \"id IN ('f1', 'f2')\"", '"f2"'),
    ("get tickets -l id=T-1", "list tickets -w \"id='T-1'\"", '"T-1"'),
    ("get faq f1@HEAD~1", "get faq f1 --at 'HEAD~1'", '"pay"'),
    ("show HEAD~1:faq/f1", "get faq f1 --at 'HEAD~1'", '"pay"'),
    ("get faq f1 --version HEAD~1", "get faq f1 --at 'HEAD~1'", '"pay"'),
    ("get f1 faq", "get faq f1", '"f1"'),
    ("find faq topic = api", "list faq -w \"topic='api'\"", '"f2"'),
    ("where faq \"topic='api'\"", "list faq -w \"topic='api'\"", '"f2"'),
    ("list faq id,topic", "list faq --fields id,topic", '"f1"'),
    ("list faq 1", "list faq -l 1", '"f1"'),
    ("list faq --page 2", "list faq -l 200 | tail -n +101", ""),
    ("list faq --page 2 -l 1", "list faq -l 2 | tail -n +2", '"f2"'),
    (
        "list faq --page 2 -l 1 --fields id --format csv",
        "sql 'SELECT id FROM faq ORDER BY id LIMIT 1 OFFSET 1' --format csv",
        "f2",
    ),
    ("list faq --desc topic", "sql 'SELECT * FROM faq ORDER BY topic DESC LIMIT 10'", '"billing"'),
    ("wc -l faq", "count faq", '"count":2'),
    ("head -n 1 faq", "list -n 1 faq", '"f1"'),
    ("tail faq", "sql 'SELECT * FROM faq ORDER BY __updated_at DESC LIMIT 10'", '"f2"'),
    (
        "distinct faq topic",
        "sql 'SELECT topic, count(*) AS count FROM faq GROUP BY topic ORDER BY count DESC'",
        '"topic":"api","count":1',
    ),
    (
        "count faq by topic",
        "sql 'SELECT topic, count(*) AS count FROM faq GROUP BY topic ORDER BY count DESC'",
        '"topic":"api","count":1',
    ),
    ("jq .topic faq", "export faq | jq -c .topic", '"billing"'),
    ("psql -c 'select 1 AS n'", "sql 'select 1 AS n'", '{"n":1}'),
    ("exec faq", "sql 'SELECT * FROM faq LIMIT 10'", '"f1"'),
    ("count faq --by topic -w \"id = 'f2'\"", OF_ONE, '"topic":"api","count":1'),
    ("count faq --group-by topic -w \"id = 'f2'\" --format csv", OF_ONE + " --format csv", "api,1"),
    ("list faq -w \"id = 'f2'\" --group-by topic", OF_ONE, '"topic":"api","count":1'),
    ("group faq topic -w \"id = 'f2'\"", OF_ONE, '"topic":"api","count":1'),
    (
        "count faq --by topic --at HEAD~1",
        "list faq --at 'HEAD~1' --fields topic -l 1000000 | jq",
        '"topic":"pay","count":1',
    ),
    (
        "list faq -w \"id > 'a'\" --order-by 'topic desc' -l 1",
        "sql \"SELECT * FROM faq WHERE id > 'a' ORDER BY topic DESC LIMIT 1\"",
        '"billing"',
    ),
    ("list faq --sort -topic -l 1", "sql 'SELECT * FROM faq ORDER BY topic DESC LIMIT 1'", '"billing"'),
    ("find faq refund -m --sort id -l 2", "find faq refund -m -l 2 | jq -sc 'sort_by(.id)[]'", '"f2"'),
    ("find 'kafka lag' -m -l 2", "find all 'kafka lag' -m -l 2", "lag.md"),
    ("find refund -l 9 --fields topic", "find all refund -l 9 --fields topic", '"f1"'),
    ("find nosuch refund -m -l 9", "find all refund -m -l 9", '"f1"'),
    ("find faq", "list faq", '"f1"'),
    ("find faq '' -l 1", "list faq -l 1", '"f1"'),
    ("log faq f1 -n 1", "log faq f1 | head -n 1", '"commit"'),
    ('select "* from faq limit 1"', "sql 'select * from faq limit 1'", '"f1"'),
    ('select "id from faq"', "sql 'select id from faq'", '"f1"'),
    ('select "id" "from faq"', "sql 'select id from faq'", '"f1"'),
    ('select count "x from y"', "sql 'select count x from y'", ""),
    ("graph path tickets T-1 T-2", "graph path tickets T-1 tickets T-2", ""),
    ("graph neighbors filed_by T-1", "graph neighbors tickets T-1", '"C-1"'),
    ("delete filed_by T-1 C-1", 'delete filed_by \'["T-1", "C-1"]\'', '"deleted":1'),
    ("log filed_by T-1 C-1", 'log filed_by \'["T-1", "C-1"]\'', '"commit"'),
    ("delete filed_by T-1", "list filed_by -w", '"C-1"'),
    ("diff HEAD~1..HEAD faq", "diff 'HEAD~1..HEAD' -- faq", "faq f1"),
    ("diff faq", "diff -- faq", ""),
    ("get faq f1 --at yesterday", "git log --oneline -n 10", ""),
    ("get faq f1 --at deadbeef", "git log --oneline -n 10", ""),
    ("check --fix", "fmt", ""),
    ("insert into faq", 'put faq \'{"id": "..."}\' --dry-run', '"..."'),
    ('insert into faq \'{"id": "x"}\'', 'put faq \'{"id": "x"}\'', '"inserted":1'),
    ("put faq id=f1 topic=x", 'put faq \'{"id": "f1", "topic": "x"}\' --merge', '"updated":1'),
    ('put faq --merge \'{"id": "f1" "topic": "x"}\'', 'put faq \'{"id": "f1", "topic": "x"}\' --merge', '"updated":1'),
    ("propose put faq id=f1 topic=x", 'propose put faq \'{"id": "f1", "topic": "x"}\' --merge', '"branch"'),
    ('propose put faqs \'{"id": "f1"}\' --merge', 'propose put faq \'{"id": "f1"}\' --merge', '"branch"'),
    ("propose put faq </dev/null", 'propose put faq \'{"id": "..."}\' --dry-run', '"..."'),
    (
        "propose --branch b edit faq f1 topic=z",
        'propose --branch b put faq \'{"id": "f1", "topic": "z"}\' --merge',
        '"b"',
    ),
    ("propose put faq f1 topic=z", 'propose put faq \'{"id": "f1", "topic": "z"}\' --merge', '"branch"'),
    ("propose delete faq", "list faq", '"f1"'),
    ("propose 'mend the refunds'", "propose -m 'mend the refunds' put", '"..."'),
    ("import docs '../papers/*.md'", "collection add ../papers --name docs", '"docs"'),
    ("import docs ../papers/a.md", "collection add ../papers --name docs", '"docs"'),
    ("show_tables_of faq", "find all 'show_tables_of faq'", ""),
    ("list types", "schema", '"faq"'),
    ("list collections", "col list", '"faq"'),
    ("schema list", "schema", '"faq"'),
    ("schema show faq", "schema faq", '"title":"faq"'),
    ("\\\\d faq", "schema faq", '"title":"faq"'),
    ("graph path T-1 C-1", "graph path tickets T-1 people C-1", '"C-1"'),
    ("graph shortest-path tickets T-1 people C-1", "graph path tickets T-1 people C-1", '"C-1"'),
    ("graph neighbors T-1", "graph neighbors tickets T-1", '"C-1"'),
    ("links tickets T-1", "graph neighbors tickets T-1", '"C-1"'),
    ("insert faq ../faq.jsonl --pk id", "import faq ../faq.jsonl --id id", '"inserted":1'),
    ("create -f ../faq.jsonl", "import faq ../faq.jsonl", '"inserted":1'),
    ("apply -f ../faq.jsonl", "import faq ../faq.jsonl", '"inserted":1'),
    ("import ../faq.jsonl faq", "import faq ../faq.jsonl", '"inserted":1'),
    ("import faq ../faq.jsonl --delimiter ,", "import faq ../faq.jsonl --dry-run", "f3"),
    ("import runbooks runbooks", "update runbooks", '"documents":1'),
    ("import docs ../papers", "collection add ../papers --name docs", '"docs"'),
    ('put faqs \'{"id": "x"}\'', 'put faq \'{"id": "x"}\'', '"inserted":1'),
    ('put faq -d \'{"id": "x"}\'', 'put faq \'{"id": "x"}\'', '"inserted":1'),
    ('put faq \'{"id": "x"\'', 'put faq \'{"id": "x"}\'', '"inserted":1'),
    ("put faq {bad", 'put faq \'{"id": "bad"}\' --dry-run', "bad"),
    ("put filed_by T-1 C-2", 'put filed_by \'{"from": "T-1", "to": "C-2"}\'', '"inserted":1'),
    ('put filed_by \'{"src": "T-1", "dst": "C-2"}\'', 'put filed_by \'{"from": "T-1", "to": "C-2"}\'', '"inserted":1'),
    ('put filed_by \'{"from": "T-2"}\'', 'put filed_by \'{"from": "T-2", "to": "C-1"}\' --dry-run', "T-2"),
    ("link tickets T-2 people C-2", 'put filed_by \'{"from": "T-2", "to": "C-2"}\'', '"inserted":1'),
    ('patch faq f1 -p \'{"topic": "x"}\'', 'put faq \'{"id": "f1", "topic": "x"}\' --merge', '"updated":1'),
    ("rename faq f1 to f9", "rename faq f1 f9", '"updated":1'),
    ("create table notes", "col init notes --policy knowledge-base", '"notes"'),
    ("delete f2", "delete faq f2", '"deleted":1'),
    ("delete tickets T-1 --force", "delete tickets T-1 --cascade --dry-run", "filed_by"),
    ("truncate tickets", "export tickets | jq -r .id | xargs -r -d '\\n' duckkb delete tickets --cascade", "filed_by"),
    ("show HEAD", "diff 'HEAD~1..HEAD'", "f1"),
    ("show fix", "diff 'fix~1..fix'", "f2"),
    ("diff HEAD~1 --stat faq", "diff 'HEAD~1' --stat", "faq"),
    ("diff faq f1", "log faq f1", '"commit"'),
    ("blame data/faq.jsonl", "list faq", '"f1"'),
    ("add .", "git add .", ""),
    ("git log", "git log", "commit"),
    ("cherry-pick fix", "git cherry-pick fix", ""),
    ("pr list", "branches", '"fix"'),
    ("pr view fix", "review fix", "passed"),
    ("pr diff fix", "diff HEAD...fix", "f2"),
    ("pr merge fix", "merge fix", '"action"'),
    ("proposal list", "branches", '"fix"'),
    ("list branches", "branches", '"fix"'),
    ("review pr", "git branch -a", "fix"),
    ("issue list", "check", ""),
    ("repo view", "status", '"revision"'),
    ("man find", "help find", "Usage"),
    ("find --hlep", "help find", "Usage"),
    ("tutorial", "--skill", "duckkb"),
    ("completion bash", "env _DUCKKB_COMPLETE=bash_source duckkb", "_duckkb_completion"),
    ("system df", "growth", '"types"'),
    ("gc", "cleanup --dry-run", ""),
    ("collection sync runbooks", "update runbooks", '"documents":1'),
    ("build .", "index build", ""),
    ("ls faq -n 1", "list faq -n 1", '"f1"'),
    ("stats faq", "count faq", '"count":2'),
    ("explain refund", "find all refund --explain", '"f1"'),
    ("vector search faq refund", "find faq refund -s", ""),
    ("conflicts list", "resolve --list", ""),
    ("dump", "backup create", '"file"'),
    ("config get global.embedding_model", "config show | jq -c ", '"none"'),
    ("config set global.embedding_model x", "config show | jq -c ", '"none"'),
    ("put faq id:f9 topic:new", """put faq '{"id": "f9", "topic": "new"}'""", '"inserted":1'),
    ("count faq -w 'topic is billing'", """count faq -w "topic = 'billing'" """.strip(), '"count":1'),
    ("review --base HEAD~1", "review 'HEAD~1..HEAD'", "passed"),
    ("repair --force", "repair", ""),
    ("trust --accept", "trust", '"trusted"'),
    ("migrate --model bge", "index migrate --to bge", ""),
]


@pytest.mark.long
@pytest.mark.parametrize(("line", "meant", "output"), LINES, ids=[line for line, *_ in LINES])
def test_a_line_of_another_program_is_answered_with_the_command_that_does_it_here(
    whole: Path, tmp_path: Path, line: str, meant: str, output: str
) -> None:
    shutil.copytree(whole, tmp_path / "w", symlinks=True)
    root = tmp_path / "w" / "kb"
    ran = run_script(f"duckkb {line}", root)
    command = ran.stderr.strip().rpartition("try: ")[2]
    is_of_shell = meant.startswith(("git ", "env "))
    assert (
        ran.returncode
        and not ran.stdout.startswith("{")
        and command.startswith(meant if is_of_shell else f"duckkb {meant}")
    )
    done = run_script(command, root)
    assert output in done.stdout and (done.returncode == 0 or not output), (command, done.stderr)


def test_a_copy_of_a_record_has_its_fields_and_leaves_it_as_it_was(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "w", symlinks=True)
    root = tmp_path / "w" / "kb"
    command = run_script("duckkb cp faq f1 'f 9'", root).stderr.strip().rpartition("try: ")[2]
    assert run_script(command, root).returncode == 0
    records = {line["id"]: line["topic"] for line in run_in(root, ["list", "faq"]).lines}
    assert records == {"f1": "billing", "f2": "api", "f 9": "billing"}


@pytest.mark.parametrize(
    "line",
    ["rm -rf faq", "drop table faq", "truncate faq", "delete faq f1 --force", "delete -f ../faq.jsonl", "gc --now"],
)
def test_a_line_that_destroys_leads_to_a_command_that_first_says_what_goes(
    whole: Path, tmp_path: Path, line: str
) -> None:
    shutil.copytree(whole, tmp_path / "w", symlinks=True)
    root = tmp_path / "w" / "kb"
    before = git(root, "status", "--porcelain")
    command = run_script(f"duckkb {line}", root).stderr.strip().rpartition("try: ")[2]
    run_script(command, root)
    assert re.search("--dry-run|col rm faq$", command), command
    assert git(root, "status", "--porcelain").replace("?? bin/\n", "") == before.replace("?? bin/\n", "")
    assert len(run_in(root, ["list", "faq"]).lines) == 2


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("delete faq topic=pay --dry-run", "--dry-run"),
        ("cp faq f1 f9 --dry-run", "--dry-run"),
        ("insert --dry-run faq ../faq.jsonl", "--dry-run"),
        ("link tickets T-2 people C-2 --dry-run", "--dry-run"),
    ],
)
def test_a_line_that_is_to_be_tried_leads_to_a_command_that_writes_nothing(
    whole: Path, tmp_path: Path, line: str, meant: str
) -> None:
    shutil.copytree(whole, tmp_path / "w", symlinks=True)
    root = tmp_path / "w" / "kb"
    command = run_script(f"duckkb {line}", root).stderr.strip().rpartition("try: ")[2]
    assert meant in command
    run_script(command, root)
    assert "data/" not in git(root, "status", "--porcelain")


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("find faq refund --sort topic --format table", "--format table"),
        ("check -w \"id = 'f1'\"", "id = 'f1'"),
        ("blame faq f1 --at HEAD~1", "HEAD~1"),
        ("propose merge --branch fix put", "propose"),
    ],
)
def test_a_command_that_would_lack_what_the_line_asks_for_is_not_suggested(whole: Path, line: str, lost: str) -> None:
    command = run_script(f"duckkb {line}", whole / "kb").stderr.strip().rpartition("try: ")[2]
    assert lost in command or command.endswith("--help") or command == "duckkb branches", command


def test_an_option_that_groups_is_not_taken_for_the_base(whole: Path) -> None:
    assert "Did you mean" not in run_script("duckkb count faq --by topic", whole / "kb").stderr


def test_the_base_that_a_line_names_is_in_the_pipe_and_in_the_command_of_git(whole: Path) -> None:
    for line, meant in (
        ("--kb kb jq .topic faq", "duckkb --kb kb export faq | jq -c .topic"),
        ("add config.yaml --kb kb", ""),
        ("--kb kb cherry-pick fix", "git -C kb cherry-pick fix"),
        ("--kb kb get f1 faq", "duckkb --kb kb get faq f1"),
    ):
        command = run_script(f"duckkb {line}", whole).stderr.strip().rpartition("try: ")[2]
        assert command == meant or not meant


def test_a_word_that_may_be_a_password_is_in_no_command_of_another_program(whole: Path) -> None:
    for line in ("faq sk-secret123456789012", "pr view sk-secret123456789012", "get sk-secret123456789012 faq"):
        ran = run_in(whole / "kb", line.split())
        assert ran.code and "sk-secret" not in json.dumps(ran.err).partition("try: ")[2]
