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

    return report.as_lines(diff)


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
    "json": _json,
    "jsonl": _jsonl,
    "patch": _patch,
    "markdown": _markdown,
    "github": _github,
    "html": _html,
}
"""By the name of the format. What a renderer needs is imported when it is asked for."""


def render(form: str, diff: Diff, options: Options) -> Iterable[str]:
    """The pieces of a difference in one of `RENDERERS`."""
    return RENDERERS[form](diff, options)
