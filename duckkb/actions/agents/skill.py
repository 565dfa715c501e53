"""The skill: the page that tells coding agents how to use duckkb."""

from importlib.resources import files
from pathlib import Path

from duckkb import config
from duckkb.truth.commit import outside

FOLDER = "~/.claude/skills"


def text() -> str:
    """Return the page, Markdown with front matter."""
    return files("duckkb.actions.agents").joinpath("SKILL.md").read_text("utf-8")


def install(to: str | Path = FOLDER, *, force: bool = False) -> tuple[Path, bool]:
    """Write the page to `to`/duckkb/SKILL.md; return its path, and whether it was written or was there already.

    Raises `errors.UsageError` (E_PATH) where another file is there, unless `force`, or where callers may not write.
    """
    env = config.environment()
    target, data = outside.sound(to).expanduser() / "duckkb" / "SKILL.md", text().encode()
    if env.sandbox:
        outside.grant_outside_path(target, config.find_root(Path.cwd(), None, env), env)
    outside.refuse_protected_path(target, env)
    if target.is_file() and target.read_bytes() == data:
        return target, False
    target.parent.mkdir(parents=True, exist_ok=True)
    outside.write(target, [data], target.parent, env, force=force)
    return target, True
