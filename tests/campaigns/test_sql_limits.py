"""Limits of statements that hold: rows, bytes, time, memory. What overruns ends with E_LIMIT and never by a signal."""

import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckkb
from duckkb.ontology.model import NodeType, Ontology
from duckkb.ports import SqlLimits
from duckkb.sql.runtime_tables import Tables
from duckkb.sql.sql_process import Engine, Isolated
from duckkb.types.errors import FilterError, Unavailable, UsageError
from duckkb.types.records import Record
from tests.conftest import ROOT, make_base, run_in
from tests.harness.campaign import Campaign
from tests.harness.sql import ground
from tests.harness.sql.bombs import MEMORY, TIME
from tests.harness.waiting import processor_seconds
from tests.record_tables import RecordTables

BIG = NodeType("Big", "big", ("name",), {"properties": {"name": {"type": "string"}, "n": {"type": "integer"}}})
ROWS = [{"name": f"row {n:05}", "n": n} for n in range(1, 1001)]
BOMBS = {**MEMORY, **TIME}


def _big(engine: Engine | None = None) -> Tables:
    made = RecordTables(Ontology({"Big": BIG}), lambda kind: (), engine=engine)
    made.put(BIG, [Record("Big", n, (row["name"],), row, ground.TIME, ground.TIME) for n, row in enumerate(ROWS, 1)])
    return made


@pytest.fixture(scope="module")
def big() -> Iterator[Tables]:
    engine = Isolated()
    yield _big(engine)
    engine.drop()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rule = "{type: object, properties: {name: {type: string}, n: {type: integer}}}"
    config = f"global: {{embedding_model: none}}\nnodes: {{Big: {{table: big, identity: name, schema: {rule}}}}}\n"
    made = make_base(tmp_path_factory.mktemp("limits") / "kb", config)
    with duckkb.open(made) as kb:
        kb.put("Big", ROWS)
    return made


def test_a_bomb_ends_its_own_process_and_the_next_call_works(big: Tables, campaign: Campaign) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in campaign.random("bombs").sample(sorted(BOMBS), campaign.pick(2, len(BOMBS))):
        with pytest.raises(Unavailable) as caught:
            big.sql(BOMBS[name], SqlLimits(10**9, 10**12, campaign.pick(1, 3)))  # not the caps of rows and bytes
        assert (caught.value.code, caught.value.exit_code) == ("E_LIMIT", 1), name
        assert big.sql("SELECT count(*), max(name) FROM big", SqlLimits()).rows == ((1000, "row 01000"),), name
        campaign.count("bombs stopped")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 300_000, f"this process grew by {grown} kB"


def test_a_bomb_on_the_command_line_ends_with_exit_code_1_and_e_limit(root: Path, campaign: Campaign) -> None:
    for name in campaign.random("doors").sample(sorted(BOMBS.keys() - {"rows that never end"}), campaign.pick(1, 5)):
        ran = run_in(root, ["sql", BOMBS[name].replace("big", "Big"), "--timeout", "1", "--json"])
        assert (ran.code, ran.out) == (1, ""), name
        assert ran.error["code"] == "E_LIMIT", name
        assert len(ran.err.splitlines()) == 1, name
        campaign.count("bombs stopped")


def test_for_people_a_bomb_ends_in_words(root: Path) -> None:
    ran = run_in(root, ["sql", BOMBS["endless recursion"], "--timeout", "0.5"])
    assert (ran.code, ran.out) == (1, "")
    assert (
        ran.err
        == "duckkb: The query took too much time or memory and was stopped.\n  try: make it narrower, or give it more time (--timeout)\n"
    )


def _rollup(columns: int) -> str:
    return f"SELECT 1 FROM big GROUP BY ROLLUP({', '.join(f'n+{number}' for number in range(columns))})"


SLOW = {
    "grouping sets": f"SELECT count(*) FROM big GROUP BY CUBE({', '.join(f'substr(name, {n}, 1)' for n in range(1, 16))})",
    "parsing": _rollup(7_000),
}


@pytest.mark.parametrize("name", SLOW)
def test_one_deadline_holds_from_the_first_byte_parsed_to_the_last_row(big: Tables, name: str) -> None:
    """Parsing, writing the statement anew, a new process, running, and handing over rows have no time of their own."""
    big.close()
    before = processor_seconds()
    with pytest.raises(Unavailable) as caught:
        big.sql(SLOW[name], SqlLimits(10**9, 10**12, seconds=1))
    assert (caught.value.code, caught.value.details) == ("E_LIMIT", {"seconds": 1})
    assert "--timeout" in caught.value.suggestion
    big.close()
    assert processor_seconds() - before < 4


