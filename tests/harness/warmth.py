"""With `pytest --warm`: each command that a warm process may answer is asked of one too, and has to end in the same way.

The processes are forks as all others of the tests are, one of each base and environment; few live at a time.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from duckkb import warm_client
from tests.harness.forks import COMMAND, Forked, Forks
from tests.harness.waiting import HANG_S

MOST = 2
MAY_STAY_COLD = "it reads stdin"
Ended = tuple[int, bytes, bytes]


class Warmth:
    """Warm processes, as `forks` gives them for a base. `compared` counts the commands that were answered in both ways."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="warm"))
        self._living: dict[tuple[object, ...], Forked] = {}
        self.env = {"XDG_RUNTIME_DIR": str(self._folder)}
        self.compared = 0

    def check(
        self, forks: Forks, root: Path, args: Sequence[str], stdin: bytes, env: Mapping[str, str], cold: Ended
    ) -> None:
        """Have a warm process answer what ended as `cold`, and compare. A run leaves behind what the next one need not do and say
        again, and an endpoint may fail once: then those that follow have to be equal."""
        base = _base(root, args, env)
        if warm_client.verb(list(args)) not in warm_client.SERVED or base is None:
            return
        if b"base_url" in (base / "config.yaml").read_bytes():  # a test counts what its endpoint is asked
            return
        around = {**env, **self.env}
        self.start(forks, base, env)

        def ask(how: str) -> Ended:
            return forks.output(COMMAND, args, root, stdin, {**around, "DUCKKB_DAEMON": how})

        warm = ask("require")
        if b"no warm process answers" in warm[2] and MAY_STAY_COLD.encode() in warm[2]:
            return
        self.compared += 1
        if warm != cold:
            again = ask("off")
            assert again in (warm, ask("require")), f"{args}\nwarm: {warm}\ncold: {cold}\ncold again: {again}"

    def close(self) -> None:
        """End them all."""
        for process in self._living.values():
            process.kill()
            process.wait()
        self._living.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def socket(self, base: Path) -> Path:
        """Where the warm process of a base listens."""
        return Path(warm_client.socket_of(str(base), str(self._folder / "duckkb")))

    def start(self, forks: Forks, base: Path, env: Mapping[str, str], *more: str) -> Forked:
        """The warm process of a base in an environment, once it listens."""
        key = (base, *sorted(item for item in env.items() if item[0] != "DUCKKB_DAEMON"))
        if key in self._living and self._living[key].poll() is None:
            return self._living[key]
        for other in [one for one in self._living if one[0] == base] + [*self._living][: len(self._living) + 1 - MOST]:
            if other in self._living:
                process = self._living.pop(other)
                process.kill()
                process.wait()
        self.socket(base).unlink(missing_ok=True)
        log = self._folder / "log"
        command = ["--kb", str(base), "serve", "--warm", "--in-background", *more]
        around = {**env, **self.env}
        self._living[key] = process = forks.start(COMMAND, command, cwd=base, env=around, files=(os.devnull, log, log))
        deadline = time.monotonic() + HANG_S
        while not self.socket(base).exists():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.002)
        return process


def _base(root: Path, args: Sequence[str], env: Mapping[str, str]) -> Path | None:
    named = env.get("DUCKKB_KB") or None
    for at, word in enumerate(args):
        if word == "--":
            break
        if word == "--kb" or word.startswith("--kb="):
            named = word[5:] or (args[at + 1] if at + 1 < len(args) else None)
    found = [(root / named).resolve()] if named else [root.resolve(), *root.resolve().parents]
    return next((one for one in found if os.path.lexists(one / "config.yaml")), None)
