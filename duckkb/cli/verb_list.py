"""The list of verbs in `duckkb --help`: each with its group and its summary."""

from msgspec import Struct

from duckkb.operations.catalog import ACTIONS


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
    Verb("init", "base_commands", "knowledge", "Make a knowledge base in a folder."),
    Verb("put", "record_commands", "knowledge"),
    Verb("get", "record_commands", "knowledge"),
    Verb("delete", "record_commands", "knowledge"),
    Verb("rename", "record_commands", "knowledge"),
    Verb("list", "record_commands", "knowledge"),
    Verb("schema", "record_commands", "knowledge", "Print the types, or the JSON Schema of one."),
    Verb("import", "record_commands", "knowledge", "Insert or replace records from CSV, JSON, JSONL or Parquet files."),
    Verb("export", "record_commands", "knowledge", "Print all records of a type as JSONL."),
    Verb("find", "search_commands", "knowledge"),
    Verb("pack", "search_commands", "knowledge"),
    Verb("ask", "search_commands", "knowledge"),
    Verb("sql", "search_commands", "knowledge"),
    Verb("graph", "search_commands", "knowledge", "Explore links: neighbors, path, citing, near."),
    Verb("embed", "search_commands", "knowledge", "Print the vector of a text."),
    Verb(
        "col", "collection_commands", "collections", "Create, list, rename, remove, snapshot and restore collections."
    ),
    Verb(
        "collection",
        "collection_commands",
        "documents",
        "Manage document collections, which are folders of files.",
    ),
    Verb("context", "collection_commands", "documents", "Describe what folders are about: add, list, rm."),
    Verb("ls", "collection_commands", "documents", "List document collections, or the documents of one."),
    Verb(
        "update",
        "collection_commands",
        "documents",
        "Read changed documents, and index them for searches.",
    ),
    Verb("watch", "collection_commands", "documents", "Update document collections whenever a file changes."),
    Verb("search", "search_commands", "documents"),
    Verb("vsearch", "search_commands", "documents", "Search documents by meaning."),
    Verb("query", "search_commands", "documents"),
    Verb(
        "arch", "collection_commands", "documents", "Query a graph of the code: status, query, build, import, refresh."
    ),
    Verb("multi-get", "search_commands", "documents"),
    Verb("migrate", "collection_commands", "collections", "Import from Chroma or OpenClaw."),
    Verb("policy", "collection_commands", "collections", "Show and check the policies of collections."),
    Verb("vector", "index_commands", "vector store", "Store values under texts, and find them by similar texts."),
    Verb("table", "record_commands", "tables", "Search tables in PostgreSQL with pgvector: show, query, search."),
    Verb("memory", "server_commands", "serving", "Remember texts for agents: put, search, history, stats."),
    Verb("diff", "review_commands", "review"),
    Verb(
        "review",
        "review_commands",
        "review",
        "Review a change: verdict, findings, differences, effect on search.",
    ),
    Verb("apply", "review_commands", "review", "Apply a patch made by diff, all of it or nothing."),
    Verb("check", "base_commands", "review"),
    Verb("fmt", "base_commands", "review", "Rewrite parts in canonical form."),
    Verb("blame", "review_commands", "review"),
    Verb("log", "review_commands", "review"),
    Verb("impact", "review_commands", "review"),
    Verb("quality", "review_commands", "review"),
    Verb("why", "review_commands", "review"),
    Verb("propose", "record_commands", "review", "Commit changes to a branch for review."),
    Verb("dedupe", "base_commands", "review", "Join duplicate records."),
    Verb("merge", "merge_commands", "review", "Merge a branch record by record and field by field."),
    Verb("resolve", "merge_commands", "review"),
    Verb("branches", "merge_commands", "review"),
    Verb("compact", "merge_commands", "review", "Combine the small part files of past days."),
    Verb("git", "merge_commands", "review", "Install the git merge and diff drivers: install, uninstall."),
    Verb("index", "index_commands", "index", "Manage tokens and vectors: status, plan, refresh, build."),
    Verb("scheduler", "base_commands", "index", "Show background work: status."),
    Verb("publish", "server_commands", "serving", "Publish a commit to PostgreSQL or Lance, which answer searches."),
    Verb("serve", "server_commands", "serving", "Serve the base over HTTP, or run a warm process; stop."),
    Verb("mcp", "server_commands", "serving", "Serve the base to agents over MCP: stdio or HTTP; stop."),
    Verb("status", "base_commands", "care"),
    Verb("growth", "base_commands", "care"),
    Verb("doctor", "base_commands", "care", "Check what this base needs on this machine."),
    Verb("repair", "base_commands", "care", "Rebuild damaged derived state; data/ stays unchanged."),
    Verb("cleanup", "base_commands", "care", "Remove unused files from the user's cache folder."),
    Verb("recover", "base_commands", "care", "Finish or show an interrupted write."),
    Verb("backup", "base_commands", "care", "Back up a base to one file: create, verify, restore."),
    Verb("trust", "base_commands", "care", "Accept the hosts, keys and commands that a configuration names."),
    Verb("models", "base_commands", "care", "List and test the configured models."),
    Verb("config", "base_commands", "care", "Show the effective configuration and the origin of each value."),
    Verb(
        "tenant",
        "tenant_commands",
        "serving",
        "Manage the tenants of a served base: add, list, grant, rotate.",
    ),
    Verb("skill", "base_commands", "care", "Install the duckkb skill for coding agents."),
)
VERBS += tuple(Verb(one.name.replace("_", "-"), "", one.section) for one in ACTIONS.values() if one.section)
BY_NAME = {verb.name: verb for verb in VERBS}
