"""Files of any bytes as documents: whatever a file is, it is answered in time and in form, and nothing else changes."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from duckkb.documents import document
from duckkb.documents.document import Extracted
from duckkb.ontology.model import Extraction
from tests.harness.campaign import Campaign
from tests.harness.files.samples import Sample, mutated, samples
from tests.harness.fuzz.loop import Hang, limited
from tests.harness.fuzz.mutate import Mutator
from tests.harness.waiting import processor_seconds
from tests.unit.test_extraction import well_formed

_TOKENS = (
    b"obj", b"endobj", b"stream", b"endstream", b"<<", b">>", b"/Kids", b"/Count", b"/Length", b"/FlateDecode", b" 0 R", b"Tj",
    b"BT", b"<w:p>", b"</w:p>", b"<w:t>", b"<w:tbl>", b"<w:sdt>", b"<w:r>", b'w:val="', b"<mc:Fallback>", b"<!DOCTYPE", b"<![CDATA[",
    b"<table>", b"<td>", b"</div>", b"<pre>", b"<script>", b"<!--", b"<a href=", b"&#x0;", b"<meta charset=", b"\0", b"PK\x03\x04",
)  # fmt: skip
_HOW = Extraction(seconds=10.0, memory=512 * 1024**2)
_GRACE = 20.0
"""Seconds of processor beyond those of the file: for a process to be started, and what it read to be looked at."""
_LARGEST = 60_000

Reader = Callable[[str, bytes, Extraction], Extracted]


def _judge(name: str, raw: bytes, read: Reader = document.read_document) -> set[str]:
    """The warnings of a file; raises where it is not answered in time and in form."""
    before = processor_seconds()
    with limited(_HOW.seconds + _GRACE):
        found = read(name, raw, _HOW)
    assert processor_seconds() - before < _HOW.seconds + _GRACE
    well_formed(found, raw)
    fields = found.fields
    if fields["format"] in ("pdf", "docx") and raw:
        assert fields["text"] or fields.get("warnings"), "nothing is said of a file without a text"
    return set(fields.get("warnings", ()))


def _state(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        one.name: (hashlib.sha256(one.read_bytes()).hexdigest(), one.stat().st_mtime_ns) for one in folder.iterdir()
    }


def test_kx_18_no_file_whatever_it_holds_stops_the_reading_of_others(
    campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, good = campaign.random("documents"), tuple(one for one in samples() if len(one.raw) <= _LARGEST)
    monkeypatch.chdir(tmp_path)
    for number in range(campaign.pick(250, 20_000)):
        name, raw = _next(chance, good)
        (tmp_path / name).write_bytes(raw)
        before = _state(tmp_path)
        try:
            warned = _judge(name, (tmp_path / name).read_bytes())
        except (Exception, Hang) as error:
            kept = tmp_path / f"harm-{number}-{name}"
            kept.write_bytes(raw)
            raise AssertionError(f"{kept} does harm: {type(error).__name__}: {error}") from error
        assert _state(tmp_path) == before
        (tmp_path / name).unlink()
        campaign.count("damaged documents")
        for one in warned or {"no warning"}:
            campaign.count(f"damaged documents: {one}")
    untouched = next(one for one in good if one.name == "plain.pdf")
    found = document.read_document(untouched.name, untouched.raw).fields
    assert untouched.says[0] in found["text"] and "warnings" not in found


def _next(chance: Random, good: tuple[Sample, ...]) -> tuple[str, bytes]:
    one, other = chance.choice(good), chance.choice(good)
    mutator = Mutator(chance, _TOKENS)
    raw = mutated(chance, one.raw, lambda data: mutator.mutate(data, other.raw))
    ending = one.name if chance.random() < 0.95 else other.name
    return f"file.{ending.rpartition('.')[2]}", raw


def _stumbles(name: str, raw: bytes, how: Extraction) -> Extracted:
    raise KeyError("r")


def _hangs(name: str, raw: bytes, how: Extraction) -> Extracted:
    while True:
        pass


def _misplaces(name: str, raw: bytes, how: Extraction) -> Extracted:
    found = document.read_document(name, raw, how)
    found.fields["pages"] = [0, len(found.fields["text"]) + 1]
    return found


def _keeps_quiet(name: str, raw: bytes, how: Extraction) -> Extracted:
    return Extracted({"title": "", "text": "", "format": "pdf", "size": len(raw)})


@pytest.mark.parametrize(
    "read", [_stumbles, _hangs, _misplaces, _keeps_quiet], ids=lambda read: read.__name__.strip("_")
)
def test_control_a_reader_that_does_harm_is_found_out(read: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = next(one.raw for one in samples() if one.name == "plain.pdf")
    assert _judge("a.pdf", raw) == set()
    if read is _hangs:
        monkeypatch.setattr(f"{__name__}._GRACE", 0.2 - _HOW.seconds)
    with pytest.raises((KeyError, Hang, AssertionError)):
        _judge("a.pdf", raw, read)
