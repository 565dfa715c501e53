"""The verb propose: writes go onto a branch for review instead of into the files."""

from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import printed
from duckkb.cli.options import read_front_options
from duckkb.cli.verb import group, prepare_unopened
from duckkb.cli.verbs.write import delete_command, import_command, put_command, rename_command
from duckkb.errors import shell_word

if TYPE_CHECKING:
    from duckkb.actions.branches import Proposing


@group("propose")
@click.option("--branch", metavar="NAME", help="The branch to write. Default: a new one.")
@click.option("--continue", "goes_on", is_flag=True, help="Add to --branch, even if someone else made it.")
@click.option("--base", metavar="REF", help="Revision to start from. Default: the branch, else HEAD.")
@click.option("-m", "--message", metavar="TEXT", help="The commit's message.")
def propose_command(branch: str | None, goes_on: bool, base: str | None, message: str | None) -> None:
    """The changes become a commit on the branch. Files, index and HEAD do not change.

    \b
    duckkb propose put concept '{"id": "chunk", "summary": "..."}' --merge
    duckkb propose --branch fix-names delete concept old-name

    The commands have the same parameters as without `propose`, and read the committed base. The receipt has
    `branch`, `commit`, and the command and page that open a pull request. If DUCKKB_AGENT is set and the
    ontology has `review: required` on a type or `x-review` on a field, direct writes are refused; use
    `propose`."""
    if goes_on and branch is None:
        raise click.UsageError("--continue needs the --branch to continue")
    proposals: list[Proposing] = []

    def start_proposal() -> "Proposing":
        from duckkb.actions.branches import Proposing, Wish

        inner = click.get_current_context()
        title = f"{inner.info_name} {inner.params.get('type_name', '')}".strip()
        proposals.append(Proposing(prepare_unopened().root, Wish(title, branch, base, message or "", goes_on)))
        return proposals[0]

    read_front_options().update(proposing=start_proposal, proposed=lambda: _report_proposal(proposals[0]))


def _report_proposal(proposal: "Proposing") -> dict[str, Any]:
    result = proposal.proposed
    if not result.commit:
        printed.note("nothing differs, so nothing was proposed")
    else:
        branch = shell_word(result.branch)
        printed.note(f"next: {result.push or f'duckkb review HEAD...{branch}'}")
        printed.note(f"then: open {result.url or 'a pull request'}" if result.push else f"then: duckkb merge {branch}")
    return result.line


for _verb in (put_command, import_command, delete_command, rename_command):
    propose_command.add_command(_verb)
