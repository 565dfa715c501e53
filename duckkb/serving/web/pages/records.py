"""The page of all records of a type, in the order of their identities, a page at a time."""

from starlette.responses import Response

from duckkb.serving.web.kinds import kinds
from duckkb.serving.web.naming import identity_of, title_of
from duckkb.serving.web.visit import Visit

SIZE = 50


async def page(visit: Visit) -> Response:
    """The types with their counts; of one that the address names, its records."""
    known, chosen = await kinds(visit), visit.given("type")
    if not chosen:
        return visit.shown("records.html", kinds=known, kind=None, records=(), total=0, next=None)
    answer = await visit.ask("list", type=chosen, after=visit.request.query_params.get("after", ""), limit=SIZE)
    kind = next((one for one in known.values() if one.name.casefold() == chosen.casefold()), None)
    found = []
    for one in answer["records"]:
        kind = known[one["_type"]]
        identity = identity_of(one, kind.identity)
        found.append((identity, title_of(one, identity, kind.display)))
    return visit.shown(
        "records.html", kinds=known, kind=kind, records=found, total=answer["total"], next=answer["next"]
    )
