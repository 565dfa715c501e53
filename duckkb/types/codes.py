"""The catalogue of codes: what each finding, error and notice means, and how to fix it.

`docs/errors.md` is generated from it.
"""

from msgspec import Struct


class Code(Struct, frozen=True):
    """A code of the catalogue. `exit_code` is that of a command which this stops; 0 for warnings, which stop none."""

    name: str
    meaning: str
    remedy: str
    exit_code: int = 1


def _build_catalogue(exit_code: int, rows: dict[str, tuple[str, str]]) -> dict[str, Code]:
    return {name: Code(name, meaning, remedy, exit_code) for name, (meaning, remedy) in rows.items()}


_USAGE = {
    "E_USAGE": ("The command line or the arguments of a call are not valid.", "See `duckkb VERB --help`."),
    "E_ARGUMENT": (
        "A request names no action, or its arguments do not fit the action's parameters.",
        "The findings list every problem; `docs/actions.md` has the parameters.",
    ),
    "E_TICKET": (
        "A decision on a tool call matches no ticket of the harness and the conversation; nothing was executed.",
        "Decide on what `pending_approval` lists, and resume with the messages of that run.",
    ),
    "E_CONFIG": (
        "config.yaml has an unknown key or a value out of range.",
        "Edit the line named; `config.example.yaml` lists every key.",
    ),
    "E_ONTOLOGY": (
        "A type, policy or schema in config.yaml or ontology/ is wrong.",
        "Edit the lines named; nothing was created.",
    ),
    "E_YAML": (
        "A YAML file does not parse, or uses what duckkb refuses: aliases, tags, duplicate keys, ambiguous scalars.",
        "Edit the line named; quote values that YAML 1.1 would read as another type.",
    ),
    "E_FILTER": (
        "A --where condition is not allowed, or names something that does not exist.",
        "Use comparisons, AND, OR, NOT, IN, LIKE, BETWEEN and plain functions over the type's fields; `duckkb schema TYPE` lists them.",
    ),
    "E_SQL": (
        "A statement given to `duckkb sql` is not one plain read-only SELECT over the runtime tables.",
        'Write one SELECT without table functions; `duckkb sql "SHOW TABLES"` lists the tables.',
    ),
    "E_EMPTY": (
        "A write received no input on stdin; the command before it may have found nothing.",
        "Give one JSON object per line; read what the command before the pipe printed on stderr.",
    ),
    "E_ROLE": (
        "A database role that types are granted to does not exist, or sees everything regardless of grants.",
        "`CREATE ROLE NAME LOGIN` in the database, without SUPERUSER and BYPASSRLS.",
    ),
    "E_QUERY": (
        "A typed question of `duckkb query` is not valid: a line without a type, an unclosed quote, or only exclusions.",
        "Change the line named: `lex:` words, `vec:` a question, `hyde:` a possible answer, or a single plain line.",
    ),
    "E_FIELD": (
        "--fields names a field that the type does not have.",
        "`duckkb col show NAME` or `duckkb schema TYPE` lists the fields.",
    ),
    "E_PARTIAL": (
        "A line to store was printed without some fields of its record (`_partial`), or with a field cut short.",
        "`duckkb put --merge` changes only the fields given; `duckkb get` prints whole records.",
    ),
    "E_INTENT": (
        "The type cannot serve this kind of search.",
        "Use the mode named in the message, or add the fields to `search` in the ontology.",
    ),
    "E_NO_MODEL": (
        "No chat model is configured, several are but none is chosen, or none has this name.",
        "Add a row to `global.models` in config.yaml, or set `global.ask.model`; `duckkb models list` shows the rows.",
    ),
    "E_MODEL_CANNOT": (
        "The chat model does not support what the request needs: JSON, tools, or reasoning. No model was called.",
        "Use another model, or leave the feature out; the model's row in `global.models` lists what it supports.",
    ),
    "E_URL": (
        "The URL of a database is not valid, or duckkb does not know its scheme. The URL is not printed, since it may contain a password.",
        "Give postgresql://USER@HOST:5432/DATABASE, with the password in PGPASSWORD or ~/.pgpass. `publish` also takes `lance:FOLDER` or `lance+s3://BUCKET/PATH`, with keys in the environment.",
    ),
    "E_TABLE": (
        "A table or column does not exist or has an unsafe name, or the column does not hold vectors. The table was not queried.",
        "`duckkb table show --url URL` lists the tables with vectors; add a TABLE to list its columns.",
    ),
    "E_DIMENSION": (
        "The vectors to compare have different dimensions; nothing was compared.",
        "Use the model that made the vectors; `duckkb table show --url URL TABLE` shows their dimension.",
    ),
    "E_POLICY": (
        "No policy has this name.",
        "`duckkb policy list` shows the policies of this base and those built into duckkb.",
    ),
    "E_PARAMS": (
        "The parameters of a collection do not fit its policy.",
        "`duckkb policy show POLICY` lists the parameters.",
    ),
    "E_INVALID": (
        "A record does not fit its type: schema, identity, reserved or unknown names.",
        "Change the fields named; `duckkb schema TYPE` prints the schema.",
    ),
    "E_PATH": (
        "A path is not a regular file, is in a forbidden place, or would be overwritten.",
        "Give another path, or `--force` to overwrite.",
    ),
}
_INTERRUPTED = {
    "E_INTERRUPTED": (
        "A signal asked the command to end (SIGINT 130, SIGTERM 143, SIGHUP 129).",
        "Run it again; a write was completed or did not happen at all.",
    ),
}
_STATE = {
    "E_STATE": ("The current state of the base does not allow this.", "See the message."),
    "E_NO_KB": (
        "No knowledge base here: no config.yaml in this folder or above it.",
        "`duckkb init`, or name one with `--kb PATH` or DUCKKB_KB.",
    ),
    "E_NOT_PUBLISHED": (
        "Nothing is published at this address under this name, or the requested commit is no longer kept.",
        "`duckkb publish --to URL`.",
    ),
    "E_BEHIND": (
        "The published commit is not the one that this commit would follow: another publisher was faster, it is newer, or this clone does not have it.",
        "`git fetch`, then publish again; `--rewind` publishes an older commit, `--full` replaces a published commit that no longer exists.",
    ),
    "E_PENDING": (
        "Texts of the commit have no vector yet, so it was not published.",
        "`duckkb index build`; or `duckkb publish --pending ok`.",
    ),
    "E_PUBLISHED": (
        "This command needs a clone; a published base (--backend, DUCKKB_BACKEND) cannot answer it.",
        "Leave --backend out and unset DUCKKB_BACKEND; write in a clone, commit, then `duckkb publish`.",
    ),
    "E_UNKNOWN_TYPE": ("No type, table or label has this name.", "`duckkb schema` lists the types."),
    "E_SCOPE": (
        "This scope has no collection for its memories.",
        "Run the command in the message to create it; `duckkb memory stats` lists the scopes.",
    ),
    "E_NOT_FOUND": ("No record has this identity.", "`duckkb list TYPE` or `duckkb find TYPE QUERY`."),
    "E_AMBIGUOUS_KEY": (
        "A shortened key or name matches several records or documents.",
        "Give more of the key or name.",
    ),
    "E_NO_RESULTS": ("Nothing matched.", "Loosen the query or the filter."),
    "E_NO_EVIDENCE": (
        "The base has not enough evidence to answer the question, so no model was called; or the model found no answer in the evidence.",
        "Ask with words that occur in the base; `duckkb pack QUESTION` prints the evidence, and `duckkb find` searches further.",
    ),
    "E_UNSUPPORTED": (
        "The cited texts do not support some sentences of the answer, and `--strict` accepts no such sentence.",
        "Read the marks in the answer; `duckkb get URI` prints the cited text.",
    ),
    "E_RESERVED": (
        "The name of a collection, table or label is reserved by an operating system, DuckDB or duckkb.",
        "Choose another name: `duckkb col rename NAME NEW`. For a type, rename its folder below data/ and its `table` or `label`.",
    ),
    "E_EXISTS": (
        "Something with this name or identity exists already.",
        "Choose another, or use the command that changes it.",
    ),
    "E_STALE": (
        "The record has another version than --if-match or _etag names.",
        "Read it again with `duckkb get`, and repeat the change on the new version.",
    ),
    "E_EDGES": ("Edges refer to the node to delete.", "`--cascade` deletes them with it."),
    "E_SHRINK": (
        "A write, merge or pull request deletes more records of a table than allowed: max(20, 10 %) unless `limits` sets another number.",
        "Add `--allow-shrink` if this is intended; `limits.shrink_records` and `limits.shrink_share` set the limit.",
    ),
    "E_CARDINALITY": (
        "An edge breaks the cardinality that its type declares.",
        "Delete the other edge first, or change `cardinality` in the ontology.",
    ),
    "E_DANGLING_EDGE": ("An edge refers to a node that does not exist.", "Add the node, or delete the edge."),
    "E_AMBIGUOUS_END": (
        "An edge gives an end without its type, and several of the allowed types have this identity.",
        'Write it as {"type": TYPE, "id": IDENTITY}.',
    ),
    "E_DUP_IDENTITY": ("Two records have the same identity.", "`duckkb dedupe` joins them field by field."),
    "E_DUP_ID": (
        "Two different records have the same __id.",
        "`duckkb dedupe --reassign` gives the later one a free id.",
    ),
    "E_MERGE_IN_PROGRESS": (
        "A merge, rebase or cherry-pick is in progress; a write would become part of it.",
        "Finish it after `duckkb resolve`, or abort it with git. Then repeat the write.",
    ),
    "E_UNREADABLE": (
        "A line or file below data/ is damaged and cannot be read. Nothing was changed.",
        "Mend the lines named; `--lenient` reads on without them.",
    ),
    "E_DATA_MISSING": ("data/ is missing or empty, but HEAD has records.", "`git checkout -- data` brings them back."),
    "E_SPARSE": (
        "git left files of the base out of this checkout (sparse checkout, skip-worktree), so a write could store a record twice.",
        "Run the command named, such as `git sparse-checkout add DIR`, to restore them.",
    ),
    "E_FORMAT": ("data/FORMAT.json names a format that this version does not know.", "Use a newer duckkb."),
    "E_SNAPSHOT": (
        "The file is not a snapshot of a collection, is damaged, or has another version.",
        "Take the snapshot again: `duckkb col snapshot NAME FILE`.",
    ),
    "E_FOREIGN": (
        "A file or folder of another program (Chroma, OpenClaw) is damaged, or is something else.",
        "Give the file that the message describes; nothing was written.",
    ),
    "E_BACKUP": (
        "The file is not a backup, is damaged, or contains entries that a backup must not contain. Nothing was written.",
        "Use another backup, or make a new one: `duckkb backup create`.",
    ),
    "E_PATCH": (
        "The patch was not made by duckkb, is damaged, or does not fit the types of this base.",
        "Make it again: `duckkb diff BASE..HEAD --format patch`.",
    ),
    "E_RECOVER": (
        "An interrupted write cannot be finished: a file is in neither its old nor its new state.",
        "`duckkb recover --show`, then `--forward` or `--abort`.",
    ),
    "E_TRACKED_STATE": (
        "git tracks files in .duckkb/, which must stay local; duckkb does not read them.",
        "`git rm -r --cached .duckkb`.",
    ),
    "E_HARNESS": (
        "The file is not a harness, or was changed after it was written.",
        "Restore it from a backup, or begin a new harness.",
    ),
    "E_LOCKED": ("Another process holds the lock.", "Wait, or raise `--lock-timeout`."),
    "E_KEY": (
        "The encryption key of derived state is wrong, missing, or not usable here; nothing was changed.",
        "Set DUCKKB_ENCRYPTION_KEY; `duckkb cleanup --sealed` drops the encrypted files, which are rebuilt from data/.",
    ),
    "E_IO": (
        "The disk or file system refused an operation.",
        "Free space or correct permissions, then repeat; nothing was written in part.",
    ),
    "E_READ_ONLY": ("The base cannot be written here.", "Write from a checkout that you own."),
    "E_MODEL": (
        "A model cannot be used.",
        "Run `pip install 'duckkb[local]'`, correct the endpoint, or search by words with -m.",
    ),
    "E_CANCELLED": ("The caller cancelled a request to a model.", "Ask again."),
    "E_ANSWER_CUT": (
        "A chat model stopped in the middle of its answer: token limit, content filter, or lost connection.",
        "Ask again, or another model: `duckkb ask --model NAME`. The part of the answer that arrived was printed and checked.",
    ),
    "E_BUDGET": (
        "An index job used up its budget before everything was embedded.",
        "Run it again: it keeps the vectors already made and computes the rest.",
    ),
    "E_SHARD": (
        "Shards of vectors do not fit the base or each other. One is missing or damaged, is for another commit, "
        "ontology or model, or differs from recomputed rows.",
        "The findings name each shard with the command that rebuilds it; `--partial` adopts the intact shards.",
    ),
    "E_EXECUTOR": (
        "The executor for shards is not installed, does not answer, or kept losing its workers.",
        "Run it again, since finished shards are kept; or make the shards one by one with `duckkb index build --shard`.",
    ),
    "E_CACHE_LIMIT": (
        "A migration to another model would exceed the size limit of the cache folder and evict older vectors.",
        'Raise `cache_limit` in XDG_STATE_HOME/duckkb/settings.json ({"cache_limit": "40 GB"}), and run it again.',
    ),
    "E_VECTORS": (
        "Two models cannot be compared, because some vectors of one are missing.",
        "`duckkb index migrate --to MODEL`, or `duckkb index build` for the configured one.",
    ),
    "E_UNTRUSTED": (
        "The configuration names hosts, key variables or commands that you have not accepted on this machine.",
        "Read them with `duckkb trust --show`, then `duckkb trust`.",
    ),
    "E_TOKEN": (
        "A request has no bearer token, or its token or DUCKKB_MCP_TOKEN is malformed.",
        "Send `Authorization: Bearer TOKEN`; `duckkb tenant add` prints a token.",
    ),
    "E_DENIED": (
        "A request's token is unknown, or its tenant is disabled.",
        "Ask the operator of the server for a token; `duckkb tenant list` shows disabled tenants.",
    ),
    "E_EXPIRED": (
        "The tenant's token has expired.",
        "`duckkb tenant list` shows when tokens expire; `duckkb tenant rotate ID --expires 90d` makes a new one.",
    ),
    "E_TENANT": ("No tenant has this ID.", "`duckkb tenant list` lists the tenants."),
    "E_TENANTS": (
        "The tenants file of a base is damaged, or other users could have read or changed it. The server refuses every token.",
        "Look at the file, then run the command in the message.",
    ),
    "E_LIMIT": ("The query took too much time or memory.", "Narrow the query."),
    "E_BUSY": (
        "The server's queue is full, or a tenant exceeds its rate of calls.",
        "Retry after the time in Retry-After, with fewer calls at once.",
    ),
    "E_WORKER": (
        "A worker process ended before it answered the request.",
        "Retry; after a write, check first whether it was carried out.",
    ),
    "E_TIMEOUT": (
        "The time limit of the server or the request passed before the answer; an operation already begun continues.",
        "Ask for less, or raise `x-timeout-ms` or --timeout; after a write, check first whether it was carried out.",
    ),
    "E_BODY": (
        "The body of a request is larger than the server accepts, or did not arrive in time.",
        "Send at most 4 MiB, at once.",
    ),
    "E_HOST": (
        "A request uses a host name that the server does not accept, or comes from a page of another site.",
        "Use 127.0.0.1 or localhost, or start the server with --allowed-host NAME.",
    ),
    "E_PORT": (
        "The server cannot listen on the given port.",
        "Stop the other program on that port, or choose another --port.",
    ),
    "E_SERVING": (
        "A background server already runs, does not run, or failed to start or stop.",
        "`duckkb serve stop` ends it, `duckkb serve --daemon` starts it; the message names its log.",
    ),
    "E_WARM": (
        "DUCKKB_DAEMON=require needs a warm process, and none answered.",
        "`duckkb serve --warm` starts one; without the variable the command runs by itself.",
    ),
    "E_DATABASE": (
        "The database cannot be reached, rejects the login, lacks pgvector, takes too long, or refused a statement.",
        "Read the server's message; test the login with `psql` and the same URL. For Lance, check the folder, or the bucket's environment variables.",
    ),
    "E_UNAVAILABLE": ("A service that this needs did not answer.", "Try again."),
    "E_REFUSED": ("A guard stopped the write; nothing changed.", "See the message."),
    "E_FORBIDDEN": (
        "The caller's role or grants do not allow this.",
        "Ask an admin of the server for the role.",
    ),
    "E_INTERNAL": ("A bug in duckkb or a library.", "Report it with the message; no record was changed."),
}
_GIT = {
    "E_GIT": (
        "git is missing, failed, or does not have an object that is needed.",
        "`git status` and `git fsck` say more.",
    ),
    "E_DOCUMENT": (
        "A write to a document collection, whose records are files.",
        "Edit, add or delete the file itself; the next command sees it.",
    ),
    "E_SOURCE_MISSING": (
        "The folder of a document collection is missing. Its documents are not served, and do not count as deleted.",
        "Bring the folder back (mount it, `git checkout`), or `duckkb collection remove NAME`.",
    ),
    "E_EXTRACT": (
        "A file could not be read completely, and its collection has `extraction: strict`. The file is no record.",
        "Mend the file, name it under `ignore`, or set the policy to `fallback`; `duckkb ls COLLECTION --long` shows the reason.",
    ),
    "E_REVIEW": (
        "The ontology requires a review for changes of this type or field, and an agent tried to write directly.",
        "Put `propose` in front of the verb: `duckkb propose put ...` makes a branch to review.",
    ),
    "E_GUARD": (
        "A change removes or weakens a rule for changes: a required review, a limit, a schema rule, a judged question, a workflow, or a git attribute.",
        "Restore the rule, or approve its removal: `--allow-weaker`, or the label `duckkb: weaker rules` on a pull request, makes this a warning. `SKIP=duckkb-check git commit` skips the hook.",
    ),
    "E_REVISION": (
        "This clone has no commit, branch or tag of this name, or two revisions share no commit.",
        "`git branch -a` and `git log --oneline` list them; `git fetch --unshallow` in a shallow clone.",
    ),
}
_LINES = {
    "E_UTF8": ("A line or a text is not UTF-8.", "Save the file as UTF-8."),
    "E_ROWS": (
        "A CSV, TSV or Parquet file is not a valid table: a row does not fit the header, a quote is not closed, or the file is damaged.",
        "Correct the line named; put quotes around cells that contain the delimiter.",
    ),
    "E_BOM": (
        "A file starts with a byte order mark.",
        "Save it without the mark; `duckkb fmt` does not remove it, since the file may have another encoding.",
    ),
    "E_CR": ("A line ends in CR LF.", "Convert to LF (`sed -i 's/\\r$//' FILE`) and set `* text eol=lf` for data/."),
    "E_NUL": ("A line has a NUL byte.", "Restore the file from git."),
    "E_MARKERS": (
        "A file contains git's conflict markers.",
        "`duckkb resolve` during a merge; otherwise keep one side of each conflict, then run `duckkb check`.",
    ),
    "E_POINTER": ("A file is a Git LFS pointer, not its content.", "`git lfs pull`; parts should not be in LFS."),
    "E_EMPTY_PART": (
        "A part that had records is now empty; it was probably truncated.",
        "`git checkout HEAD -- PART` restores them; `rm PART` removes them all.",
    ),
    "E_UNTRACKED": (
        "git no longer tracks a file of the base that still exists (`git rm --cached`), so no commit will contain it.",
        "`git add -f FILE`, or `rm FILE` to remove it.",
    ),
    "E_JSON": ("A line is not exactly one JSON object.", "Correct the JSON on that line."),
    "E_DUP_KEY": ("An object has the same key twice.", "Keep one of them."),
    "E_NUMBER": (
        "A number is NaN, infinite, too large for a double, or an integer past int64.",
        "Write a finite number, or the integer as a string.",
    ),
    "E_SURROGATE": ("A string contains a lone surrogate.", "Write the whole character."),
    "E_ID": (
        "__id is not a JSON integer from 1 to 2^53 - 1.",
        "Restore it from git, or leave it out and run `duckkb fmt`.",
    ),
    "E_TIME": (
        "__created_at or __updated_at is not of the form YYYY-MM-DDTHH:MM:SS.ffffffZ.",
        "Restore it from git, or leave it out and run `duckkb fmt`.",
    ),
    "E_TOO_LARGE": ("A line or a text is longer than limits.max_record_bytes.", "Split it, or raise the limit."),
    "E_DEPTH": ("Values are nested more deeply than limits.max_depth.", "Flatten the record."),
    "E_IDENTITY": (
        "An identity field is missing, empty, not NFC, too long, of the wrong kind, or contains control characters.",
        "Change the field named.",
    ),
    "E_NAME": (
        "A field name is reserved (leading _), differs from another name only in case, or is a dotted path into an object.",
        'Rename the field; give a member of an object nested: `{"ticket": {"status": ...}}`.',
    ),
}
_CHECKS = {
    "E_NOT_CANONICAL": ("A line is not in canonical form, or the lines of a part are not sorted.", "`duckkb fmt`."),
    "E_INCOMPLETE": ("A line lacks __id or times.", "`duckkb fmt` completes it."),
    "E_SCHEMA": ("A stored record does not satisfy its type's schema.", "Change the record or the schema."),
    "E_UNEXPECTED_FILE": (
        "data/ contains a file or folder that duckkb does not know.",
        "Move it away; duckkb never reads or deletes it.",
    ),
    "E_SYMLINK": ("data/ contains a symbolic link; duckkb does not follow links.", "Replace it with the file."),
    "E_NOT_REGULAR": ("A path inside data/ is a FIFO or a device, or a folder in the place of a file.", "Remove it."),
    "E_ID_CHANGED": (
        "The __id of a record changed; citations and caches use the old one.",
        "Restore the old __id from git.",
    ),
    "E_MISPLACED": (
        "A record is in a day folder that differs from the day of its __created_at.",
        "Restore __created_at from git.",
    ),
}
_WARNINGS = {
    "W_BEHIND": ("The published commit, which answers, differs from HEAD of this clone.", "`duckkb publish`, `git pull` or `git fetch`, as the message says."),
    "W_REWOUND": ("The commit published before is not an ancestor of the one published now.", "None needed if you rewrote history on purpose."),
    "W_PARTIAL": ("git left files of the base out of this checkout; their records are not found.", "Run the command named, such as `git sparse-checkout add DIR`, to restore them."),
    "W_UNWATCHED": ("git ignores changes to a file of the base (skip-worktree, assume-unchanged), so no commit will contain them.", "`git update-index --no-skip-worktree FILE`, or `--no-assume-unchanged`."),
    "W_DOCUMENT": ("A file in the folder of a document collection could not be read as a record.", "Rename, replace or correct the file, or name it under `ignore`."),
    "W_LINK": ("A link in a document matches no document of its collection, or several.", "Correct the link, add the file, or write more of the path."),
    "W_FRONT_MATTER": ("The front matter has a value or key that YAML readers read differently, or that a record cannot store. It is kept as text.", "Quote the value, or correct the line named."),
    "W_UPDATE": ("A document collection was read without an update: nothing was pulled, or its command did not run.", "See the message; `duckkb trust` accepts commands."),
    "W_ARCH": ("The import of a code graph left out attributes that have no field, or joined identical edges.", "None needed; `duckkb schema arch` lists the fields."),
    "W_DEGRADED": ("A search answered without one of its lanes, its reranker or the variants of its question, or with vectors missing.", "`duckkb index build`, or correct the model's configuration."),
    "W_EXACT": ("The search compared all vectors of a type, since the graph that its settings ask for (`ann`) is missing. The answer is exact, but slower.", "`duckkb index refresh` makes the graph; it needs `pip install 'duckkb[ann]'`."),
    "W_TYPE": ("A value has a type that its field did not have in the collection before; it is stored unchanged.", "Compare such a field with values of one type, or correct the record."),
    "W_OMITTED": ("`find` and `list` shortened long texts, or left out vectors that callers gave.", "`--full` gives whole texts, `--fields +NAME` a vector; `duckkb get` gives whole records."),
    "W_NO_VALUE": ("A field of --fields has no value in any printed record; or a filter without results names a path or a value that no record has.", "Use the similar name or a value that the notice suggests; none needed if the field is optional."),
    "W_NEW_COLLECTION": ("An import named an unknown type, and created a collection of this name with its records.", "None needed if this is intended; `duckkb col rm NAME --yes` removes it."),
    "W_FIELDS_CHOSEN": ("The first records of a collection had no text in the fields to compare by meaning, so duckkb chose other fields.", "None needed; you can name other fields in its definition in ontology/collections/."),
    "W_NO_MEANING": ("Searches by meaning find nothing in this type: no record has text in the fields named for that.", "Name fields that have text under `vectors` in the definition, then `duckkb index build`."),
    "W_GENERATED_ID": ("A record without an id got one: a random one from `put`, from an import one derived from its contents. A record that changes in the file becomes a new record.", "`put` prints the id. `duckkb import TYPE FILE --dry-run` shows the fields; `duckkb import TYPE FILE --id FIELD`, or FIELD,FIELD, names the fields that identify a record."),
    "W_REPLACED": ("Several different lines have the same identity; the last one is stored.", "Remove the wrong lines; `put --merge` joins their fields."),
    "W_QUESTION": ("A judged question expects a record that does not exist, so no answer can be right.", "Add the record, or name another one under `expected` at the line named."),
    "W_DROPPED": ("The new version of a record, or of an object in it, lacks fields that the stored one had; they are removed.", "Restore them with `duckkb put --merge`, as the notice shows; --merge changes only the fields given, each as a whole."),
    "W_NULL": ("Fields were given as null; records do not store null, and a missing field reads as null.", "Leave such fields out; in `put --merge` a null removes the field."),
    "W_FIELD": ("A new field has nearly the name of a known field that the record lacks; it is stored.", "`duckkb put` the record with the known name, if you meant that one."),
    "W_SAME_TEXT": ("Several records of a collection whose keys derive from a text have the same text.", "Delete all but one with `duckkb delete`."),
    "W_SKIPPED": ("`<>` and NOT leave out records that lack the field, since a missing value is neither equal nor unequal.", "Add them with `coalesce((CONDITION), TRUE)`, or `OR FIELD IS NULL`."),
    "W_LEFT_OUT": ("The request names collections that its caller cannot see; they were left out.", "Name other collections, or ask an admin of the server for a grant."),
    "W_PENDING": ("Records are stored without vectors.", "`duckkb index build`."),
    "W_TRUNCATED": ("A limit cut the result, a filter matches more records than --limit allows, or a text exceeds the model's input length.", "Raise the limit or read the next page; embed a long text in parts."),
    "W_NOT_ASKED": ("A search of all types left out a type: its policy does not allow the mode, or the filter does not fit its fields or values.", "Search this type alone, in a mode that its policy allows, with the fields of `duckkb schema TYPE`."),
    "W_MODE": ("The type does not support the requested mode, so the search ran in another one.", "Request the mode that was used."),
    "W_PLAIN": ("No record matches the phrases and prefixes of the question. The results match its plain words, and have `_filled`.", "Leave the quotes and stars out."),
    "W_NO_COLLECTION": ("The collection does not exist yet; it was treated as empty.", "`duckkb vector store` creates it; `duckkb col list` lists the collections."),
    "W_CACHE": ("A cache file or some of its rows are not usable and were skipped.", "`duckkb index build` writes a new one; `git lfs pull` if it is a pointer."),
    "W_CACHE_SIZE": ("A file of the team's cache is larger than 50 MB. git stores each version whole, and forges refuse files of 100 MB.", "`duckkb init --lfs`, then `git lfs install` and `git add --renormalize data/indices`."),
    "W_NO_TEAM_CACHE": ("The team's cache of vectors is missing, so each clone computes all vectors itself.", "`duckkb index build` on the main branch, then commit data/indices/; at night by `duckkb init --github`."),
    "W_CACHE_UNTRUSTED": ("A cache from another machine differed from recomputed rows and was dropped.", "Find out who changed it, then `duckkb index build`."),
    "W_COMPUTED": ("A search had to compute vectors that no cache had, which takes time.", "`duckkb index build` on the main branch gives them to every clone."),
    "W_SEALED": ("An encryption key is set. Derived files were encrypted, were damaged and are rebuilt, or are not written where others could read them.", "None needed; see docs/encryption.md."),
    "W_DUPLICATE": ("Two files hold the same record; duckkb read their field-wise merge.", "`duckkb dedupe`."),
    "W_INCOMPLETE": ("A hand-written line lacks id or times; duckkb completed them in memory only.", "`duckkb fmt`."),
    "W_LENIENT": ("Unreadable lines were skipped.", "`duckkb check` lists them."),
    "W_MIGRATED": ("Migrated data differs from its source: it has another name here, was left out, or was changed here.", "None needed if this is intended; see the message."),
    "W_READ_ONLY": ("The base is read-only; it was read without a lock.", "None needed for reading."),
    "W_NO_STORE": ("The user's cache folder is not usable, so each command reads the whole base again.", "Free space, or name another folder with DUCKKB_CACHE_HOME."),
    "W_MERGED": ("git merged, picked or reverted by lines, and a record differs from what a merge by records gives.", "Look at both sides (`git log -p`), and put the right record; `duckkb merge` reports such conflicts."),
    "W_PART_SIZE": ("A part grew past 1,000 records or 400,000 bytes.", "None needed; new records go to another part."),
    "W_BASE_CONFIG": ("The configuration of the older side does not load, so the newer configuration was used for both sides.", "None needed; `duckkb config show` prints the newer configuration."),
    "W_UNBOUNDED": ("This system cannot limit the memory of a query, only its time.", "Run statements from other people on Linux or macOS."),
    "W_SHARD": ("The folder contains shards of another plan; they were left there.", "None needed; remove them, or use one folder per plan."),
    "W_NOT_ON_MAIN": ("The team cache was not built on the main branch, where it belongs.", "None needed if this is intended."),
}  # fmt: skip
_OF_CHANGES = {
    "W_MASS_DELETE": ("A change removes more records of a type than allowed, and `--allow-shrink` permits it.", "Check whether this is intended; `git revert` restores them."),
    "W_MASS_CHANGE": ("A change edits more than max(20, 10 %) of a type's records.", "Check whether this is intended; review a large edit separately."),
    "W_GUARD": ("A change removes or weakens a rule for changes, and `--allow-weaker` permits it.", "None needed if this is intended."),
    "W_NEW_RULES": ("Records of a change satisfy its new rules, but would break the old ones.", "Check whether the new rules are intended."),
    "W_RENAMED": ("The identity of a record changed.", "None needed if this is intended; `duckkb rename` also updates edges."),
    "W_CREATED_AT": ("The creation time of a record changed.", "Restore __created_at from git."),
    "W_INVISIBLE": ("A text contains invisible characters (bidirectional controls, zero-width characters, tags), or an identity mixes look-alike letters.", "Remove them: `duckkb put` with the text as it should read."),
    "W_CACHE_IN_PR": ("A change touches the team's cache in data/indices/, which is built only on the main branch.", "Remove it from the change: `git checkout BASE -- data/indices/`."),
    "W_NEAR_DUPLICATE": ("A new record has nearly the same text as another one.", "Add the new facts to the other record with `duckkb put`, and delete this one."),
}  # fmt: skip

CODES: dict[str, Code] = (
    _build_catalogue(2, _USAGE)
    | _build_catalogue(130, _INTERRUPTED)
    | _build_catalogue(1, _STATE)
    | _build_catalogue(1, _GIT)
    | _build_catalogue(1, _LINES)
    | _build_catalogue(1, _CHECKS)
    | _build_catalogue(0, _WARNINGS)
    | _build_catalogue(0, _OF_CHANGES)
)
