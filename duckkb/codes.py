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
    "E_USAGE": ("The command line or a call's arguments do not make sense.", "See `duckkb VERB --help`."),
    "E_ARGUMENT": (
        "A request names no action, or its arguments do not fit the action's parameters.",
        "Every problem is in the findings; `docs/actions.md` has the parameters.",
    ),
    "E_TICKET": (
        "A decision on a call of a tool fits no ticket of the harness and the conversation; nothing was executed.",
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
        "Edit the line named; quote values that YAML 1.1 would turn into something else.",
    ),
    "E_FILTER": (
        "A --where condition is refused or names something that does not exist.",
        "Use comparisons, AND, OR, NOT, IN, LIKE, BETWEEN and plain functions over the type's fields; `duckkb schema TYPE` lists them.",
    ),
    "E_SQL": (
        "A statement given to `duckkb sql` is not one plain read-only SELECT over the runtime tables.",
        'Write one SELECT without table functions; `duckkb sql "SHOW TABLES"` lists the tables.',
    ),
    "E_EMPTY": (
        "A write got nothing on stdin; the command before it may have found nothing.",
        "Give one JSON object a line; look at what the command before the pipe said.",
    ),
    "E_ROLE": (
        "A role of the database to whom types are granted is not there, or sees everything whatever is granted.",
        "`CREATE ROLE NAME LOGIN` in the database, without SUPERUSER and BYPASSRLS.",
    ),
    "E_QUERY": (
        "A typed question of `duckkb query` does not make sense: a line without a type, an open quote, exclusions alone.",
        "Change the line named: `lex:` words, `vec:` a question, `hyde:` an answer as it might stand there, or one line alone.",
    ),
    "E_FIELD": (
        "--fields names something that is no field of the type.",
        "`duckkb col show NAME` or `duckkb schema TYPE` lists the fields.",
    ),
    "E_PARTIAL": (
        "A line to be stored was printed without some fields of its record (`_partial`), or holds a part of one.",
        "`duckkb put --merge` changes only the fields given; `duckkb get` prints whole records.",
    ),
    "E_INTENT": (
        "The type cannot serve this kind of search.",
        "Use the mode that the message names, or add the fields to `search` in the ontology.",
    ),
    "E_NO_MODEL": (
        "No chat model is configured, several are and none is chosen, or there is none of this name.",
        "Add a row to `global.models` in config.yaml, or set `global.ask.model`; `duckkb models list` shows the rows.",
    ),
    "E_MODEL_CANNOT": (
        "The chat model cannot do what is asked of it: JSON, tools, or reasoning. Nobody was asked.",
        "Ask another model, or ask without it; its row in `global.models` says what it can do.",
    ),
    "E_URL": (
        "The URL of a database cannot be read, or has a scheme that duckkb does not know; none of it is repeated, as it may hold a password.",
        "Give postgresql://USER@HOST:5432/DATABASE, with the password in PGPASSWORD or ~/.pgpass; to publish also `lance:FOLDER` or `lance+s3://BUCKET/PATH`, with keys in the environment.",
    ),
    "E_TABLE": (
        "A table or column of a database has an unsafe name, or is not there, or a column is none of vectors; nothing was asked of the table.",
        "`duckkb table show --url URL` lists the tables with vectors, with a TABLE behind it its columns.",
    ),
    "E_DIMENSION": (
        "A vector, or those of a model, have other dimensions than what they are to be compared with; nothing was compared.",
        "Use the model that made the vectors; `duckkb table show --url URL TABLE` says how long they are.",
    ),
    "E_POLICY": (
        "There is no policy of this name.",
        "`duckkb policy list` shows those of this base and those that duckkb comes with.",
    ),
    "E_PARAMS": (
        "The parameters of a collection do not fit its policy.",
        "`duckkb policy show POLICY` lists what can be set.",
    ),
    "E_INVALID": (
        "A record does not fit its type: schema, identity, reserved or unknown names.",
        "Change the fields named; `duckkb schema TYPE` prints the schema.",
    ),
    "E_PATH": (
        "A path is not a regular file, lies where it may not, or would be overwritten.",
        "Give another path, or `--force` where overwriting is meant.",
    ),
}
_INTERRUPTED = {
    "E_INTERRUPTED": (
        "A signal asked the command to end (SIGINT 130, SIGTERM 143, SIGHUP 129).",
        "Run it again; a write was done whole or not at all.",
    ),
}
_STATE = {
    "E_STATE": ("The base is not in a state in which this can be done.", "See the message."),
    "E_NO_KB": (
        "No knowledge base here: no config.yaml in this folder or above it.",
        "`duckkb init`, or name one with `--kb PATH` or DUCKKB_KB.",
    ),
    "E_NOT_PUBLISHED": (
        "Nothing is published at this address under this name, or the commit that it asks for is not kept.",
        "`duckkb publish --to URL`.",
    ),
    "E_BEHIND": (
        "What is published is not the commit that this would follow on: another publisher was faster, it is newer, or is not known here.",
        "`git fetch`, then publish again; `--rewind` for an older commit, `--full` where the published one is gone.",
    ),
    "E_PENDING": (
        "Texts of the commit have no vector yet, so that it was not published.",
        "`duckkb index build`; or `duckkb publish --pending ok`.",
    ),
    "E_PUBLISHED": (
        "What was asked needs a clone; this is what is published of one (--backend, DUCKKB_BACKEND).",
        "Leave --backend out and unset DUCKKB_BACKEND; write in a clone, commit, then `duckkb publish`.",
    ),
    "E_UNKNOWN_TYPE": ("No type, table or label has this name.", "`duckkb schema` lists the types."),
    "E_SCOPE": (
        "There is no collection for the memories of this scope.",
        "The message has the command that makes one; `duckkb memory stats` lists the scopes.",
    ),
    "E_NOT_FOUND": ("No record has this identity.", "`duckkb list TYPE` or `duckkb find TYPE QUERY`."),
    "E_AMBIGUOUS_KEY": (
        "Several records have keys, or several documents names, that a text may mean.",
        "Give more of it.",
    ),
    "E_NO_RESULTS": ("Nothing matched.", "Loosen the query or the filter."),
    "E_NO_EVIDENCE": (
        "What the base has on a question is too little for a chat model to be asked, or the model found no answer in it.",
        "Ask with words that stand in the base; `duckkb pack QUESTION` prints what is found, and `duckkb find` searches further.",
    ),
    "E_UNSUPPORTED": (
        "An answer has sentences that the texts they cite do not support as far as can be checked, and `--strict` asks for none.",
        "Read the marks beside it: `duckkb get URI` prints what was cited.",
    ),
    "E_RESERVED": (
        "A collection, table or label has a name that a system, DuckDB or duckkb keeps for itself.",
        "Choose another: `duckkb col rename NAME NEW`; of a type, rename its folder below data/ and its `table` or `label`.",
    ),
    "E_EXISTS": (
        "Something with this name or identity exists already.",
        "Choose another, or use the command that changes it.",
    ),
    "E_STALE": (
        "The record is not at the version that --if-match or _etag named.",
        "`duckkb get` it again and repeat the change on the new version.",
    ),
    "E_EDGES": ("Edges touch the node that was to be deleted.", "`--cascade` deletes them with it."),
    "E_SHRINK": (
        "A write, merge or pull request deletes more of a table than it may: max(20, 10 %) where `limits` do not say else.",
        "`--allow-shrink` if that is meant; `limits.shrink_records` and `limits.shrink_share` say how many may go.",
    ),
    "E_CARDINALITY": (
        "An edge breaks the cardinality that its type declares.",
        "Delete the other edge first, or change `cardinality` in the ontology.",
    ),
    "E_DANGLING_EDGE": ("An edge names an end that does not exist.", "Add the node, or delete the edge."),
    "E_AMBIGUOUS_END": (
        "A bare end of an edge exists in several of the allowed types.",
        'Write it as {"type": TYPE, "id": IDENTITY}.',
    ),
    "E_DUP_IDENTITY": ("Two records have one identity.", "`duckkb dedupe` joins them field by field."),
    "E_DUP_ID": ("Two different records have one __id.", "`duckkb dedupe --reassign` gives the later one a free id."),
    "E_MERGE_IN_PROGRESS": (
        "A merge, rebase or cherry-pick is under way; writes would mix with it.",
        "`duckkb resolve`, then finish it; or abort it with git. Then repeat.",
    ),
    "E_UNREADABLE": (
        "Truth cannot be read: a line or file is broken. Nothing was changed.",
        "Mend the lines named; `--lenient` reads on without them.",
    ),
    "E_DATA_MISSING": ("data/ is missing or empty, but HEAD has records.", "`git checkout -- data` brings them back."),
    "E_SPARSE": (
        "git left files of the base out of this checkout (sparse checkout, skip-worktree), so a write could store twice what is there.",
        "The command named brings them back, such as `git sparse-checkout add DIR`.",
    ),
    "E_FORMAT": ("data/FORMAT.json names a format that this version does not know.", "Use a newer duckkb."),
    "E_SNAPSHOT": (
        "A collection's snapshot file is no such file, damaged, or of another version.",
        "Take the snapshot again: `duckkb col snapshot NAME FILE`.",
    ),
    "E_FOREIGN": (
        "A file or folder of another program (Chroma, OpenClaw) is damaged, or is not what it was taken for.",
        "Give the one that the message asks for; nothing was written.",
    ),
    "E_BACKUP": (
        "A file is no backup, is damaged, or holds what no backup may hold. Nothing was written.",
        "Use another backup, or make a new one: `duckkb backup create`.",
    ),
    "E_PATCH": (
        "A patch is no patch of duckkb, damaged, or does not fit the types of this base.",
        "Make it again: `duckkb diff BASE..HEAD --format patch`.",
    ),
    "E_RECOVER": (
        "A sealed write cannot be finished: a target is neither old nor new.",
        "`duckkb recover --show`, then `--forward` or `--abort`.",
    ),
    "E_TRACKED_STATE": (
        "git tracks files in .duckkb/, which must be local; it is not read.",
        "`git rm -r --cached .duckkb`.",
    ),
    "E_HARNESS": (
        "The file of a harness is none, or is not as it was written.",
        "Take it from a backup, or begin a new harness.",
    ),
    "E_LOCKED": ("Another process holds the lock.", "Wait, or raise `--lock-timeout`."),
    "E_KEY": (
        "The key of derived state is wrong, missing or cannot be used here; nothing was changed.",
        "Set DUCKKB_ENCRYPTION_KEY; `duckkb cleanup --sealed` drops what is sealed, which is made again from data/.",
    ),
    "E_IO": (
        "The disk or file system refused.",
        "Free space or mend permissions, then repeat; nothing was half-written.",
    ),
    "E_READ_ONLY": ("The base cannot be written here.", "Write from a checkout that you own."),
    "E_MODEL": (
        "A model cannot be used.",
        "`pip install 'duckkb[local]'`, mend the endpoint, or search with -m.",
    ),
    "E_CANCELLED": ("Whoever asked a model did not want the answer any more.", "Ask again."),
    "E_ANSWER_CUT": (
        "A chat model stopped in the middle of its answer: at its limit of tokens, by a filter, or as the connection broke.",
        "Ask again, or another one: `duckkb ask --model NAME`; what it said until then was printed and checked.",
    ),
    "E_BUDGET": (
        "An index job used up its budget before everything was embedded.",
        "Run it again: what was made is kept, and it does the rest.",
    ),
    "E_SHARD": (
        "Shards of vectors do not fit the base, or one another: one is missing, damaged, or for another commit, ontology or model, or"
        " rows of it did not agree with what was recomputed.",
        "The findings name each shard with the command that makes it again; `--partial` takes those that are sound.",
    ),
    "E_EXECUTOR": (
        "What was to make the shards on other machines is not installed, does not answer, or lost its workers time and again.",
        "Run it again, as what was made is kept; or make the shards one by one with `duckkb index build --shard`.",
    ),
    "E_CACHE_LIMIT": (
        "A migration to another model would make the cache folder larger than it may be, and push vectors out that were made before.",
        'Raise `cache_limit` in XDG_STATE_HOME/duckkb/settings.json ({"cache_limit": "40 GB"}), and run it again.',
    ),
    "E_VECTORS": (
        "Two models cannot be compared, as vectors of one of them are missing in part.",
        "`duckkb index migrate --to MODEL`, or `duckkb index build` for the configured one.",
    ),
    "E_UNTRUSTED": (
        "The configuration names hosts, key variables or commands that this machine has not accepted.",
        "Read them with `duckkb trust --show`, then `duckkb trust`.",
    ),
    "E_TOKEN": (
        "A request has no bearer token, or what it has, or what DUCKKB_MCP_TOKEN holds, is none.",
        "Send `Authorization: Bearer TOKEN`; `duckkb tenant add` prints a token.",
    ),
    "E_DENIED": (
        "A request's token is unknown, or its tenant is disabled.",
        "Ask whoever serves the base for a token; `duckkb tenant list` says who is disabled.",
    ),
    "E_EXPIRED": (
        "A request's token is a tenant's, and has expired.",
        "`duckkb tenant list` says when each does; `duckkb tenant rotate ID --expires 90d` makes another.",
    ),
    "E_TENANT": ("There is no tenant of this ID.", "`duckkb tenant list` names them."),
    "E_TENANTS": (
        "The file of a base's tenants is damaged, or others could have changed or read it, so that nobody is let in.",
        "Run the command that the message names, once you have looked.",
    ),
    "E_LIMIT": ("The query took too much time or memory.", "Make it narrower."),
    "E_BUSY": (
        "More calls wait for the server than it keeps, or a tenant makes more of them than it may.",
        "Ask again when Retry-After says, with fewer calls at once.",
    ),
    "E_WORKER": (
        "The process of a server that worked on a request ended before it answered.",
        "Ask again; after a write look first whether it was carried out.",
    ),
    "E_TIMEOUT": (
        "There was no answer within the time that the server or the request gives it; what had begun is carried through.",
        "Ask for less, or with a larger `x-timeout-ms` or --timeout; after a write look first whether it was carried out.",
    ),
    "E_BODY": (
        "The body of a request is larger than a server takes, or did not come in time.",
        "Send at most 4 MiB, at once.",
    ),
    "E_HOST": (
        "A request is for a name that the server is not asked under, or comes from a page of another server.",
        "Ask 127.0.0.1 or localhost, or start the server with --allowed-host NAME.",
    ),
    "E_PORT": (
        "A server cannot listen on the port that it was given.",
        "End what serves there, or name another --port.",
    ),
    "E_SERVING": (
        "A server in the background runs already, runs not at all, or does not come up or end.",
        "`duckkb serve stop` ends it, `duckkb serve --daemon` starts it; the message names its log.",
    ),
    "E_WARM": (
        "DUCKKB_DAEMON=require wants a warm process to answer, and none did.",
        "`duckkb serve --warm` starts one; without the variable the command runs by itself.",
    ),
    "E_DATABASE": (
        "A database that is asked or published to cannot be reached, lets nobody in, has no pgvector, takes too long, or refused a statement.",
        "See the message, which is the server's; `psql` with the same URL says whether it runs and lets you in. Of Lance tables look at the folder, or at the environment of the bucket.",
    ),
    "E_UNAVAILABLE": ("Something that is needed did not answer.", "Try again."),
    "E_REFUSED": ("A guard stopped the write; nothing changed.", "See the message."),
    "E_FORBIDDEN": (
        "The role of the caller, or the part of the base that exists for it, does not allow what was asked.",
        "Ask an admin of the server for the role.",
    ),
    "E_INTERNAL": ("A defect in duckkb or a library.", "Report it with the message; truth was not changed."),
}
_GIT = {
    "E_GIT": (
        "git is missing, failed, or does not have an object that is needed.",
        "`git status` and `git fsck` say more.",
    ),
    "E_DOCUMENT": (
        "A write to records that are files: those of a document collection.",
        "Edit, add or delete the file itself; the next command sees it.",
    ),
    "E_SOURCE_MISSING": (
        "The folder of a document collection is not there; none of its documents is served, and none counts as deleted.",
        "Bring the folder back (mount it, `git checkout`), or `duckkb collection remove NAME`.",
    ),
    "E_EXTRACT": (
        "A file of a document collection whose `extraction` is `strict` could not be read whole; nothing of it is a record.",
        "Mend the file, name it under `ignore`, or have the policy `fallback`; `duckkb ls COLLECTION --long` says why.",
    ),
    "E_REVIEW": (
        "The ontology has changes of this type or field reviewed, and an agent tried to write one directly.",
        "Put `propose` in front of the verb: `duckkb propose put ...` makes a branch to review.",
    ),
    "E_GUARD": (
        "A change removes or weakens a rule by which changes are judged: a required review, a limit, a rule of a schema, a judged question, a workflow, an attribute of git.",
        "Put it back, or have it decided apart: `--allow-weaker`, in a pull request the label `duckkb: weaker rules`, takes it for a warning; `SKIP=duckkb-check git commit` goes past the hook.",
    ),
    "E_REVISION": (
        "No commit, branch or tag has this name here, or two have no commit in common.",
        "`git branch -a` and `git log --oneline` list them; `git fetch --unshallow` in a shallow clone.",
    ),
}
_LINES = {
    "E_UTF8": ("A line or a text is not UTF-8.", "Save the file as UTF-8."),
    "E_ROWS": (
        "A CSV, TSV or Parquet file cannot be read as a table: a row that does not fit its header, a quote without end, a damaged file.",
        "Mend the line named; put quotes around cells that hold the delimiter.",
    ),
    "E_BOM": (
        "A file starts with a byte order mark.",
        "Save it without; `duckkb fmt` cannot, as the file may be of another encoding.",
    ),
    "E_CR": ("A line ends in CR LF.", "Convert to LF (`sed -i 's/\\r$//' FILE`) and set `* text eol=lf` for data/."),
    "E_NUL": ("A line has a NUL byte.", "Restore the file from git."),
    "E_MARKERS": (
        "A file holds git's conflict markers.",
        "`duckkb resolve` during a merge; else keep one side of each conflict, then `duckkb check`.",
    ),
    "E_POINTER": ("A file is a Git LFS pointer, not its content.", "`git lfs pull`; parts should not be in LFS."),
    "E_EMPTY_PART": (
        "A part holds no record though it held some: it was cut off.",
        "`git checkout HEAD -- PART` brings them back; `rm PART` if all of them are to go.",
    ),
    "E_UNTRACKED": (
        "git had a file of the base, tracks it no longer and finds it still here (`git rm --cached`), so no commit will have it.",
        "`git add -f FILE`, or `rm FILE` if it is to go.",
    ),
    "E_JSON": ("A line is not exactly one JSON object.", "Mend the JSON on that line."),
    "E_DUP_KEY": ("An object has one key twice.", "Keep one of them."),
    "E_NUMBER": (
        "A number is NaN, infinite, too large for a double, or an integer past int64.",
        "Write a finite number, or the integer as a string.",
    ),
    "E_SURROGATE": ("A string holds a lone surrogate.", "Write the whole character."),
    "E_ID": (
        "__id is not a JSON integer from 1 to 2^53 - 1.",
        "Restore it from git, or leave it out and run `duckkb fmt`.",
    ),
    "E_TIME": (
        "__created_at or __updated_at is not of the form YYYY-MM-DDTHH:MM:SS.ffffffZ.",
        "Restore it from git, or leave it out and run `duckkb fmt`.",
    ),
    "E_TOO_LARGE": ("A line or a text is longer than limits.max_record_bytes.", "Split it, or raise the limit."),
    "E_DEPTH": ("Values are nested deeper than limits.max_depth.", "Flatten the record."),
    "E_IDENTITY": (
        "An identity field is missing, empty, not NFC, too long, of a wrong kind or has control characters.",
        "Change the field named.",
    ),
    "E_NAME": (
        "A field name is reserved (leading _), differs from another in case alone, or is a dotted path into an object.",
        'Rename the field; a member of an object is given nested: `{"ticket": {"status": ...}}`.',
    ),
}
_CHECKS = {
    "E_NOT_CANONICAL": ("A line is not in canonical form, or the lines of a part are not sorted.", "`duckkb fmt`."),
    "E_INCOMPLETE": ("A line lacks __id or times.", "`duckkb fmt` completes it."),
    "E_SCHEMA": ("A stored record does not satisfy its type's schema.", "Change the record or the schema."),
    "E_UNEXPECTED_FILE": (
        "A file or folder under data/ that duckkb does not know.",
        "Move it away; duckkb never reads or deletes it.",
    ),
    "E_SYMLINK": ("A link inside data/; links are not followed.", "Replace it by the file."),
    "E_NOT_REGULAR": ("A path inside data/ is a FIFO, a device or a folder where a file belongs.", "Remove it."),
    "E_ID_CHANGED": (
        "A record has another __id than before; citations and caches knew it by the old one.",
        "Restore the old __id from git.",
    ),
    "E_MISPLACED": (
        "A record lies in a day folder that is not the day of its __created_at.",
        "Restore __created_at from git.",
    ),
}
_WARNINGS = {
    "W_BEHIND": ("What is published, and answered, is another commit than HEAD of this clone.", "`duckkb publish`, `git pull` or `git fetch`, as the message says."),
    "W_REWOUND": ("The commit that was published is no ancestor of the one that is now.", "None needed if history was meant to be rewritten."),
    "W_PARTIAL": ("git left files of the base out of this checkout; what stands in them is not found.", "The command named brings them back, such as `git sparse-checkout add DIR`."),
    "W_UNWATCHED": ("git does not look whether a file of the base changed (skip-worktree, assume-unchanged), so no commit has what is written there.", "`git update-index --no-skip-worktree FILE`, or `--no-assume-unchanged`."),
    "W_DOCUMENT": ("A file in the folder of a document collection is no record, or could not be read as one.", "Rename, replace or mend the file, or name it under `ignore`."),
    "W_LINK": ("A link of a document leads to no document of its collection, or to several.", "Mend the link, add the file, or write more of the path."),
    "W_FRONT_MATTER": ("Front matter of a document has a value or key that YAML's readers read differently, or that no record keeps as it stands; text is kept of it.", "Write the value in quotes, or mend the line that is named."),
    "W_UPDATE": ("A document collection was read as it lies: nothing was pulled, or its command did not run.", "See the message; `duckkb trust` accepts commands."),
    "W_ARCH": ("A graph of code was imported without attributes that a record of it has no field for, or with edges joined that are alike.", "None needed; `duckkb schema arch` says what is kept."),
    "W_DEGRADED": ("A search answered without one of its lanes, its reranker or the variants of its question, or with vectors missing.", "`duckkb index build`, or mend the model."),
    "W_EXACT": ("All vectors of a type were compared, though its settings want a graph (`ann`); the answer is exact, and slower.", "`duckkb index refresh` makes the graph; it needs `pip install 'duckkb[ann]'`."),
    "W_TYPE": ("A value has another type than its field has had in the collection; it is stored as it is.", "Compare such a field with values of one type, or mend the record."),
    "W_OMITTED": ("Long texts of results are given in brief, or vectors that callers gave left out of the records of `find` and `list`.", "`--full` gives whole texts, `--fields +NAME` a vector; `duckkb get` gives whole records."),
    "W_NO_VALUE": ("A field that --fields names has no value in any record that is printed, or a filter that lets nothing through names a path that leads to no value in any record, or a value that no record has.", "Write the near name, or a value, that the notice gives; none needed if the field is optional."),
    "W_NEW_COLLECTION": ("An import named a type that was not there, and made a collection of this name with its first records.", "None needed if that is meant; `duckkb col rm NAME --yes` takes it away."),
    "W_FIELDS_CHOSEN": ("The first records of a collection had no text in the fields that are compared by meaning, so that other fields of theirs are.", "None needed; the definition in ontology/collections/ can name others."),
    "W_NO_MEANING": ("Nothing of a type can be compared by meaning, as no record has text in the fields that its definition names for that.", "Name fields that have text under `vectors` in the definition, then `duckkb index build`."),
    "W_GENERATED_ID": ("A record came without an id and got one: from `put` a random one, from an import one that follows from its contents, so that a row that is changed in the file comes as a new record.", "`put` prints the id; `duckkb import TYPE FILE --dry-run` shows the fields; `duckkb import TYPE FILE --id FIELD`, or FIELD,FIELD, names those that tell records apart."),
    "W_REPLACED": ("One identity was given in several lines that differ; the last of them is stored.", "Leave out the lines that are not meant; `put --merge` joins their fields."),
    "W_QUESTION": ("A judged question expects a record that is not there, so that no answer can be right.", "Put the record, or name another one under `expected` at the line named."),
    "W_DROPPED": ("A stored record, or an object in it, was replaced by one that lacks fields of it, which are gone.", "`duckkb put` of these fields with --merge, as the notice says; --merge changes only the fields given, each as a whole."),
    "W_NULL": ("Fields were given as null, which a record does not hold: a field that is absent is null.", "Leave such fields out; `put --merge` takes a null for: remove this field."),
    "W_FIELD": ("A field is new to its type, and nearly has the name of another one that the record lacks; it is stored.", "`duckkb put` the record with the other name, if that is meant."),
    "W_SAME_TEXT": ("Several records of a collection that makes its keys of a text hold the same one.", "`duckkb delete` all but one of them."),
    "W_SKIPPED": ("Records in which a field is missing are neither equal nor unequal to a value, so `<>` and NOT leave them out.", "Add them with `coalesce((CONDITION), TRUE)`, or `OR FIELD IS NULL`."),
    "W_LEFT_OUT": ("Collections that a request names do not exist for its caller, and were left out.", "Name others, or ask an admin of the server for a grant."),
    "W_PENDING": ("Records are stored without vectors.", "`duckkb index build`."),
    "W_TRUNCATED": ("A cap cut the result, a filter lets more through than --limit gives, or a text was longer than the model reads.", "Raise the limit, or page; embed a long text in parts."),
    "W_NOT_ASKED": ("A type has a policy that does not allow the search that was asked of all types, or its filter names a field that the type lacks or does not fit its values, so it was left out.", "Ask it by itself, in a mode that its policy allows, with fields that `duckkb schema TYPE` has."),
    "W_MODE": ("The search ran in another mode than asked, as the type cannot serve that one.", "Ask for the mode that was used."),
    "W_PLAIN": ("No record fits the question with its quotes and stars: each line was found by its plain words, and has `_filled`.", "Leave the quotes and stars out."),
    "W_NO_COLLECTION": ("There is no such collection yet; it was taken for an empty one.", "`duckkb vector store` makes it; `duckkb col list` lists those that are there."),
    "W_CACHE": ("A cache file or some of its rows cannot be used and were left out.", "`duckkb index build` writes a new one; `git lfs pull` if it is a pointer."),
    "W_CACHE_SIZE": ("A file of the team's cache is larger than 50 MB, and git keeps it whole, each night's anew; forges refuse files of 100 MB.", "`duckkb init --lfs`, then `git lfs install` and `git add --renormalize data/indices`."),
    "W_NO_TEAM_CACHE": ("The cache of vectors that the team is to share is not there: each clone computes all of them itself.", "`duckkb index build` on the main branch, then commit data/indices/; at night by `duckkb init --github`."),
    "W_CACHE_UNTRUSTED": ("A cache from elsewhere did not agree with recomputed rows and was dropped.", "Find out who changed it, then `duckkb index build`."),
    "W_COMPUTED": ("A search computed vectors that no cache had, which took its time.", "`duckkb index build` on the main branch gives them to every clone."),
    "W_SEALED": ("A key is set: what was derived before was sealed, was damaged and is made again, or is not written where it would be read by anybody.", "None needed; see docs/encryption.md."),
    "W_DUPLICATE": ("A record stands in two files and was read as their field-wise merge.", "`duckkb dedupe`."),
    "W_INCOMPLETE": ("A hand-written line got its id and times in memory only.", "`duckkb fmt`."),
    "W_LENIENT": ("Lines that cannot be read were left out.", "`duckkb check` lists them."),
    "W_MIGRATED": ("Something of another program is here otherwise than there: under another name, left out, or as it was changed here.", "None needed if that is meant; see the message."),
    "W_READ_ONLY": ("The base cannot be written; it was read without lock.", "None needed for reading."),
    "W_NO_STORE": ("The user's cache folder cannot be used, so that all of the base is read anew each time.", "Free space, or name another folder with DUCKKB_CACHE_HOME."),
    "W_MERGED": ("A merge, pick or revert that git made by lines holds a record otherwise than a merge by records would.", "Look at both sides (`git log -p`), and put what is meant; `duckkb merge` asks instead."),
    "W_PART_SIZE": ("A part grew past 1,000 records or 400,000 bytes.", "None needed; new records go to another part."),
    "W_BASE_CONFIG": ("The configuration of the older side of a difference or an impact does not load; the newer one's was used for both.", "None needed; `duckkb config show` says what the newer one is."),
    "W_UNBOUNDED": ("This system cannot bound the memory of a query, only its time.", "Run statements of others on Linux or macOS."),
    "W_SHARD": ("A folder of shards has some of another plan, which were left where they are.", "None needed; remove them, or give each plan a folder."),
    "W_NOT_ON_MAIN": ("The team cache is meant to be built on the main branch.", "None needed if this is meant."),
}  # fmt: skip
_OF_CHANGES = {
    "W_MASS_DELETE": ("A change removes more of a type's records than it may, and `--allow-shrink` says that this is meant.", "Look whether that is meant; `git revert` brings them back."),
    "W_MASS_CHANGE": ("A change edits more than max(20, 10 %) of a type's records.", "Look whether that is meant; review a large edit apart from others."),
    "W_GUARD": ("A change removes or weakens a rule by which changes are judged, which was allowed (`--allow-weaker`).", "None needed if that is meant."),
    "W_NEW_RULES": ("Records of a change pass by the rules that it brings along, and would not by those before.", "Look whether the new rules are meant; none needed if they are."),
    "W_RENAMED": ("A record has another identity than before.", "None needed if that is meant; `duckkb rename` takes edges along."),
    "W_CREATED_AT": ("A record has another time of creation than before.", "Restore __created_at from git."),
    "W_INVISIBLE": ("A text holds characters that nobody sees (bidirectional controls, characters without width, tags), or an identity mixes letters that look alike.", "Remove them: `duckkb put` with the text as it should read."),
    "W_CACHE_IN_PR": ("A change touches the team's cache in data/indices/, which is built on the main branch alone.", "Take it out of the change: `git checkout BASE -- data/indices/`."),
    "W_NEAR_DUPLICATE": ("A new record says nearly the same as another one.", "`duckkb put` what is new into the other record, and delete this one."),
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
