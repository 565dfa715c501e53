"""Filters by the ten thousand: honest ones mean what an oracle of our own says, hostile ones reach nothing."""

import re
from collections import Counter
from collections.abc import Callable, Set
from functools import partial
from pathlib import Path

import pytest

from duckkb.sql.runtime_tables import Tables
from duckkb.sql.sql_process import Rejected
from duckkb.types.errors import DuckkbError, FilterError
from tests.harness.campaign import Campaign
from tests.harness.sql import ground
from tests.harness.sql.grammar import Honest, Hostile

SHARDS = 4
EXACT = "exact"
"""What a refusal of a filter is told as that would have to round a whole number past 2^53, which the oracle rounds."""


def _rows() -> list[dict[str, object]]:
    return [{**row, "__created_at": record.created_at} for row, record in zip(ground.DOCS, ground.docs(), strict=True)]


@pytest.mark.parametrize("shard", range(SHARDS))
def test_generated_fragments_are_refused_or_answered_as_the_oracle_says(
    campaign: Campaign, shard: int, tmp_path: Path
) -> None:
    count = campaign.pick(2_500, 51_000) // SHARDS
    engine = ground.Recording()
    tables = ground.tables(engine)
    judge = Judge(partial(tables.where, ground.DOC), engine)
    with ground.canaries(tmp_path) as secret:
        chance = campaign.random(f"fragments {shard}")
        honest, hostile = Honest(chance), Hostile(chance, str(secret), ground.ENV_NAME)
        rows = _rows()
        for number in range(count):
            if number % 3 == 0:
                piece = honest.condition(chance.randint(0, 3))
                wanted = {place for place, row in enumerate(rows, 1) if piece.value(row) is True}
                judge.honest(piece.sql, wanted)
            else:
                judge.hostile(hostile.fragment())
    assert judge.faults == []
    campaign.count("generated fragments", count)
    campaign.count("generated fragments accepted", judge.accepted)
    campaign.count("generated fragments that would round", judge.refused[EXACT])
    assert judge.refused[EXACT] <= count * 0.02
    assert 0.25 <= judge.accepted / count <= 0.6, f"{judge.accepted} of {count} accepted"


class Judge:
    """Asks one fragment after the other and notes what is wrong with the answers."""

    def __init__(self, where: ground.Where, engine: ground.Recording) -> None:
        self._where, self._engine = where, engine
        self.accepted = 0
        self.faults: list[tuple[str, str]] = []
        self.refused: Counter[str] = Counter()

    def honest(self, fragment: str, wanted: set[int]) -> None:
        refused = self.refused[EXACT]
        found = self._answer(fragment)
        if found is None and self.refused[EXACT] == refused:
            self._note(fragment, "an honest filter is refused")
        elif found is None:
            return
        elif found != wanted:
            self._note(fragment, f"answers {sorted(found)}, not {sorted(wanted)}")

    def hostile(self, fragment: str) -> None:
        """What is accepted splits the rows into three: where it holds, where it does not, where it is unknown."""
        found = self._answer(fragment)
        if found is None or "--" in fragment:
            return
        try:
            false = self._where(f"NOT ({fragment}\n)")
            unknown = self._where(f"(({fragment}\n) AND TRUE) IS NULL")
        except FilterError:
            return  # twice the nesting may be too much
        if sorted([*found, *false, *unknown]) != list(range(1, len(ground.DOCS) + 1)):
            self._note(fragment, "does not split the rows into true, false and unknown")

    def _answer(self, fragment: str) -> frozenset[int] | None:
        del self._engine.ran[:]
        literals = [text.replace("''", "'") for text in re.findall(r"'((?:[^']|'')*)'", fragment)]
        try:
            found = self._where(fragment)
        except DuckkbError as error:
            self.refused[str(error.details.get("construct", ""))] += 1
            for fault in ground.faults_of_error(error, ["E_FILTER"], [text for text in literals if len(text) > 5]):
                self._note(fragment, fault)
            self._look_at_what_ran(fragment)  # for an advice
            if (advice := ground.advised(error)) is not None and not self._works(advice):
                self._note(fragment, f"advises what is refused: {advice}")
            return None
        except Exception as error:
            self._note(fragment, f"{type(error).__name__}: {error}")
            return None
        self.accepted += 1
        self._look_at_what_ran(fragment)
        return found

    def _look_at_what_ran(self, fragment: str) -> None:
        for statement in self._engine.ran:
            for fault in ground.faults_of_statement(statement):
                self._note(fragment, f"runs {fault}: {statement}")

    def _works(self, advice: str) -> bool:
        try:
            self._where(advice)
        except DuckkbError:
            return False
        return True

    def _note(self, fragment: str, fault: str) -> None:
        self.faults.append((fragment, fault))


def test_the_judge_notices_fragments_that_nobody_walked(campaign: Campaign, tmp_path: Path) -> None:
    """The negative control: fragments are pasted into the statement and the engine's own words are handed on."""
    engine = ground.Recording()
    tables = ground.tables(engine)
    tables.where(ground.DOC, "true")
    tables.sql("SELECT count(*) FROM vault", ground.SqlLimits())

    def pasted(fragment: str) -> frozenset[int]:
        try:
            return engine.ids(f'SELECT "__id" FROM "doc" WHERE ({fragment}\n)', 10)
        except Rejected as error:
            raise FilterError(str(error.__cause__)) from error

    judge = Judge(pasted, engine)
    with ground.canaries(tmp_path) as secret:
        hostile = Hostile(campaign.random("pasted"), str(secret), ground.ENV_NAME)
        judge.hostile("name::integer = 1")
        judge.hostile(f"name = '{ground.ROW_SECRET[:6]}' || '{ground.ROW_SECRET[6:]}' AND note::integer = 1")
        judge.hostile("EXISTS (SELECT 1 FROM vault WHERE secret > 'a')")
        for _ in range(100):
            judge.hostile(hostile.fragment())
        judge.honest("list_contains(tags, 'a') OR note = 5", {1, 8})
    faults = " ".join(fault for _, fault in judge.faults)
    for noticed in (
        "a second SELECT",
        "the word EXISTS",
        "the engine's words",
        f"tells {ground.ROW_SECRET}",
        "an honest filter is refused",
    ):
        assert noticed in faults, noticed


def test_a_filter_and_the_where_of_a_statement_agree(campaign: Campaign) -> None:
    tables, honest, refused = ground.tables(), Honest(campaign.random("both doors")), list[str]()
    for _ in range(count := campaign.pick(60, 500)):
        condition = honest.condition().sql
        statement = f"SELECT __id FROM doc WHERE {condition}"
        by_filter = _ids_or_refusal(partial(tables.where, ground.DOC, condition))
        by_statement = _ids_or_refusal(partial(_first_cells, tables, statement))
        assert by_filter == by_statement, condition
        refused += [condition] if by_filter == EXACT else []
    campaign.count("conditions answered alike by both doors", count - len(refused))
    assert len(refused) <= count * 0.02


def _ids_or_refusal(ask: Callable[[], Set[int]]) -> frozenset[int] | str:
    try:
        return frozenset(ask())
    except FilterError as error:
        return str(error.details["construct"])


def _first_cells(tables: Tables, statement: str) -> Set[int]:
    return {row[0] for row in tables.sql(statement, ground.SqlLimits()).rows}
