"""Every target by name, for the processes that measure coverage or let it guide them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.harness.fuzz.cli import CliTarget
from tests.harness.fuzz.codec import CodecTarget
from tests.harness.fuzz.ontology import OntologyTarget
from tests.harness.fuzz.parts import PartTarget
from tests.harness.fuzz.query import LaneTarget, SyntaxTarget
from tests.harness.fuzz.schema import SchemaTarget

TARGETS: dict[str, Callable[[Path], Any]] = {
    CodecTarget.name: lambda folder: CodecTarget(),
    SyntaxTarget.name: lambda folder: SyntaxTarget(),
    LaneTarget.name: lambda folder: LaneTarget(),
    OntologyTarget.name: OntologyTarget,
    PartTarget.name: PartTarget,
    SchemaTarget.name: SchemaTarget,
    CliTarget.name: CliTarget,
}
