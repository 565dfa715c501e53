"""The formats of a difference: each makes text of it, and knows what of the data must not act where it is shown."""

from collections.abc import Callable, Iterable, Mapping

from duckkb.review.diff.model import Diff, Options

Renderer = Callable[[Diff, Options], Iterable[str]]
"""Makes pieces of text, each without the LF behind it."""


def _text(diff: Diff, options: Options) -> Iterable[str]:
    from duckkb.review.diff import text

    return text.render(diff, options)


def _json(diff: Diff, options: Options) -> Iterable[str]:
    from duckkb.review.diff import report

    return report.as_json(diff, options)


def _jsonl(diff: Diff, options: Options) -> Iterable[str]:
    from duckkb.review.diff import report

    return report.as_lines(diff, options)


def _patch(diff: Diff, options: Options) -> Iterable[str]:
    from duckkb.review.diff import patch

    return patch.render(diff, options)


def _markdown(diff: Diff, options: Options) -> Iterable[str]:
    from duckkb.review.diff import markdown

    return markdown.render(diff, options)


def _github(diff: Diff, options: Options) -> Iterable[str]:
    from duckkb.review.diff import github

    return github.render(diff, options)


def _html(diff: Diff, options: Options) -> Iterable[str]:
    from duckkb.review.diff.html import page

    return page.render(diff, options)


RENDERERS: Mapping[str, Renderer] = {
    "text": _text,
    "patch": _patch,
    "markdown": _markdown,
    "html": _html,
    "github": _github,
    "json": _json,
    "jsonl": _jsonl,
}
"""By the name of the format. What a renderer needs is imported when it is asked for."""

BUDGETS: Mapping[str, int] = {"markdown": 60_000, "html": 100_000_000}
"""The most bytes of a format where nothing else is asked for: a forge takes a comment of 65,536, a browser opens a page of
that size; of the others `BUDGET`."""
BUDGET = 1_000_000
WHOLE = ("patch", "github")
"""Told whole: a part of a patch is none, and annotations are grouped and counted."""


def render(form: str, diff: Diff, options: Options) -> Iterable[str]:
    """The pieces of a difference in one of `RENDERERS`. Raises as `page.Page` does."""
    return RENDERERS[form](diff, options)
