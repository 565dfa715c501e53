"""The routes of the pages."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from duckkb.operations.dispatch import failure
from duckkb.server.authentication import Denial, get_notes
from duckkb.server.dispatcher import Front, drop_if_client_leaves
from duckkb.server.http_statuses import status_of
from duckkb.server.request_telemetry import GONE
from duckkb.server.server_log import report_unexpected
from duckkb.server.web import base_pages, change_pages, record_pages
from duckkb.server.web.page_request import (
    ROOT,
    THEMES,
    Sessions,
    Visit,
    cookie_name,
    cookies,
    is_over_tls,
    pages_root,
    session_cookie,
)
from duckkb.server.web.templates import KINDS, LANGUAGES, edition, files
from duckkb.types.errors import DuckkbError, NotFound, Refused

_MOST_FIELDS = 10_000
_YEAR_S = 365 * 24 * 3600
Shown = Callable[[Visit], Awaitable[Response]]


class WebPage(Struct, frozen=True):
    """A page: its address below the root, and the function that shows it.

    It also says whether the navigation bar has it, under the word `bar.ADDRESS`. `sends`: it takes forms, too.
    """

    address: str
    shown: Shown
    in_bar: bool = False
    sends: bool = False


PAGES: Sequence[WebPage] = (
    WebPage("search", record_pages.search_page, in_bar=True),
    WebPage("records", record_pages.records_page, in_bar=True),
    WebPage("record", record_pages.record_page),
    WebPage("record/field", record_pages.field),
    WebPage("record/edges", record_pages.edges),
    WebPage("record/picture", record_pages.picture),
    WebPage("record/history", record_pages.history),
    WebPage("record/compare", record_pages.compare),
    WebPage("record/origin", record_pages.origin),
    WebPage("record/citing", record_pages.list_citing_records),
    WebPage("record/near", record_pages.near),
    WebPage("changes", change_pages.branches, in_bar=True),
    WebPage("change", change_pages.change_page),
    WebPage("change/findings", change_pages.findings),
    WebPage("change/impact", change_pages.impact),
    WebPage("conflicts", change_pages.conflicts_page, sends=True),
    WebPage("ontology", base_pages.ontology_page, in_bar=True),
    WebPage("ontology/picture", base_pages.picture),
    WebPage("ontology/type", base_pages.type),
    WebPage("health", base_pages.health_page, in_bar=True),
    WebPage("health/findings", base_pages.findings),
    WebPage("health/growth", base_pages.growth),
    WebPage("quality", base_pages.quality_page, in_bar=True, sends=True),
    WebPage("quality/report", base_pages.report),
)
"""All pages but those of signing in and out."""
_EDITING = (WebPage("edit", change_pages.edit_page, sends=True),)
"""The pages of a server that lets records be edited."""
BAR = tuple(page.address for page in PAGES if page.in_bar)


def routes(front: Front, sessions: Sessions, *, edits: bool = False) -> list[Route]:
    """Return the routes for `Entrance`, which lets in users who are signed in.

    `edits`: with forms that propose changes of records.
    """

    def route(page: WebPage) -> Route:
        methods = ["GET", "POST"] if page.sends else ["GET"]
        return Route(f"{ROOT}/{page.address}", _build_handler(page.shown, front, sessions, edits), methods=methods)

    session_pages = (
        WebPage("sign-in", _sign_in, sends=True),
        WebPage("sign-out", _sign_out, sends=True),
        WebPage("open", _open),
    )
    late_pages = (WebPage("preferences", _save_preferences, sends=True), WebPage("{rest:path}", _refuse_page))
    return [
        Route("/", _redirect_home),
        Route(ROOT, _redirect_home),
        Route(f"{ROOT}/", _redirect_home),
        Route(f"{ROOT}/static/{{edition}}/{{name}}", _serve_file),
        *map(route, (*session_pages, *PAGES, *(_EDITING if edits else ()), *late_pages)),
    ]


def _build_handler(
    handler: Shown, front: Front, sessions: Sessions, edits: bool
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        if request.method == "POST":
            return await respond(request)
        result = await drop_if_client_leaves(
            request.receive, respond(request)
        )  # the user typed on, and asks for something else
        return Response(status_code=GONE) if result is None else result

    async def respond(request: Request) -> Response:
        visit = Visit(request, front, sessions, {}, BAR, edits)
        answer, visitor = await draw_page(visit), visit.visitor
        is_new = visitor.by_proxy and visitor.session and visitor.session not in cookies(request.headers).values()
        return _with_session(visit, answer, visitor.session) if is_new else answer

    async def draw_page(visit: Visit) -> Response:
        request, denial = visit.request, visit.visitor.denial
        try:
            if request.method == "POST":
                visit = replace(visit, form=await _read_form(request, visit))
            if denial is not None:
                problem_shown = {"code": denial.code, "message": denial.message, "suggestion": ""}
                return visit.render_page("problem.html", denial.status, problem=problem_shown)
            return await handler(visit)
        except Exception as problem:
            get_notes(request.scope).code = problem.code if isinstance(problem, DuckkbError) else "E_INTERNAL"
            if not isinstance(problem, DuckkbError):
                report_unexpected("http /web", problem)
            template = "problem_box.html" if visit.is_part else "problem.html"
            return visit.render_page(template, status_of(problem), problem=failure(problem)["error"])

    return answer


async def _read_form(request: Request, visit: Visit) -> dict[str, str]:
    """Return the fields of a form, after checking its proof that a page of this server sent it.

    A script sends the proof by a header. Raises `errors.Refused`.
    """
    try:
        body = (await request.body()).decode()
        fields = dict(parse_qsl(body, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        fields = {}
    proof = fields.pop("proof", "") or request.headers.get("x-proof", "")
    if not visit.sessions.is_proven(visit.visitor.session, proof):
        raise Refused(
            "this form does not belong to your current session", "E_DENIED", "reload the page, and send it again"
        )
    return fields


async def _redirect_home(request: Request) -> Response:
    return RedirectResponse(f"{pages_root(request.scope)}/search", 303)


async def _serve_file(request: Request) -> Response:
    name = request.path_params["name"]
    data = files().get(name)
    if data is None or request.path_params["edition"] != edition():
        return Response(status_code=404)
    headers = {"cache-control": f"public, max-age={_YEAR_S}, immutable", "etag": f'"{edition()}"'}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=KINDS[f".{name.rpartition('.')[2]}"])


async def _refuse_page(visit: Visit) -> Response:
    raise NotFound("page not found", suggestion="see the pages above")


async def _sign_in(visit: Visit) -> Response:
    """Ask for a token, and begin a session for it."""
    target = _restrict_address(visit.form.get("next", "") or visit.get_parameter("next"), visit.root)
    if visit.visitor.by_proxy:
        return RedirectResponse(target, 303)
    if visit.request.method == "GET":
        name = visit.visitor.session or visit.sessions.nameless()
        proof = visit.sessions.proof(name)
        problem = "code" if visit.get_parameter("problem") == "code" else ""
        return _with_session(visit, visit.render_page("sign_in.html", next=target, problem=problem, proof=proof), name)
    outcome = visit.sessions.sign_in(visit.form.get("token", "").strip())
    notes = get_notes(visit.request.scope)
    if isinstance(outcome, Denial):
        if (busy := await visit.sessions.strangers.refuse(outcome, "web sign-in", notes)) is not None:
            raise busy
        return visit.render_page("sign_in.html", outcome.status, next=target, problem=outcome.code)
    await asyncio.to_thread(
        visit.sessions.audit, outcome.tenant, "web sign-in", "allowed", notes.request_id, notes.address
    )
    notes.tenant = outcome.tenant
    return _with_session(visit, RedirectResponse(target, 303), outcome.session)


async def _open(visit: Visit) -> Response:
    if visit.visitor.by_proxy:  # the user who started the server uses no proxy, and the address signs in once
        return RedirectResponse(f"{visit.root}/search", 303)
    name = visit.sessions.redeem(visit.get_parameter("code"))
    if name is None:
        return RedirectResponse(f"{visit.root}/sign-in?problem=code", 303)
    return _with_session(visit, RedirectResponse(f"{visit.root}/search", 303), name)


async def _sign_out(visit: Visit) -> Response:
    if visit.request.method != "POST":  # a link, which a record may contain, must not sign anybody out
        return RedirectResponse(f"{visit.root}/search", 303)
    if visit.visitor.by_proxy:
        raise Refused("a proxy signed you in, and would do so again", "E_DENIED", "sign out where you signed in")
    visit.sessions.end(visit.visitor.session)
    answer = RedirectResponse(f"{visit.root}/sign-in", 303)
    answer.delete_cookie(session_cookie(visit.request.headers, visit.sessions.base), path=visit.root)
    return answer


async def _save_preferences(visit: Visit) -> Response:
    """Save light or dark, and the language, in the browser."""
    answer = RedirectResponse(_restrict_address(visit.form.get("next", ""), visit.root), 303)
    for name, allowed_values in (("theme", THEMES), ("language", tuple(LANGUAGES))):
        cookie = cookie_name(name, visit.sessions.base)
        if (value := visit.form.get(name)) in allowed_values:
            answer.set_cookie(cookie, str(value), _YEAR_S, path=visit.root, httponly=True, samesite="strict")
        elif value == "":
            answer.delete_cookie(cookie, path=visit.root)
    return answer


def _with_session(visit: Visit, answer: Response, name: str) -> Response:
    headers = visit.request.headers
    answer.set_cookie(
        session_cookie(headers, visit.sessions.base), name, path=visit.root,
        httponly=True, samesite="strict", secure=is_over_tls(headers),
    )  # fmt: skip
    return answer


def _restrict_address(address: str, root: str) -> str:
    """Return an address of this server's pages; the first page for any other."""
    parts = urlsplit(address)
    is_own = not parts.scheme and not parts.netloc and parts.path.startswith(f"{root}/") and "\\" not in address
    is_shown = is_own and address.isprintable() and not parts.path.startswith(f"{root}/sign-")
    return address if is_shown else f"{root}/search"
