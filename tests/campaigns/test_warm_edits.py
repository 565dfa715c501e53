"""Edits by hand between questions to a warm process: it never answers with what stood in the files before."""

import json
import os
from pathlib import Path

import pytest

from duckkb import warm_client
from tests.conftest import NOTES, commit, git, make_base, run_in
from tests.harness.campaign import Campaign
from tests.harness.forks import forks, possible
from tests.harness.warmth import Warmth

RECORDS = 40


@pytest.mark.skipif(not possible() or not Path("/proc/self/status").exists(), reason="needs Linux and forks")
def test_an_answer_is_never_older_than_the_files(tmp_path: Path, campaign: Campaign) -> None:
    root, chance, warmth = make_base(tmp_path / "kb", NOTES), campaign.random("warm edits"), Warmth()
    words = {f"n{number}": f"word{number:06}" for number in range(RECORDS)}
    lines = [json.dumps({"id": name, "text": f"fox {word}"}) for name, word in words.items()]
    assert run_in(root, ["put", "Note"], stdin="\n".join(lines)).code == 0
    commit(root)
    (part,) = (root / "data").rglob("part_*.jsonl")
    first, process = dict(words), warmth.start(forks(), root, {**os.environ, "PYTHONUTF8": "1"})
    env = {**warmth.env, "DUCKKB_DAEMON": "require"}
    assert warm_client.verb(["find"]) in warm_client.SERVED
    opened: list[int] = []
    for number in range(campaign.pick(40, 1_000)):
        name, new = chance.choice([*words]), f"word{1_000 + number:06}"
        gone = words[name]
        how = chance.choice(["in place", "renamed", "in place", "checkout", "config"])
        if how == "checkout":
            git(root, "checkout", "--", "data")
            name, gone, words = (
                "n0",
                next((word for word in words.values() if word not in first.values()), ""),
                dict(first),
            )
        elif how == "config":
            (root / "config.yaml").write_text(
                f"{NOTES}# {number}\n" if number % 2 else NOTES.replace("[title, text]", "[text]")
            )
        else:
            words[name] = new
            data = part.read_bytes().replace(gone.encode(), new.encode())
            target = part if how == "in place" else part.with_name("draft")
            target.write_bytes(data)
            target.replace(part)
        found = run_in(root, ["find", "Note", words[name], "-m"], env=env)
        assert [one["id"] for one in found.lines] == [name], (number, how, found.err)
        assert run_in(root, ["get", "Note", name], env=env).line["text"] == f"fox {words[name]}", (number, how)
        if gone and gone not in words.values():
            missed = run_in(root, ["find", "Note", gone, "-m", "--json"], env=env)
            assert missed.error["code"] == "E_NO_RESULTS", (number, how)
        opened.append(len([*Path(f"/proc/{process.pid}/fd").iterdir()]))
        campaign.count("edits by hand before a warm answer")
    # Not the last alone: what answered may just be closing what it had open.
    assert process.poll() is None and min(opened[-20:]) <= min(opened[:20])
    warmth.close()
