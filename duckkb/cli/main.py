"""The command line: verbs that are imported when they run, and the one place where errors become exit codes."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import terminal
from duckkb.cli.options import Format, agree, split_front
from duckkb.cli.verb_list import BY_NAME, VERBS

if TYPE_CHECKING:
    from duckkb.types.errors import DuckkbError, Finding


_REFUSED_NAMES = (
    "E_UNKNOWN_TYPE",
    "E_NOT_FOUND",
    "E_REVISION",
    "E_PATH",
    "E_USAGE",
    "E_IDENTITY",
    "E_INVALID",
    "E_SQL",
)
"""Codes of errors that name what a base does not have, as a line of another program may."""
_MOST_FINDINGS = 36  # lines: with the error and what to try a screen of 40


class VerbGroup(click.Group):
    """A group whose commands are imported when they run; an unknown verb suggests the nearest verb."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb.name for verb in VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = BY_NAME.get(cmd_name)
        if verb is None:
            return None
        if not verb.module:
            from duckkb.cli.command import action_verb

            return action_verb(verb.name.replace("-", "_"))
        module = import_module(f"duckkb.cli.{verb.module}")
        command: click.Command = getattr(module, f"{verb.name.replace('-', '_')}_command")
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[:1] == ["help"]:
            if not args[1:]:
                click.echo(ctx.get_help())
                ctx.exit()
            args = [*args[1:], "--help"]
        if args == ["version"]:
            _print_version(ctx, ctx.command.params[0], True)
        if args and args[0] not in BY_NAME:
            from duckkb.cli.other_tools import find_command
            from duckkb.cli.suggestions import NoSuchVerb, find_meaning

            word, meant = find_meaning(args)
            raise NoSuchVerb(word, list(BY_NAME), ctx, meant, find_command(ctx, args))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group in dict.fromkeys(verb.group for verb in VERBS):
            with formatter.section(group.capitalize()):
                formatter.write_dl([(verb.name, verb.summary) for verb in VERBS if verb.group == group])


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"duckkb {version('duckkb')}")
        ctx.exit()


def _print_skill(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from duckkb.operations import agent_knowledge

        terminal.result(agent_knowledge.text(), end="")
        ctx.exit()


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--kb",
    metavar="PATH",
    help="The knowledge base (before or after the verb). Default: DUCKKB_KB, else the nearest parent folder with config.yaml.",
)
@click.option(
    "--format", "form", type=Format(), metavar="FORMAT", help=f"{Format().help[:-1]} (before or after the verb)."
)
@click.option("--json", "as_json", is_flag=True, help="Results and errors as JSON (before or after the verb).")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
@click.option(
    "--skill", is_flag=True, is_eager=True, expose_value=False, callback=_print_skill, help="Print the page for agents."
)
@click.pass_context
def duckkb(ctx: click.Context, kb: str | None, form: str | None, as_json: bool) -> None:
    """Knowledge in git: JSONL files are the truth, search runs offline.

    stdout holds results, one JSON object per line (or another --format); everything else goes to stderr. Exit
    codes: 0 done; 1 no result, refused, or findings; 2 the command line, the filter or the ontology is wrong.
    """
    ctx.obj = {"kb": kb, "json": as_json, "format": form}
    agree(ctx.obj)


