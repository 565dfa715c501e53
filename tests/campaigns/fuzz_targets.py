"""Every target by name, for the processes that measure coverage or let it guide them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.campaigns.fuzz_cli import CliTarget
from tests.campaigns.fuzz_codec import CodecTarget
from tests.campaigns.fuzz_ontology import OntologyTarget
from tests.campaigns.fuzz_parts import PartTarget
from tests.campaigns.fuzz_query import LaneTarget, SyntaxTarget
from tests.campaigns.fuzz_schema import SchemaTarget

TARGETS: dict[str, Callable[[Path], Any]] = {
    CodecTarget.name: lambda folder: CodecTarget(),
    SyntaxTarget.name: lambda folder: SyntaxTarget(),
    LaneTarget.name: lambda folder: LaneTarget(),
    OntologyTarget.name: OntologyTarget,
    PartTarget.name: PartTarget,
    SchemaTarget.name: SchemaTarget,
    CliTarget.name: CliTarget,
}
