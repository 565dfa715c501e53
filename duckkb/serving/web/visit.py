"""A request for a page: its user, language and commit; the answers of actions, and the template that shows them."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from duckkb.caller import Caller
from duckkb.serving.front import ASKED, Answerer, Asked, Front
from duckkb.serving.web.drawing import draw_page, static
from duckkb.serving.web.gate import ROOT_PATH, VISITOR, Visitor, cookie_name, cookies, pages_root
from duckkb.serving.web.sessions import Sessions
from duckkb.serving.web.words import LANGUAGES, Words, choose_language, words

THEMES = ("light", "dark")


class Visit(Struct, frozen=True):
    """A request for a page.

    `form` are the fields of a form that was sent with its proof. `is_part`: a script asks for the part that it
    puts into the present page. `edits`: pages may have forms that propose changes of records.
    """

    request: Request
    front: Front
    sessions: Sessions
    form: Mapping[str, str]
    bar: Sequence[str] = ()
    edits: bool = False

    @property
    def visitor(self) -> Visitor:
        found: Visitor = self.request.scope[VISITOR]
        return found

    @property
    def asked(self) -> Asked:
        """The request to the base; only where somebody is signed in."""
        call: Asked = self.request.scope[ASKED]
        return call

    @property
    def caller(self) -> Caller:
        return self.asked.caller

    @property
    def words(self) -> Words:
        return words(choose_language(self._read_cookie("language"), self.request.headers.get("accept-language", "")))

    @property
    def root(self) -> str:
        """The path of all pages as the browser knows it."""
        return pages_root(self.request.scope)

    @property
    def at(self) -> str:
        """The commit of the page; empty for the present."""
        return self.get_parameter("at")

    @property
    def is_part(self) -> bool:
        return bool(self.get_parameter("part"))

    def get_parameter(self, name: str) -> str:
        """Return the parameter of the address with this name, else an empty text."""
        return self.request.query_params.get(name, "").strip()

    def number(self, name: str, otherwise: int, most: int = 1_000) -> int:
        """Return a parameter of the address as a number from 1 to `most`; `otherwise` where it is none."""
        text = self.get_parameter(name)
        return (
            min(int(text), most) if text.isascii() and text.isdigit() and 0 < len(text) < 9 and int(text) else otherwise
        )

    async def ask(self, name: str, **given: Any) -> dict[str, Any]:
        """Return the answer of an action for the signed-in user, at the commit of the page.

        Values that are None or empty are left out. Raises as `Front.run`.
        """
        return await self.ask_at(self.at, name, **given)

    async def ask_at(self, commit: str, name: str, **given: Any) -> dict[str, Any]:
        """Ask as `ask` does, at another commit; empty for the present."""
        arguments = {key: value for key, value in given.items() if value not in (None, "")}
        await asyncio.to_thread(self.asked.decide, "web", name, arguments)
        if commit:
            return await self.front.read(self.asked, _run_at_commit, commit, name, arguments, self.caller)
        return await self.front.run(self.asked, name, arguments)

    async def propose(self, name: str, message: str = "", **given: Any) -> dict[str, Any]:
        """Return the answer of an action on the user's proposal, which also gets what it writes.

        Values that are None are left out. Raises as `Served.run_in_proposal`.
        """
        arguments = {key: value for key, value in given.items() if value is not None}
        await asyncio.to_thread(self.asked.decide, "web propose", name, arguments)
        return await self.front.propose(self.asked, name, arguments, message)

    def link(self, page: str, **given: object) -> str:
        """Return the address of a page, at the commit of this one; empty values are left out."""
        query = {"at": self.at, **given}
        query_string = urlencode({name: str(value) for name, value in query.items() if value not in (None, "")})
        return f"{self.root}/{page}" + (f"?{query_string}" if query_string else "")

    def again(self, **given: object) -> str:
        """Return the address of this page with some parameters replaced."""
        query = {name: value for name, value in self.request.query_params.multi_items() if name != "part"}
        query_string = urlencode(
            {name: str(value) for name, value in {**query, **given}.items() if value not in (None, "")}
        )
        path = f"{self.request.scope.get(ROOT_PATH, '')}{self.request.scope['path']}"
        return quote(path) + (f"?{query_string}" if query_string else "")

    @property
    def here(self) -> str:
        """The address of this page."""
        return self.again()

    @property
    def now(self) -> str:
        """The address of this page at present."""
        return self.again(at="")

    def _read_cookie(self, topic: str) -> str:
        """Return what the browser stores of this base, empty where it stores nothing."""
        return cookies(self.request.headers).get(cookie_name(topic, self.sessions.base), "")

    def render_page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a template, which knows this visit as `visit`, and the words of its language as `say`."""
        say = self.words
        theme = self._read_cookie("theme")
        around = {
            "visit": self,
            "say": say,
            "languages": LANGUAGES,
            "theme": theme if theme in THEMES else "",
            "proof": self.sessions.proof(self.visitor.session),
            "static": partial(static, self.root),
        }
        return HTMLResponse(draw_page(template, {**around, **values}), status)


def _run_at_commit(
    answerer: Answerer, commit: str, name: str, arguments: Mapping[str, Any], caller: Caller
) -> dict[str, Any]:
    with answerer.open_revision(commit, caller) as past:
        return past.run(name, arguments, caller)