def run(args: Sequence[str]) -> int:
    """Run a command line and return its exit code; never raises an expected error."""
    _set_up_messages(args)
    try:
        result = duckkb.main(args=list(args), prog_name="duckkb", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as exit_request:
        return int(exit_request.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _report_interrupt()
    except click.exceptions.NoArgsIsHelpError as help_request:
        from duckkb.cli.advice import advise

        if not terminal.says_json():
            terminal.text(help_request.format_message())
        return terminal.error("no command given", "E_USAGE", advise(duckkb, help_request, args), 2)
    except click.ClickException as problem:
        from duckkb.cli.advice import advise
        from duckkb.cli.suggestions import near_options

        if isinstance(problem, click.NoSuchOption):
            problem = click.NoSuchOption(problem.option_name, possibilities=near_options(problem), ctx=problem.ctx)
        message = problem.format_message().replace("\n\t", " ")  # choices come a line each
        return terminal.error(message, "E_USAGE", advise(duckkb, problem, args), 2)
    except (BrokenPipeError, SystemExit):  # click itself exits where a write finds the pipe closed, and nowhere else
        return _quiet_pipe()
    except Exception as problem:
        # A signal inside a library, or while one was being imported, may come out as any error.
        return _report_interrupt() if terminal.is_stop_requested() else _report_error(problem, args)
    return result if isinstance(result, int) else 0


def report_unanswered(args: Sequence[str], problem: BaseException) -> int:
    """Return the exit code of a command that a warm process did not answer, or whose answer could not be printed.

    The cause is a signal, a closed or full stdout, or a missing process, which is an error only under
    DUCKKB_DAEMON=require.
    """
    _set_up_messages(args)
    if terminal.is_stop_requested():
        return _report_interrupt()
    if isinstance(problem, OSError):
        return _report_error(terminal.make_print_error(problem))
    return terminal.error(f"no warm process answers: {problem}", "E_WARM", "duckkb serve --warm", 1)


def _set_up_messages(args: Sequence[str]) -> None:
    """Configure messages: in JSON where the command line asks for it, and with its base in suggested commands."""
    terminal.say_in_json(_has_json_flag(args))
    front, _ = split_front(args)
    terminal.name_base(front[1] if front[:1] == ["--kb"] else "")


def _has_json_flag(args: Sequence[str]) -> bool:
    """Return whether the command line asks for JSON, even where it cannot be parsed."""
    words = list(takewhile(lambda word: word != "--", args))
    return "--json" in words or "--format=json" in words or ("--format", "json") in pairwise(words)


def _report_interrupt() -> int:
    suggestion = "run it again; a write was completed or did not happen at all"
    return terminal.error("interrupted", "E_INTERRUPTED", suggestion, terminal.exit_code(130))


def _report_error(problem: Exception, args: Sequence[str] = ()) -> int:
    from duckkb.types.errors import DuckkbError

    if isinstance(problem, DuckkbError):
        return _fail(problem, args)
    if isinstance(problem, OSError):
        from duckkb.storage.clone_state import remedy_of

        message = f"{problem.strerror or problem}" + (f" {problem.filename}" if problem.filename else "")
        return terminal.error(message, "E_IO", remedy_of(problem, "mend permissions"), 1)
    message = f"a bug in duckkb: {type(problem).__name__}: {problem}"
    return terminal.error(message, "E_INTERNAL", "report it; no record was changed", 1)


def _fail(problem: "DuckkbError", args: Sequence[str]) -> int:
    """Print an error and return its exit code; without a suggestion of its own it gets the remedy of its code."""
    from duckkb.types.codes import CODES

    again = ""
    if problem.code in _REFUSED_NAMES:
        from duckkb.cli.advice import advise_refused

        again = advise_refused(duckkb, args)
    if not again and problem.correction is not None:
        from duckkb.cli.advice import correct

        again = correct(args, *problem.correction)
    suggestion = again or problem.suggestion or (CODES[problem.code].remedy if problem.code in CODES else "")
    if suggestion.startswith(("duckkb ", "echo ")):
        from duckkb.cli.advice import complete

        suggestion = complete(args, suggestion)
    details = dict(problem.details)
    outcome = details.pop("outcome", None)
    if problem.findings:
        from duckkb.operations.record_lines import finding_line

        lines, brief = map(finding_line, problem.findings), terminal.brief
        details["findings"] = [{k: brief(v) if isinstance(v, str) else v for k, v in line.items()} for line in lines]
    has_message = len(problem.findings) == 1 and problem.findings[0].message in problem.message
    if problem.findings and not terminal.says_json() and not has_message:
        _note_findings(problem.findings)
    more = ({"details": details} if details else {}) | ({"outcome": outcome} if outcome else {})
    return terminal.error(problem.message, problem.code, suggestion, problem.exit_code, more)


def _note_findings(findings: "Sequence[Finding]") -> None:
    """Print findings for people, equal messages once, and no more lines than fit on a screen."""
    from duckkb.review.report_formats import summarize_groups

    groups = summarize_groups(findings)
    for finding in groups[:_MOST_FINDINGS]:
        terminal.note(terminal.brief(str(finding)))
    if len(groups) > _MOST_FINDINGS:
        terminal.note(f"and {len(groups) - _MOST_FINDINGS:,} more; --json lists all")


def _quiet_pipe() -> int:
    """Return success for a closed pipe (`| head -1`), and redirect stdout so that the flush at exit is silent."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
