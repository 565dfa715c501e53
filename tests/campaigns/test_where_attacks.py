"""Every known way out of `--where` and `sql`, by name, against a real base; and a list that was opened must be noticed."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.types.errors import DuckkbError
from tests.conftest import ROOT, make_base, run_in
from tests.harness.campaign import Campaign
from tests.harness.sql import ground
from tests.harness.sql.attacks import ALWAYS_TRUE, FILTERS, FRIENDLY, HARMLESS, STATEMENTS, aimed


def _without_m(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`m` holds what its type does not allow, which no write would take: here it is a field without a rule."""
    return {name: rule for name, rule in schema["properties"].items() if name != "m"}


CONFIG = json.dumps(
    {
        "global": {"embedding_model": "none"},
        "nodes": {
            kind.name: {
                "table": kind.table,
                "identity": list(kind.identity),
                "schema": {"type": "object", "properties": _without_m(kind.schema)},
            }
            for kind in (ground.DOC, ground.VAULT)
        },
        "edges": {"links": {"from": "Doc", "to": "Doc"}},
    },
    ensure_ascii=False,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base of both types on disk."""
    made = make_base(tmp_path_factory.mktemp("attacked") / "kb", CONFIG)
    with duckkb.open(made) as kb:
        kb.put("Doc", ground.DOCS)
        kb.put("Vault", [{"secret": ground.VAULT_SECRET, "i": 1}])
    return made


@pytest.fixture(scope="module")
def base(root: Path) -> Iterator[duckkb.KnowledgeBase]:
    """As the command line opens it. That this process alone answers in the same words is tested where the two are compared."""
    with duckkb.open(root) as kb:
        yield kb


def _refused(base: duckkb.KnowledgeBase, call: Any, code: str) -> None:
    before = ground.seen(base.root / "data")
    with pytest.raises(DuckkbError) as caught:
        call()
    assert ground.faults_of_error(caught.value, [code]) == []
    assert caught.value.exit_code == 2
    known = caught.value.details.get("construct") or caught.value.details.get("field")
    assert known or code == "E_SQL", "a filter is refused before anything runs"
    assert ground.seen(base.root / "data") == before
    assert len(base.find("Doc", where="true", limit=100)) == len(ground.DOCS), "the base answers on"


@pytest.mark.parametrize("name", FILTERS)
def test_xd_06_a_filter_has_no_way_out(
    base: duckkb.KnowledgeBase, campaign: Campaign, tmp_path: Path, name: str
) -> None:
    with ground.canaries(tmp_path) as secret:
        fragment = aimed(FILTERS[name], str(secret), ground.ENV_NAME)
        _refused(base, lambda: base.find("Doc", where=fragment), "E_FILTER")
    campaign.count("hostile SQL refused")


@pytest.mark.parametrize("name", STATEMENTS)
def test_dk_24_a_statement_has_no_way_out(
    base: duckkb.KnowledgeBase, campaign: Campaign, tmp_path: Path, name: str
) -> None:
    secret_frame = {"secret": ground.FILE_SECRET}  # what a scan of Python's variables would find
    with ground.canaries(tmp_path) as secret:
        statement = aimed(STATEMENTS[name], str(secret), ground.ENV_NAME)
        _refused(base, lambda: base.sql(statement), "E_SQL")
    assert secret_frame
    campaign.count("hostile SQL refused")


@pytest.mark.parametrize("fragment", HARMLESS, ids=range(len(HARMLESS)))
def test_what_a_statement_may_say_says_the_same_in_a_filter(base: duckkb.KnowledgeBase, fragment: str) -> None:
    found = base.sql(f"SELECT name FROM doc WHERE {fragment}")
    assert {hit.record["name"] for hit in base.find("Doc", where=fragment, limit=100)} == {row[0] for row in found.rows}


@pytest.mark.parametrize("fragment", ALWAYS_TRUE, ids=range(len(ALWAYS_TRUE)))
def test_a_filter_that_always_holds_sees_its_own_type_alone(base: duckkb.KnowledgeBase, fragment: str) -> None:
    found = base.find("Doc", where=fragment, limit=100)
    assert {hit.type for hit in found} == {"Doc"}
    assert len(found) == len(ground.DOCS)
    assert ground.VAULT_SECRET not in repr(found)


@pytest.mark.parametrize("statement", FRIENDLY, ids=range(len(FRIENDLY)))
def test_friendly_sql_reads_the_runtime_tables_and_nothing_else(
    base: duckkb.KnowledgeBase, tmp_path: Path, statement: str
) -> None:
    with ground.canaries(tmp_path):
        answer = base.sql(statement)
    assert answer.columns
    assert not any(secret in repr(answer) for secret in ground.NEVER)


def test_attacks_on_the_command_line_end_with_exit_code_2_and_one_line(
    root: Path, campaign: Campaign, tmp_path: Path
) -> None:
    chance, count = campaign.random("doors"), campaign.pick(2, 12)
    with ground.canaries(tmp_path) as secret:
        calls = [(("find", "Doc", "-w", text), text) for text in chance.sample(sorted(FILTERS.values()), count)]
        calls += [(("sql", text), text) for text in chance.sample(sorted(STATEMENTS.values()), count)]
        for args, text in calls:
            if "\0" in text or "\ud800" in text or len(text) > 100_000:
                continue  # no system passes these as an argument
            given = [aimed(arg, str(secret), ground.ENV_NAME) for arg in args]
            ran = run_in(root, [*given, "--json"], env={ground.ENV_NAME: ground.ENV_SECRET})
            assert (ran.code, ran.out) == (2, ""), given
            assert ran.error["code"] in ("E_FILTER", "E_SQL"), given
            assert len(ran.err.splitlines()) == 1
            assert not any(shown in ran.err for shown in (*ground.NEVER, ground.ROW_SECRET)), given
            campaign.count("hostile SQL refused")


# What an opened list looks like: every function, expression and table function passes, and nothing is switched off.
OPENED = """
import sys
from duckkb.sql import confined
from duckkb.sql import statement_names as allowed, statement_reader as reading

class All:
    def __contains__(self, name):
        return True

allowed.EXPRESSIONS = allowed.FUNCTIONS = allowed.TYPES = All()
reading.TreeReader._read_table = lambda self, table, scope: None
confined.SETTINGS = ()

from pathlib import Path
from tests.harness.sql import ground
from tests.harness.sql.attacks import STATEMENTS, aimed
from duckkb.ports import SqlLimits

tables, leaks = ground.tables(), 0
with ground.canaries(Path(sys.argv[1])) as secret:
    for name in ("read_text", "file by its name", "getenv", "read_text in a subquery", "read_text in a CTE"):
        try:
            answer = repr(tables.sql(aimed(STATEMENTS[name], str(secret), ground.ENV_NAME), SqlLimits()))
        except Exception as error:
            continue
        leaks += any(shown in answer for shown in ground.NEVER)
print(leaks)
"""


def test_an_opened_list_lets_the_canaries_out_and_is_noticed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OPENED), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) >= 4
