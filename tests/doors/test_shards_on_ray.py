"""Shards as tasks of a real Ray on this machine: two workers make what one process makes, also where one of them is lost."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Ran, commit, make_base, run_in
from tests.doors.test_index_jobs import CONFIG, texts_of
from tests.fake_endpoint import FakeEndpoint
from tests.harness.waiting import HANG_S

OF = 4


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[tuple[Path, FakeEndpoint, dict[str, str]]]:
    with FakeEndpoint() as endpoint:
        root = make_base(tmp_path / "kb", CONFIG.format(url=endpoint.url, more="concurrency: 1"))
        env = {"XDG_STATE_HOME": str(tmp_path / "state"), "DUCKKB_CACHE_HOME": str(tmp_path / "cache")}
        lines = "\n".join(f'{{"id":"n{at}","text":"{text}"}}' for at, text in enumerate(texts_of(80)))
        assert run_in(root, ["trust"], env=env).code == 0
        assert run_in(root, ["put", "Note", "--no-embed"], stdin=lines, env=env).code == 0
        commit(root)
        yield root, endpoint, env


def _around(env: dict[str, str]) -> dict[str, str]:
    """Where Ray is found from any folder, in its workers too."""
    found = importlib.util.find_spec("ray")
    home = {"PYTHONPATH": str(Path(found.origin).parents[1])} if found and found.origin else {}
    return {**os.environ, **home, **env}


def _on_ray(root: Path, out: Path, env: dict[str, str]) -> Ran:
    command = [sys.executable, "-m", "duckkb", "index", "build", "--executor", "ray", "--shards", str(OF), "--out", str(out), "--json"]  # fmt: skip
    done = subprocess.run(command, cwd=root, env=_around(env), capture_output=True, text=True, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def _alone(root: Path, out: Path, env: dict[str, str]) -> dict[str, bytes]:
    for number in range(1, OF + 1):
        assert run_in(root, ["index", "build", "--shard", f"{number}/{OF}", "--out", str(out)], env=env).code == 0
    return {path.name: path.read_bytes() for path in out.iterdir()}


def _needs_ray() -> None:
    pytest.importorskip("ray", reason="needs the extra `ray`: make test-ray")


def test_two_workers_make_the_bytes_of_one_process(
    ground: tuple[Path, FakeEndpoint, dict[str, str]], tmp_path: Path
) -> None:
    _needs_ray()
    root, endpoint, env = ground
    ran = _on_ray(root, tmp_path / "out", env)
    assert ran.code == 0, ran.err
    assert sorted(one["shard"] for one in ran.lines) == [f"{number}/{OF}" for number in range(1, OF + 1)]
    assert sorted(endpoint.texts) == sorted(texts_of(80)), "each text once"
    made = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert made == _alone(root, tmp_path / "alone", env)
    again = _on_ray(root, tmp_path / "out", env)
    assert again.code == 0 and sum(one["embedded"] for one in again.lines) == 0
    adopted = run_in(root, ["index", "adopt", str(tmp_path / "out"), "--to", "team"], env=env)
    assert (adopted.code, adopted.line["pending"]) == (0, 0)


def test_a_lost_worker_is_replaced_and_nothing_is_made_twice(
    ground: tuple[Path, FakeEndpoint, dict[str, str]], tmp_path: Path
) -> None:
    _needs_ray()
    root, endpoint, env = ground
    out = tmp_path / "out"
    command = [sys.executable, "-m", "duckkb", "index", "build", "--executor", "ray", "--shards", str(OF), "--out", str(out)]  # fmt: skip
    began = len(endpoint.texts)
    endpoint.silent_after = len(endpoint.asked) + 2  # two batches are answered, then the workers wait
    with subprocess.Popen(command, cwd=root, env=_around(env), stdout=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + HANG_S
        while not (workers := [pid for path in out.glob("*.partial") if (pid := _holder(path))]):
            assert time.monotonic() < deadline and running.poll() is None
            time.sleep(0.05)
        os.kill(workers[0], signal.SIGKILL)
        endpoint.silent_after = None
        for pid in workers[1:]:
            os.kill(pid, signal.SIGKILL)
        told = running.communicate(timeout=HANG_S)[0]
    assert running.returncode == 0, told
    made = {path.name: path.read_bytes() for path in out.iterdir()}
    assert made == _alone(root, tmp_path / "alone", env)
    assert len(endpoint.texts) > began


def _holder(path: Path) -> int | None:
    """The process that has a file open, as the kernel knows it."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and any(one.readlink() == path for one in (entry / "fd").iterdir()):
                return int(entry.name)
        except OSError:
            continue
    return None


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_executor_says_what_to_install(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", CONFIG.format(url="http://127.0.0.1:9/v1", more=""))
    ran = _on_ray(root, tmp_path / "out", {})
    assert (ran.code, ran.error["code"]) == (1, "E_EXECUTOR") and "duckkb[ray]" in ran.error["suggestion"]
