"""The page of all records of a type, in the order of their identities, a page at a time."""

from starlette.responses import Response

from duckkb.serving.web.kinds import kinds
from duckkb.serving.web.naming import identity_of, title_of
from duckkb.serving.web.visit import Visit

SIZE = 50


async def page(visit: Visit) -> Response:
    """Show the types with their counts; with a type in the address, its records."""
    record_types, type_name = await kinds(visit), visit.get_parameter("type")
    if not type_name:
        return visit.render_page("records.html", kinds=record_types, kind=None, records=(), total=0, next=None)
    answer = await visit.ask("list", type=type_name, after=visit.request.query_params.get("after", ""), limit=SIZE)
    kind = next((item for item in record_types.values() if item.name.casefold() == type_name.casefold()), None)
    entries = []
    for item in answer["records"]:
        kind = record_types[item["_type"]]
        identity = identity_of(item, kind.identity)
        entries.append((identity, title_of(item, identity, kind.display)))
    return visit.render_page(
        "records.html", kinds=record_types, kind=kind, records=entries, total=answer["total"], next=answer["next"]
    )
