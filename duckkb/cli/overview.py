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
    Verb("import", "write", "knowledge", "Insert or replace records from CSV, JSON, JSONL or Parquet files."),
    Verb("export", "read", "knowledge", "Print all records of a type as JSONL."),
    Verb("find", "find", "knowledge"),
    Verb("pack", "find", "knowledge"),
    Verb("ask", "find", "knowledge"),
    Verb("sql", "find", "knowledge"),
    Verb("graph", "find", "knowledge", "Explore links: neighbors, path, citing, near."),
    Verb("embed", "find", "knowledge", "Print the vector of a text."),
    Verb("col", "collect", "collections", "Create, list, rename, remove, snapshot and restore collections."),
    Verb(
        "collection",
        "documents",
        "documents",
        "Manage document collections, which are folders of files.",
    ),
    Verb("context", "documents", "documents", "Describe what folders are about: add, list, rm."),
    Verb("ls", "documents", "documents", "List document collections, or the documents of one."),
    Verb(
        "update",
        "documents",
        "documents",
        "Read changed documents, and index them for searches.",
    ),
    Verb("watch", "documents", "documents", "Update document collections whenever a file changes."),
    Verb("search", "search", "documents"),
    Verb("vsearch", "search", "documents", "Search documents by meaning."),
    Verb("query", "search", "documents"),
    Verb("arch", "documents", "documents", "Query a graph of the code: status, query, build, import, refresh."),
    Verb("multi-get", "search", "documents"),
    Verb("migrate", "collect", "collections", "Import from Chroma or OpenClaw."),
    Verb("policy", "collect", "collections", "Show and check the policies of collections."),
    Verb("vector", "vector", "vector store", "Store values under texts, and find them by similar texts."),
    Verb("table", "databases.table", "tables", "Search tables in PostgreSQL with pgvector: show, query, search."),
    Verb("memory", "serving.memory", "serving", "Remember texts for agents: put, search, history, stats."),
    Verb("diff", "diff", "review"),
    Verb(
        "review",
        "review",
        "review",
        "Review a change: verdict, findings, differences, effect on search.",
    ),
    Verb("apply", "diff", "review", "Apply a patch made by diff, all of it or nothing."),
    Verb("check", "care", "review"),
    Verb("fmt", "care", "review", "Rewrite parts in canonical form."),
    Verb("blame", "provenance", "review"),
    Verb("log", "provenance", "review"),
    Verb("impact", "impact", "review"),
    Verb("quality", "impact", "review"),
    Verb("why", "impact", "review"),
    Verb("propose", "propose", "review", "Commit changes to a branch for review."),
    Verb("dedupe", "care", "review", "Join duplicate records."),
    Verb("merge", "merge", "review", "Merge a branch record by record and field by field."),
    Verb("resolve", "merge", "review"),
    Verb("branches", "merge", "review"),
    Verb("compact", "merge", "review", "Combine the small part files of past days."),
    Verb("git", "merge", "review", "Install the git merge and diff drivers: install, uninstall."),
    Verb("index", "index", "index", "Manage tokens and vectors: status, plan, refresh, build."),
    Verb("scheduler", "base", "index", "Show background work: status."),
    Verb("publish", "serving.publish", "serving", "Publish a commit to PostgreSQL or Lance, which answer searches."),
    Verb("serve", "serving.serve", "serving", "Serve the base over HTTP, or run a warm process; stop."),
    Verb("mcp", "serving.mcp", "serving", "Serve the base to agents over MCP: stdio or HTTP; stop."),
    Verb("status", "base", "care"),
    Verb("growth", "health", "care"),
    Verb("doctor", "health", "care", "Check what this base needs on this machine."),
    Verb("repair", "health", "care", "Rebuild damaged derived state; data/ stays unchanged."),
    Verb("cleanup", "health", "care", "Remove unused files from the user's cache folder."),
    Verb("recover", "care", "care", "Finish or show an interrupted write."),
    Verb("backup", "care", "care", "Back up a base to one file: create, verify, restore."),
    Verb("trust", "base", "care", "Accept the hosts, keys and commands that a configuration names."),
    Verb("models", "health", "care", "List and test the configured models."),
    Verb("config", "base", "care", "Show the effective configuration and the origin of each value."),
    Verb(
        "tenant",
        "serving.tenant",
        "serving",
        "Manage the tenants of a served base: add, list, grant, rotate.",
    ),
    Verb("skill", "base", "care", "Install the duckkb skill for coding agents."),
)
VERBS += tuple(Verb(one.name.replace("_", "-"), "", one.section) for one in ACTIONS.values() if one.section)
BY_NAME = {verb.name: verb for verb in VERBS}
