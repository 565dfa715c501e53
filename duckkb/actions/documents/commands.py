"""Commands that a configuration names, run with the user's rights once this machine trusts them."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from duckkb import config
from duckkb.engine.base import Base
from duckkb.errors import Refused
from duckkb.settings import SEAL_KEY, SEAL_KEY_FILE

_TOLD = 4_096  # bytes


def trusts_commands(base: Base) -> bool:
    """Return whether this machine trusts all commands of the base's configuration as they are now."""
    commands = config.commands(base.settings, base.ontology)
    return config.are_commands_trusted(base.root, commands, base.wiring.env)


def run(
    command: str | Sequence[str],
    folder: Path,
    what: str,
    seconds: float,
    remedy: str,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run a command (text: by the shell) in a folder, without stdin, in the user's environment and `variables`.

    The environment holds the keys and hosts that the command may need. `what` names the command, and `remedy`
    the fix, in messages. Raises `errors.Refused` where it fails or takes more than `seconds`; its child
    processes are then ended too.
    """
    with TemporaryFile() as error_output:  # not a pipe, which a left-over child could hold open for ever
        try:
            process = subprocess.Popen(
                command,
                shell=isinstance(command, str),
                cwd=folder,
                env={**_build_environment(), "GIT_TERMINAL_PROMPT": "0", **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=error_output,
                start_new_session=True,
            )
            code = _wait_for_exit(process, seconds)
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = f"within {seconds:g} s" if isinstance(error, subprocess.TimeoutExpired) else f"well: {error}"
            raise Refused(f"{what} did not end {reason}", suggestion=remedy) from error
        if code:
            error_output.seek(max(0, error_output.seek(0, os.SEEK_END) - _TOLD))
            lines = error_output.read().decode("utf-8", "replace").strip().splitlines()
            message = f"{what} ended with {code}"
            raise Refused(f"{message}: {lines[-1]}" if lines else message, suggestion=remedy)


def _build_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in (SEAL_KEY, SEAL_KEY_FILE)}


def _wait_for_exit(process: "subprocess.Popen[bytes]", seconds: float) -> int:
    """Return the exit code of a process; on a timeout or an interrupt, end it with all that it started."""
    try:
        return process.wait(seconds)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
        process.wait()
        raise
