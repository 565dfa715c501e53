"""Fuzzing of lines and parts: no input makes the codec stumble, and nothing in a part is lost or let in."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from duckkb.storage.field_merge import MergeRules, merge_record
from duckkb.storage.line import Decoded, Limits, LineShape, encode
from duckkb.storage.source_text import merge_duplicates
from tests.harness.campaign import Campaign
from tests.harness.fuzz.book import canonical_line
from tests.harness.fuzz.cli import Command, run_here
from tests.harness.fuzz.codec import SHAPES, CodecTarget, check_given, check_line
from tests.harness.fuzz.loop import Hang, Run, hold
from tests.harness.fuzz.parts import PartTarget

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


def test_the_codec_judges_lines_that_grow_from_valid_ones_as_the_book_does(campaign: Campaign) -> None:
    hold(campaign, CodecTarget(), campaign.pick(3_000, 110_000))


def test_dk_13_a_damaged_part_is_named_and_left_alone_and_what_can_be_read_is_kept(
    campaign: Campaign, tmp_path: Path
) -> None:
    target = PartTarget(tmp_path)
    hold(campaign, target, campaign.pick(25, 2_000))
    campaign.count("damaged parts that were written again without a loss", target.written)
    assert target.written


def test_the_codec_judges_any_json_as_the_book_does(campaign: Campaign) -> None:
    number = campaign.pick(100, 4_000)

    @seed(campaign.seed)
    @settings(max_examples=number, database=None, derandomize=False, deadline=None)
    @given(
        st.dictionaries(st.sampled_from(["id", "a", "__id", "from", "to"]) | st.text(max_size=3), ANY_JSON),
        st.booleans(),
    )
    def law(record: dict[str, Any], ascii_only: bool) -> None:
        text = json.dumps({"id": "n", **record}, ensure_ascii=ascii_only, separators=(",", ":"))
        raw = text.encode("utf-8", "surrogatepass")
        check_line(raw, SHAPES[0], Limits())
        check_given(raw)

    law()
    campaign.count("fuzz inputs: codec", number)


# Each once did harm, or stands for a kind that would.
FIXED = [
    b"", b"{}", b"null", b"[]", b'{"id":"a"', b'{"id":"a"}}', b'{"id":"a"} {"id":"b"}', b'{"id":"a","id":"a"}',
    b'\xef\xbb\xbf{"id":"a"}', b'{"id":"a"}\r', b'{"id":"\\ud800"}', b'{"id":"a","\\udfff":1}', b'{"id":"\\ud83d\\ude00"}',
    b'{"id":"a","x":1e400}', b'{"id":"a","x":-1e400}', b'{"id":"a","x":NaN}', b'{"id":"a","x":9223372036854775808}',
    b'{"id":"a","x":18446744073709551616}', b'{"id":"a","x":-9223372036854775808}', b'{"id":"a","x":-0}',
    b'{"id":"a","x":' + b"9" * 5_000 + b"}", b'{"id":"a","x":' + b"[" * 100_000 + b"}", b'{"id":"a","x":0.00002}',
    b'{"id":"a","x":1e+16}', b'{"id":"a","x":5e-324}', b'{"id":"a","__id":1.0}', b'{"id":"a","__id":9007199254740992}',
    b'{"id":"e\xcc\x81"}', b'{"id":"a\xe2\x80\xae"}', b'{"id":"' + b"x" * 1_025 + b'"}', b"<<<<<<< ours", b"=======",
    b"version https://git-lfs.github.com/spec/v1", b'{"id":"a","Title":1,"title":1}', b'{"id":"a","x":{"b":1,"a":2}}',
    b'{"id":"a","x":null}', b'{"id":"a","x":"\xe2\x80\xa8"}', b'{"id":"a","x":"\x7f"}', b'{"id":"a","x":"\x00"}', b"\xff",
    b'{"id":"a' + "\u0301\u0316".encode() * 30_000 + b'"}',
]  # fmt: skip


@pytest.mark.parametrize("raw", FIXED, ids=lambda raw: repr(raw[:24]))
def test_fixed_lines_are_judged_as_the_book_does(raw: bytes) -> None:
    for identity in SHAPES:
        check_line(raw, identity, Limits())
    check_given(raw)


def test_lines_of_one_record_whose_names_differ_in_case_alone_do_not_stop_every_command(tmp_path: Path) -> None:
    target = PartTarget(tmp_path)
    target.part.write_bytes(target.good + b'{"id":"n1","TEXT":"two"}\n')
    checked = run_here(target.root, Command(("check", "--json")))
    assert checked.code == 1
    assert "E_DUP_IDENTITY" in {finding["code"] for finding in json.loads(checked.out)["findings"]}
    assert run_here(target.root, Command(("get", "Note", "n1"))).code == 0
    assert run_here(target.root, Command(("dedupe",))).code == 0
    assert run_here(target.root, Command(("check",))).code == 0


def test_of_names_that_differ_in_case_alone_the_later_line_wins() -> None:
    times = ["2026-01-01T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z"]
    lines = [
        f'{{"id":"n","{name}":1,"__updated_at":"{time}"}}'.encode()
        for name, time in zip(["text", "TEXT"], times, strict=True)
    ]
    merged = f'{{"id":"n","TEXT":1,"__updated_at":"{times[1]}"}}'.encode()
    assert merge_duplicates(lines, ("id",)) == merge_duplicates(lines[::-1], ("id",)) == merged


def test_a_merge_that_would_make_an_unreadable_line_is_a_conflict() -> None:
    base, ours, theirs = b'{"id":"n"}', b'{"id":"n","a":1,"text":1}', b'{"id":"n","TEXT":2,"b":1}'
    merged = merge_record(base, ours, theirs, MergeRules(("id",)))
    assert merged.line is None and {*merged.conflicts} == {"text", "TEXT"}
    assert merged.alternatives == (b'{"id":"n","a":1,"b":1,"text":1}', b'{"id":"n","TEXT":2,"a":1,"b":1}')


def test_lines_of_one_record_that_are_too_long_together_can_still_be_read(tmp_path: Path) -> None:
    target = PartTarget(tmp_path)
    config = target.root / "config.yaml"
    config.write_text(config.read_text("utf-8") + "limits: {max_record_bytes: 1024}\n", "utf-8")
    lines = [canonical_line({"id": "n1", name: "x" * 800}, ("id",)) for name in ("one", "two")]
    target.part.write_bytes(b"\n".join(lines) + b"\n")
    assert run_here(target.root, Command(("get", "Note", "n1"))).code == 0
    assert run_here(target.root, Command(("dedupe",))).code != 0
    assert target.part.read_bytes() == b"\n".join(lines) + b"\n"


def _believing(raw: bytes, shape: LineShape, limits: Limits) -> Decoded:
    """A reader that takes what json takes: doubles of keys, NaN, any order."""
    values = json.loads(raw) if raw.startswith(b"{") else {}
    return Decoded(values, encode(values, shape) == raw)


def _stumbling(raw: bytes, shape: LineShape, limits: Limits) -> Decoded:
    raise KeyError("id")


def _endless(raw: bytes, shape: LineShape, limits: Limits) -> Decoded:
    while True:
        pass


@pytest.mark.parametrize("reader", [_believing, _stumbling], ids=["believes too much", "stumbles"])
def test_control_a_weak_reader_of_lines_is_found_out(campaign: Campaign, reader: Any) -> None:
    outcome = Run[bytes](enough=2).fuzz(CodecTarget(reader), campaign.random("control"), 200)
    assert len(outcome.finds) == 2


def test_control_a_reader_that_hangs_is_found_out(campaign: Campaign) -> None:
    outcome = Run[bytes](seconds=0.2).fuzz(CodecTarget(_endless), campaign.random("control"), 1)
    assert [type(find.error) for find in outcome.finds] == [Hang]


def test_control_a_find_is_shown_whole_and_made_small(campaign: Campaign) -> None:
    class Planted(CodecTarget):
        def check(self, value: bytes) -> bool:
            assert b'"' not in value, "planted"
            return True

    find = Run[bytes]().fuzz(Planted(), campaign.random("control"), 50).finds[0]
    assert find.smallest == b'"' and repr(find.value) in str(find)
