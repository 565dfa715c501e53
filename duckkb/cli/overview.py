"""The list of verbs in `duckkb --help`: each with its group and its summary."""

from msgspec import Struct

from duckkb.actions.registry.offered import ACTIONS


class Verb(Struct, frozen=True):
    """A line of `duckkb --help`: where the command lives, with its group and summary known without an import.

    The summary of an action's verb is the action's own.
    """

    name: str
    module: str
    group: str
    own_summary: str = ""

    @property
    def summary(self) -> str:
        """The verb's summary in the help, a sentence."""
        return self.own_summary or ACTIONS[self.name.replace("-", "_")].summary


VERBS: tuple[Verb, ...] = (
    Verb("init", "base", "knowledge", "Make a knowledge base in a folder."),
    Verb("put", "write", "knowledge"),
    Verb("get", "read", "knowledge"),
    Verb("delete", "write", "knowledge"),
    Verb("rename", "write", "knowledge"),
    Verb("list", "read", "knowledge"),
    Verb("schema", "read", "knowledge", "Print the types, or the JSON Schema of one."),
    Verb("import", "write", "knowledge", "Insert or replace the records of CSV, JSON, JSONL or Parquet files."),
    Verb("export", "read", "knowledge", "Print all records of a type as JSONL."),
    Verb("find", "find", "knowledge"),
    Verb("pack", "find", "knowledge"),
    Verb("ask", "find", "knowledge"),
    Verb("sql", "find", "knowledge"),
    Verb("graph", "find", "knowledge", "Explore links: neighbors, path, citing, near."),
    Verb("embed", "find", "knowledge", "Print the vector of a text."),
    Verb("col", "collect", "collections", "Make, list, show, rename, remove, snapshot and restore collections."),
    Verb(
        "collection",
        "documents",
        "documents",
        "Folders of files as knowledge: add, list, show, remove, rename, include, exclude.",
    ),
    Verb("context", "documents", "documents", "Say what folders are about: add, list, rm."),
    Verb("ls", "documents", "documents", "Print document collections, or the documents of one."),
    Verb(
        "update",
        "documents",
        "documents",
        "Read the folders of document collections again, and make what searches need.",
    ),
    Verb("watch", "documents", "documents", "Update collections whenever a file of theirs changes."),
    Verb("search", "search", "documents"),
    Verb("vsearch", "search", "documents", "Search documents by meaning."),
    Verb("query", "search", "documents"),
    Verb("arch", "documents", "documents", "A graph of the code: status, query, build, import, refresh."),
    Verb("multi-get", "search", "documents"),
    Verb("migrate", "collect", "collections", "Import from Chroma or OpenClaw."),
    Verb("policy", "collect", "collections", "Show the policies that collections are made by."),
    Verb("vector", "vector", "vector store", "Keep values behind texts, and find them by nearness."),
    Verb("table", "databases.table", "tables", "Search tables of a PostgreSQL with pgvector: show, query, search."),
    Verb("memory", "serving.memory", "serving", "What agents remember: put, search, history, stats, mark-accessed."),
    Verb("diff", "diff", "review"),
    Verb(
        "review",
        "review",
        "review",
        "Say under one headline what is wrong with a change, what differs, and what it does to search.",
    ),
    Verb("apply", "diff", "review", "Apply a patch that diff printed, all of it or nothing."),
    Verb("check", "care", "review"),
    Verb("fmt", "care", "review", "Rewrite parts in canonical form."),
    Verb("blame", "provenance", "review"),
    Verb("log", "provenance", "review"),
    Verb("impact", "impact", "review"),
    Verb("quality", "impact", "review"),
    Verb("why", "impact", "review"),
    Verb("propose", "propose", "review", "Write changes to a branch for review, and say how to open it."),
    Verb("dedupe", "care", "review", "Join records that stand twice."),
    Verb("merge", "merge", "review", "Merge a branch, records by key and field."),
    Verb("resolve", "merge", "review"),
    Verb("branches", "merge", "review"),
    Verb("compact", "merge", "review", "Join the small parts of past days."),
    Verb("git", "merge", "review", "Install the git merge and diff drivers: install, uninstall."),
    Verb("index", "index", "index", "Tokens and vectors: plan, refresh, build the team's cache, status."),
    Verb("scheduler", "base", "index", "What works in the background: status."),
    Verb("publish", "serving.publish", "serving", "Have a database hold a commit, and answer in place of a clone."),
    Verb(
        "serve", "serving.serve", "serving", "Serve the base to programs and agents over HTTP, or keep it warm; stop."
    ),
    Verb("mcp", "serving.mcp", "serving", "Serve the base to agents: stdin and stdout, or HTTP; stop."),
    Verb("status", "base", "care"),
    Verb("growth", "health", "care"),
    Verb("doctor", "health", "care", "Check everything that this base needs on this machine."),
    Verb("repair", "health", "care", "Drop and rebuild damaged derived state; never data/."),
    Verb("cleanup", "health", "care", "Remove what nobody needs from the user's cache folder; never data/."),
    Verb("recover", "care", "care", "Finish or show a write that was interrupted."),
    Verb("backup", "care", "care", "Save a base in one file: create, verify, restore."),
    Verb("trust", "base", "care", "Accept the hosts, key variables and commands that a configuration names."),
    Verb("models", "health", "care", "The models that the configuration names: list, test."),
    Verb("config", "base", "care", "Show the effective configuration and where each value comes from."),
    Verb(
        "tenant",
        "serving.tenant",
        "serving",
        "Who may ask a served base: add, remove, list, show, rotate, grant, revoke, disable, enable, status.",
    ),
    Verb("skill", "base", "care", "Install the duckkb skill for coding agents: install."),
)
VERBS += tuple(Verb(one.name.replace("_", "-"), "", one.section) for one in ACTIONS.values() if one.section)
BY_NAME = {verb.name: verb for verb in VERBS}
