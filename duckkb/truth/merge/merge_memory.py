"""The rules of merges as the ontology says them, and as they are remembered for when it cannot be asked."""

from pathlib import Path
from typing import Literal

from duckkb.ontology.model import Ontology
from duckkb.truth import state
from duckkb.truth.layout import read_regular
from duckkb.truth.merge import merge_rules
from duckkb.truth.merge.field_merge import MergeRules
from duckkb.truth.merge.merge_rules import RulesByTable, TableRules


def rules_of(ontology: Ontology, granularity: Literal["field", "record"]) -> RulesByTable:
    """What each type says of merging its records; `granularity` where a type says none."""
    return RulesByTable(
        {
            (kind.kind, kind.table): TableRules(
                kind.name, MergeRules(kind.identity_fields, dict(kind.merge_rules), kind.granularity or granularity)
            )
            for kind in ontology
        }
    )


def remember(root: Path, rules: RulesByTable) -> bool:
    """Write `.duckkb/merge.json` where it says something else; False where it cannot be written."""
    data = merge_rules.dump(rules, merge_rules.digest(root))
    try:
        if read_regular(state.folder_of(root) / state.MERGE)[0] == data:
            return True
    except OSError:
        pass
    return state.jot(root, state.MERGE, data)
