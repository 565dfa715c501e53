"""No base is silently blind: records are compared by meaning in the fields that have text, or it is said that nothing is."""

import json
from pathlib import Path

import duckkb
from duckkb import app
from duckkb.engine.meaning import text_fields, with_vectors
from duckkb.ontology.model import NodeType
from tests.conftest import NOTES, commit, git, make_base
from tests.fakes import HashEmbedder

MEANT = NOTES.replace("{embedding_model: none}", "{}").replace("[title, text]", "[title, text], vectors: [text]")
FAQ = {
    "id": "a",
    "question": "How do I get a refund?",
    "answer": "Within 30 days.",
    "lang": "en",
    "updated": "2026-01-31",
}


def opened(root: Path) -> duckkb.KnowledgeBase:
    return duckkb.open(root, embedder=HashEmbedder())


def test_the_first_records_of_a_collection_decide_which_fields_are_compared_by_meaning(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", MEANT)
    with opened(root) as kb:
        kb.collections.init("faq", policy="knowledge-base")
        commit(root)
        dry = kb.put("faq", FAQ, dry_run=True)
        assert "+        - question" in dry.patch and not git(root, "status", "--porcelain")
        receipt = kb.put("faq", FAQ)
        assert "ontology/collections/faq.yaml" in receipt.files and receipt.pending == 0
        assert [notice.code for notice in receipt.notices if notice.code.startswith("W_FIELDS")] == ["W_FIELDS_CHOSEN"]
        assert [line for line in git(root, "diff", "-U0", "ontology").splitlines()[4:] if line[0] in "+-"] == [
            "-        - content", "+        - answer", "+        - question",
        ]  # fmt: skip
        (hit,) = kb.find("faq", "refund", mode="similar").hits
        assert hit.record["id"] == "a"
        assert kb.status()["warnings"] == []
        again = kb.put("faq", {"id": "b", "content": "All else"})
        assert not [notice for notice in again.notices if notice.code in ("W_FIELDS_CHOSEN", "W_NO_MEANING")]
        assert "- content" not in (root / "ontology/collections/faq.yaml").read_text()


def test_a_collection_whose_first_records_have_its_field_stays_as_it_is(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", MEANT)
    with opened(root) as kb:
        kb.collections.init("faq", policy="knowledge-base")
        before = (root / "ontology/collections/faq.yaml").read_bytes()
        kb.put("faq", [FAQ, {"id": "b", "content": "some text"}])
        assert (root / "ontology/collections/faq.yaml").read_bytes() == before


def test_what_cannot_be_compared_by_meaning_is_said_in_the_same_words_everywhere(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", MEANT)
    said = "nothing of {} can be compared by meaning: no record has text in {}"
    with opened(root) as kb:
        kb.collections.init("own", policy="knowledge-base", params={"content": "body"})
        before = (root / "ontology/collections/own.yaml").read_bytes()
        for type, field in (("own", "body"), ("Note", "text")):
            receipt = kb.put(type, {"id": "a", "title": "A title of words"})
            wanted = said.format(type, field)
            assert [notice.message for notice in receipt.notices if notice.code == "W_NO_MEANING"] == [wanted]
            found = kb.find(type, "words", mode="similar")
            assert not found.hits and wanted in [notice.message for notice in found.notices]
            assert wanted in [finding.message for finding in kb.check().findings]
            assert wanted in kb.status()["warnings"]
        assert (root / "ontology/collections/own.yaml").read_bytes() == before
    health = {check.check: check for check in app.doctor(root, embedder=HashEmbedder()).checks}
    assert "nothing of Note can be compared by meaning" in health["meaning"].message


def test_a_base_without_a_model_is_not_called_blind(tmp_path: Path) -> None:
    with duckkb.open(make_base(tmp_path / "kb", NOTES.replace("[title, text]", "[title], vectors: [text]"))) as kb:
        receipt = kb.put("Note", {"id": "a", "title": "A title"})
        assert not [notice for notice in receipt.notices if notice.code == "W_NO_MEANING"]
        assert kb.status()["warnings"] == []


def test_fields_of_words_are_taken_and_numbers_dates_addresses_and_the_identity_are_not() -> None:
    kind = NodeType("t", "t", ("id",), {})
    records = [
        {"id": "some id", "day": "2026-01-31", "mail": "a@b.c", "url": "https://a.b/c", "n": 5, "text": "two words"}
    ]
    assert text_fields(kind, records) == ["text"]
    assert text_fields(kind, [{"id": "a", "day": "2026-01-31", "title": "Refunds"}]) == ["title"]
    assert text_fields(kind, [{"id": "a", "文": "如何更换付款卡"}]) == ["文"]
    assert text_fields(kind, [{"id": "a", "mail": "a@b.c"}]) == []


def test_a_definition_that_is_written_otherwise_is_left_alone() -> None:
    odd = b"collections: {faq: {policy: {fields: {vectors: [content]}}}}\n"
    assert with_vectors(odd, ["content"], ["a"]) is None
    plain = b"  fields:\n    vectors:\n    - content\n    lexical: auto # why\n"
    assert with_vectors(plain, ["content"], ["a b", "no"]) == plain.replace(
        b"    - content\n", b"    - " + json.dumps("a b").encode() + b'\n    - "no"\n'
    )


TICKET = {
    "id": "t1",
    "ticket": {"subject": "The login goes in circles", "key": "T-1"},
    "comments": [
        {"author": "customer", "body": "Since the change of Okta nobody gets in."},
        {"body": "We look into it."},
    ],
}


def test_texts_inside_objects_are_chosen_found_cited_and_explained_by_their_dotted_path(tmp_path: Path) -> None:
    with opened(make_base(tmp_path / "kb", MEANT)) as kb:
        kb.collections.init("tickets", policy="knowledge-base")
        receipt = kb.put("tickets", [TICKET, {"id": "t2", "ticket": {"subject": "The bill is too high"}}])
        assert "comments.body, ticket.subject" in receipt.notices[0].message
        assert [hit.identity for hit in kb.find("tickets", "circles", mode="match")] == ["t1"]
        (hit,) = kb.find("tickets", "okta", mode="match")
        assert hit.chunk is not None and hit.chunk.field == "comments.body"
        assert hit.chunk.text == "Since the change of Okta nobody gets in.\nWe look into it."
        (entry,) = kb.pack("okta", budget=200).entries
        assert entry.text == hit.chunk.text and "#comments.body/0" in entry.uri
        kb.put("tickets", {"id": "t2", "ticket": {"subject": "The bill names Okta"}})
        assert {hit.identity for hit in kb.find("tickets", "okta", mode="match")} == {"t1", "t2"}


def test_what_is_not_searched_inside_objects_is_named_by_why(tmp_path: Path) -> None:
    with opened(make_base(tmp_path / "kb", MEANT)) as kb:
        kb.collections.init("tickets", policy="knowledge-base", params={"fields": {"lexical": ["ticket.subject"]}})
        kb.put("tickets", TICKET)
        assert [hit.identity for hit in kb.find("tickets", "circles", mode="match")] == ["t1"]
        assert not kb.find("tickets", "okta", mode="match").hits
        why = kb.why("tickets", "t1", "okta", mode="match")
        assert any("They are in comments.body, which is not searched by words." in one for one in why.reasons)


def test_a_dotted_path_that_leads_to_no_text_is_said(tmp_path: Path) -> None:
    with opened(make_base(tmp_path / "kb", MEANT)) as kb:
        kb.collections.init("tickets", policy="knowledge-base", params={"content": "ticket.subjct"})
        path = tmp_path / "kb/ontology/collections/tickets.yaml"
        kb.put("tickets", TICKET)
        path.write_text(path.read_text().replace("ticket.subject", "ticket.subjct"))
        found = kb.find("tickets", "login", mode="similar")
        assert "W_NO_MEANING" in [one.code for one in found.notices]