def test_a_text_that_the_parser_never_finishes_takes_seconds_and_is_to_be_shorter(big: Tables) -> None:
    """Each level doubles the parser's time, whatever it is made of: processor time bounds it, and the statement has an hour."""
    endless = "SELECT " + "position(x -> " * 60 + " in 1)" * 60
    for ask in (lambda: big.sql(endless, SqlLimits(seconds=3600)), lambda: big.where(BIG, endless[7:])):
        with pytest.raises(Unavailable) as caught:
            ask()
        assert caught.value.code == "E_LIMIT"
        assert "shorter" in caught.value.suggestion and "--timeout" not in caught.value.suggestion
        assert big.sql("SELECT count(*) FROM big", SqlLimits()).rows == ((1000,),)


def test_a_syntax_tree_without_measure_is_refused(big: Tables) -> None:
    """A few kilobytes of grouping sets have a tree of tens of megabytes."""
    with pytest.raises(FilterError, match="grouping sets"):
        big.sql(_rollup(3_000), SqlLimits())


@pytest.mark.parametrize("seconds", ["0", "-1", "abc", "nan", "inf", "1e9"])
def test_a_time_that_is_none_is_a_usage_error(root: Path, seconds: str) -> None:
    ran = run_in(root, ["sql", "SELECT 1", "--timeout", seconds, "--json"])
    assert (ran.code, ran.out, ran.error["code"]) == (2, "", "E_USAGE")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e9])
def test_a_time_that_is_none_is_refused_by_the_library_too(big: Tables, seconds: float) -> None:
    with pytest.raises(UsageError):
        big.sql("SELECT 1", SqlLimits(seconds=seconds))


def test_one_row_larger_than_the_byte_cap_is_left_out_and_said(big: Tables) -> None:
    wide = "SELECT 1 AS n, 'small' AS s UNION ALL SELECT 2, string_agg(a.name, '') FROM big a, big b"
    for tables in (big, _big()):
        found = tables.sql(f"SELECT * FROM ({wide}) ORDER BY n", SqlLimits(bytes=100_000))
        assert (found.rows, found.truncated) == (((1, "small"),), True)


def test_many_wide_rows_are_read_up_to_the_byte_cap(big: Tables, campaign: Campaign) -> None:
    """1,000 rows of a megabyte: the process that answers holds a few of them at a time."""
    statement = "SELECT a.n, s FROM (SELECT string_agg(name, '') || string_agg(name, '') AS s FROM big), big a"
    for cap in (50_000, 500_000):
        found = big.sql(statement, SqlLimits(bytes=cap))
        assert found.truncated
        assert len(found.rows) == cap // 18_010


# A process with a bound of 100 MB, or without one, that runs a bomb and says how far it grew.
ALONE = """
import os, sys
from duckkb.sandbox import Bounds
from duckkb.sql.confined import Confined
from duckkb.ports import SqlLimits

engine, status = Confined(), os.open("/proc/self/status", os.O_RDONLY)
engine.rows("SELECT 1", SqlLimits())
if sys.argv[1] == "bounded":
    Bounds(no_files=True).allow(120, 100 * 2**20)
try:
    engine.rows(sys.argv[2], SqlLimits())
except Exception:
    pass
(line,) = (line for line in os.pread(status, 10_000, 0).splitlines() if line.startswith(b"VmHWM"))
print(line.split()[1].decode())
"""


@pytest.mark.skipif(
    sys.platform != "linux",
    reason="bounds the address space, which Linux alone enforces; the process that is looked at, below, is the way of others",
)
def test_without_its_bound_a_process_grows_past_it() -> None:
    """The negative control of the memory bound: one replaced text of 290 MB. Nothing but the figure is on stdout."""
    text = "'" + "a" * 600 + "'"
    bomb = f"SELECT length(replace(replace({text}, 'a', {text}), 'a', repeat_)) FROM (SELECT {text} || {text[:202]}' AS repeat_)"

    def peak(how: str) -> int:
        args = [sys.executable, "-c", textwrap.dedent(ALONE), how, bomb]
        done = subprocess.run(args, cwd=ROOT, capture_output=True, text=True, check=False)
        return int(done.stdout) if done.stdout else 0

    assert peak("unbounded") > 350_000
    assert peak("bounded") < 300_000  # kB: 100 MB on top of what the libraries take


# Where the address space cannot be bounded, a look at the resident size must do.
LOOKED_AT = """
import time
from duckkb.sandbox import Bounds
Bounds(no_files=True, by_address_space=False).allow(120, 50 * 2**20)
taken = b"x" * (200 * 2**20)
time.sleep(60)
"""


def test_a_process_that_is_looked_at_ends_when_it_holds_too_much() -> None:
    done = subprocess.run([sys.executable, "-c", LOOKED_AT], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 77
