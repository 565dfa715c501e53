// Written by generate.py from the server's OpenAPI document: not to be changed by hand.

import type { CallOptions } from "./http.js";

export type ErrorCode =
  "E_AMBIGUOUS_END" |
  "E_AMBIGUOUS_KEY" |
  "E_ANSWER_CUT" |
  "E_ARGUMENT" |
  "E_BACKUP" |
  "E_BEHIND" |
  "E_BODY" |
  "E_BOM" |
  "E_BUDGET" |
  "E_BUSY" |
  "E_CACHE_LIMIT" |
  "E_CANCELLED" |
  "E_CARDINALITY" |
  "E_CONFIG" |
  "E_CR" |
  "E_DANGLING_EDGE" |
  "E_DATABASE" |
  "E_DATA_MISSING" |
  "E_DENIED" |
  "E_DEPTH" |
  "E_DIMENSION" |
  "E_DOCUMENT" |
  "E_DUP_ID" |
  "E_DUP_IDENTITY" |
  "E_DUP_KEY" |
  "E_EDGES" |
  "E_EMPTY" |
  "E_EMPTY_PART" |
  "E_EXECUTOR" |
  "E_EXISTS" |
  "E_EXPIRED" |
  "E_EXTRACT" |
  "E_FIELD" |
  "E_FILTER" |
  "E_FORBIDDEN" |
  "E_FOREIGN" |
  "E_FORMAT" |
  "E_GIT" |
  "E_GUARD" |
  "E_HARNESS" |
  "E_HOST" |
  "E_ID" |
  "E_IDENTITY" |
  "E_ID_CHANGED" |
  "E_INCOMPLETE" |
  "E_INTENT" |
  "E_INTERNAL" |
  "E_INTERRUPTED" |
  "E_INVALID" |
  "E_IO" |
  "E_JSON" |
  "E_KEY" |
  "E_LIMIT" |
  "E_LOCKED" |
  "E_MARKERS" |
  "E_MERGE_IN_PROGRESS" |
  "E_MISPLACED" |
  "E_MODEL" |
  "E_MODEL_CANNOT" |
  "E_NAME" |
  "E_NOT_CANONICAL" |
  "E_NOT_FOUND" |
  "E_NOT_PUBLISHED" |
  "E_NOT_REGULAR" |
  "E_NO_EVIDENCE" |
  "E_NO_KB" |
  "E_NO_MODEL" |
  "E_NO_RESULTS" |
  "E_NUL" |
  "E_NUMBER" |
  "E_ONTOLOGY" |
  "E_PARAMS" |
  "E_PARTIAL" |
  "E_PATCH" |
  "E_PATH" |
  "E_PENDING" |
  "E_POINTER" |
  "E_POLICY" |
  "E_PORT" |
  "E_PUBLISHED" |
  "E_QUERY" |
  "E_READ_ONLY" |
  "E_RECOVER" |
  "E_REFUSED" |
  "E_RESERVED" |
  "E_REVIEW" |
  "E_REVISION" |
  "E_ROLE" |
  "E_ROWS" |
  "E_SCHEMA" |
  "E_SCOPE" |
  "E_SERVING" |
  "E_SHARD" |
  "E_SHRINK" |
  "E_SNAPSHOT" |
  "E_SOURCE_MISSING" |
  "E_SPARSE" |
  "E_SQL" |
  "E_STALE" |
  "E_STATE" |
  "E_SURROGATE" |
  "E_SYMLINK" |
  "E_TABLE" |
  "E_TENANT" |
  "E_TENANTS" |
  "E_TICKET" |
  "E_TIME" |
  "E_TIMEOUT" |
  "E_TOKEN" |
  "E_TOO_LARGE" |
  "E_TRACKED_STATE" |
  "E_UNAVAILABLE" |
  "E_UNEXPECTED_FILE" |
  "E_UNKNOWN_TYPE" |
  "E_UNREADABLE" |
  "E_UNSUPPORTED" |
  "E_UNTRACKED" |
  "E_UNTRUSTED" |
  "E_URL" |
  "E_USAGE" |
  "E_UTF8" |
  "E_VECTORS" |
  "E_WARM" |
  "E_WORKER" |
  "E_YAML";

export type FindGiven = {
  /** A type or collection, by its name, table or label; `all` searches every one. */
  "type": string;
  /** The question, in words. */
  "query"?: string;
  /** How to search: by meaning (similar), words (match), both (hybrid), or the filter alone (where). Default: the type's policy. */
  "mode"?: "similar" | "match" | "hybrid" | "where";
  /** Only records that match this condition, applied before ranking: topic = 'storage' AND year > 2019. */
  "where"?: string;
  /** At most this many results. */
  "limit"?: number;
  /** The question as a vector; with a query too, the search is hybrid. */
  "vector"?: Array<number>;
  /** Explain each score and rank. */
  "explain"?: boolean;
  /** Whole texts instead of matching lines. */
  "full"?: boolean;
  /** Only these fields (meta.source for a nested one) and the record's name; +_chunk adds a field to the default ones. */
  "fields"?: Array<string>;
  /** Show the commit of each record's line, and its citation. */
  "provenance"?: boolean;
  /** Read the base at a commit, branch or tag. For callers who may see the whole base. */
  "at"?: string;
};

export type FindAnswer = {
  /** Best first. */
  "results": Array<{
    "_type"?: string;
    "_etag"?: string;
    /** The record has fields that are missing or shortened here; do not put it back. */
    "_partial"?: Array<string>;
    "_engine"?: string;
    "_score"?: number;
    "_chunk"?: {
      "field": string;
      "chunk_seq": number;
      "text"?: string;
    };
    "_scores"?: Record<string, unknown>;
    /** For a document: the line of its file where this text begins. */
    "_line"?: number;
    "_provenance"?: Record<string, unknown>;
    "_degraded"?: boolean;
    "_filled"?: boolean;
    "_explain"?: Record<string, unknown>;
    [field: string]: unknown;
  }>;
  "mode": string;
  "engine": string;
  "degraded": boolean;
  "notices": Array<{
    "code": string;
    "message": string;
    "remedy": string;
    /** The part that was missing, and the reason. */
    "reason"?: string;
  }>;
  "explain"?: Record<string, unknown>;
};

export type GetGiven = {
  /** A type or collection, by its name, table or label. */
  "type"?: string;
  /** The identity of a record: a text, a number, or a list of its parts (an edge: [from, to]). */
  "identity"?: string | number | Array<string | number | Array<string | number> | Record<string, unknown>>;
  /** A citation, resolved at its commit: duckkb://TYPE/IDENTITY@COMMIT#FIELD/SEQ, as in `pack` and `ask`. */
  "citation"?: string;
  /** A document: its path in a collection (guide/install.md, guide/install.md:40), duckkb:// URI, or docid (#3fa9c1). */
  "document"?: string;
  /** For a document: start at this line of its file. */
  "first"?: number;
  /** For a document: at most this many lines. */
  "lines"?: number;
  /** Only these fields (meta.source for a nested one) and the record's name; +_chunk adds a field to the default ones. */
  "fields"?: Array<string>;
  /** Read the base at a commit, branch or tag. For callers who may see the whole base. */
  "at"?: string;
};

export type GetAnswer = {
  "__id"?: number | null;
  "__created_at"?: string | null;
  "__updated_at"?: string | null;
  "_type"?: string;
  "_etag"?: string;
  /** The record has fields that are missing or shortened here; do not put it back. */
  "_partial"?: Array<string>;
  "_chunk"?: {
    "field": string;
    "chunk_seq": number;
    "text"?: string;
  };
  /** How the record differs now from its cited version. */
  "_since"?: {
    "state": "changed" | "renamed" | "deleted";
    "fields"?: Array<string>;
    "identity"?: unknown;
  };
  "_notices"?: Array<{
    "code": string;
    "message": string;
    "remedy": string;
    /** The part that was missing, and the reason. */
    "reason"?: string;
  }>;
  [field: string]: unknown;
} | {
  "docid": string;
  "file": string;
  "title": string;
  "context"?: string;
  "line": number;
  "text": string;
  "warnings"?: Array<string>;
};

export type MultiGetGiven = {
  /** A glob over paths of documents (runbooks/** /*.md), or paths and docids separated by commas. */
  "pattern": string;
  /** For a document: at most this many lines. */
  "lines"?: number;
  /** Skip files with more bytes. */
  "most"?: number;
  /** Read the base at a commit, branch or tag. For callers who may see the whole base. */
  "at"?: string;
};

export type MultiGetAnswer = {
  "documents": Array<{
    "docid": string;
    "file": string;
    "title": string;
    "context"?: string;
    "line"?: number;
    "text"?: string;
    "warnings"?: Array<string>;
    "skipped"?: string;
  }>;
  /** Entries of the list that do not exist. */
  "lacking": Array<string>;
};

export type QueryGiven = {
  /** The question, in words. Give several lines to ask each lane separately: `lex:` words that must all occur, `vec:` a question, `hyde:` a possible answer, `intent:` the purpose of the question. */
  "question"?: string;
  /** Instead of the question: searches answered together, each in its lane. */
  "searches"?: Array<{
    /** lex: words that must all occur; vec: a question; hyde: a possible answer. */
    "type": "lex" | "vec" | "hyde";
    /** The text to search for. */
    "query": string;
  }>;
  /** With `searches`: the purpose of the question; it is not searched for. */
  "intent"?: string;
  /** Only documents of these collections. */
  "collections"?: Array<string>;
  /** At most this many results. */
  "limit"?: number;
  /** Only documents with at least this score (0 to 1). */
  "min_score"?: number;
  /** Whole texts instead of matching lines. */
  "full"?: boolean;
  /** Explain each score and rank. */
  "explain"?: boolean;
  /** Maximum number of documents that a reranker reads. */
  "candidates"?: number;
  /** Time limit of a reranker, in milliseconds. */
  "rerank_timeout_ms"?: number;
  /** Show code near the results in the code graph: in `hints`, or on stderr. */
  "arch_hints"?: boolean;
  /** Read the base at a commit, branch or tag. For callers who may see the whole base. */
  "at"?: string;
};

export type QueryAnswer = {
  /** Best first; a score is between 0 and 1. */
  "results": Array<{
    "docid": string;
    "file": string;
    "title": string;
    "context"?: string;
    "score": number;
    "line": number;
    "snippet"?: string;
    "body"?: string;
    "where"?: string;
    "_filled"?: boolean;
    "explain"?: Record<string, unknown> | null;
  }>;
  "notices": Array<{
    "code": string;
    "message": string;
    "remedy": string;
    /** The part that was missing, and the reason. */
    "reason"?: string;
  }>;
  /** Code near them in code graphs. */
  "hints"?: Array<Record<string, unknown>>;
};

export type SearchGiven = {
  /** Words: "a phrase", -not, prefix*. */
  "question": string;
  /** Only documents of these collections. */
  "collections"?: Array<string>;
  /** At most this many results. */
  "limit"?: number;
  /** Only documents with at least this score (0 to 1). */
  "min_score"?: number;
  /** Whole texts instead of matching lines. */
  "full"?: boolean;
  /** Explain each score and rank. */
  "explain"?: boolean;
  /** Read the base at a commit, branch or tag. For callers who may see the whole base. */
  "at"?: string;
};

export type SearchAnswer = {
  /** Best first; a score is between 0 and 1. */
  "results": Array<{
    "docid": string;
    "file": string;
    "title": string;
    "context"?: string;
    "score": number;
    "line": number;
    "snippet"?: string;
    "body"?: string;
    "where"?: string;
    "_filled"?: boolean;
    "explain"?: Record<string, unknown> | null;
  }>;
  "notices": Array<{
    "code": string;
    "message": string;
    "remedy": string;
    /** The part that was missing, and the reason. */
    "reason"?: string;
  }>;
  /** Code near them in code graphs. */
  "hints"?: Array<Record<string, unknown>>;
};

export type PackGiven = {
  /** The question, in words. */
  "question": string;
  /** Only records and documents of these types and collections. */
  "types"?: Array<string>;
  /** Approximate limit in tokens, including the text around the entries. */
  "budget"?: number;
  /** At most this many results. */
  "limit"?: number;
  /** Add the records one edge away from the results. */
  "neighbors"?: boolean;
  /** Format of the texts: one Markdown or plain text, or (json) one entry each. */
  "form"?: "markdown" | "plain" | "json";
  /** Read the base at a commit, branch or tag. For callers who may see the whole base. */
  "at"?: string;
};

export type PackAnswer = {
  "question": string;
  "commit": string | null;
  "uncommitted": number;
  "budget": number;
  "tokens": number;
  "counter": string;
  "fingerprint": string;
  /** Best first. */
  "entries": Array<{
    "number": number;
    "uri": string;
    "path": string;
    "line": number;
    "sha256": string;
    "score": number | null;
    "beside"?: number;
    "over"?: string;
    "text"?: string;
  }>;
  /** The first results that did not fit. */
  "omitted": Array<{
    "uri": string;
    "tokens": number;
  }>;
  "omitted_count": number;
  "notices": Array<{
    "code": string;
    "message": string;
    "remedy": string;
    /** The part that was missing, and the reason. */
    "reason"?: string;
  }>;
  "text"?: string;
};

export type AskGiven = {
  /** The question, in words. */
  "question": string;
  /** The chat model that answers, by its name in the configuration. Admins only. */
  "model"?: string;
  /** Only records and documents of these types and collections. */
  "types"?: Array<string>;
  /** Approximate limit of evidence for the model, in tokens. Default: from the configuration. */
  "budget"?: number;
  /** At most this many records and documents as evidence. */
  "limit"?: number;
  /** Read the base at a commit, branch or tag. For callers who may see the whole base. */
  "at"?: string;
};

export type AskAnswer = {
  "question": string;
  "answer": string | null;
  "sentences": Array<{
    "text": string;
    "cites": Array<number>;
    "marks": Array<{
      "fault": "uncited" | "no_entry" | "quotation" | "code" | "number" | "name" | "denial" | "unrelated";
      "part": string;
    }>;
  }>;
  /** Number of sentences with marks. */
  "unsupported": number;
  /** The citations of the answer. */
  "entries": Array<{
    "number": number;
    "uri": string;
    "path": string;
    "line": number;
    "sha256": string;
    "score": number | null;
  }>;
  /** Why the model stopped early, if it did. */
  "cut": string | null;
  "refusal": null | {
    "code": string;
    "reason": string;
    /** The first results. */
    "nearest": Array<{
      "number": number;
      "uri": string;
      "path": string;
      "line": number;
      "sha256": string;
      "score": number | null;
    }>;
  };
  "model": string | null;
  "provider": string | null;
  /** Tokens of prompt, completion and both, as the provider counts. */
  "usage": Record<string, unknown> | null;
  "support": {
    "coverage": number | null;
    "lead": number | null;
  };
  "pack": {
    "commit": string | null;
    "uncommitted": number;
    "budget": number;
    "tokens": number;
    "entries": number;
    "omitted": number;
    "counter": string;
    "fingerprint": string;
  };
  "prompt": string;
  "fingerprint": string;
  "notices": Array<{
    "code": string;
    "message": string;
    "remedy": string;
    /** The part that was missing, and the reason. */
    "reason"?: string;
  }>;
};

export type ListGiven = {
  /** A type or collection, by its name, table or label. */
  "type": string;
  /** Only records that match this condition, applied before ranking: topic = 'storage' AND year > 2019. */
  "where"?: string;
  /** Start after the record with this identity: the `next` of the previous page. */
  "after"?: string | number | Array<string | number | Array<string | number> | Record<string, unknown>>;
  /** At most this many results. */
  "limit"?: number;
  /** Whole texts instead of matching lines. */
  "full"?: boolean;
  /** Only these fields (meta.source for a nested one) and the record's name; +_chunk adds a field to the default ones. */
  "fields"?: Array<string>;
  /** Read the base at a commit, branch or tag. For callers who may see the whole base. */
  "at"?: string;
};

export type ListAnswer = {
  "records": Array<{
    "__id"?: number | null;
    "__created_at"?: string | null;
    "__updated_at"?: string | null;
    "_type"?: string;
    "_etag"?: string;
    /** The record has fields that are missing or shortened here; do not put it back. */
    "_partial"?: Array<string>;
    /** For a document: the line of its file where this text begins. */
    "_line"?: number;
    [field: string]: unknown;
  }>;
  "total": number;
  "next": string | null;
};

export type CountGiven = {
  /** A type or collection, by its name, table or label. */
  "type": string;
  /** Only records that match this condition, applied before ranking: topic = 'storage' AND year > 2019. */
  "where"?: string;
  /** Read the base at a commit, branch or tag. For callers who may see the whole base. */
  "at"?: string;
};

export type CountAnswer = {
  "type": string;
  "count": number;
};

export type TypesGiven = Record<string, never>;

export type TypesAnswer = {
  "types": Array<{
    "name": string;
    "kind": "node" | "edge";
    "table": string;
    "identity": Array<string>;
    "from"?: Array<string>;
    "to"?: Array<string>;
    "cardinality"?: string;
    "display": Array<string>;
    "full_text": Array<string>;
    "vectors": Array<string>;
    "records": number;
  }>;
};

export type SchemaGiven = {
  /** A type or collection, by its name, table or label. */
  "type": string;
};

export type SchemaAnswer = {
  "$schema": string;
  "title": string;
};

export type SettingsGiven = {
  /** A type or collection, by its name, table or label. */
  "type": string;
};

export type SettingsAnswer = {
  "type": string;
  "policy": null | {
    "name": string;
    "description": string;
    "intents": Array<string>;
    "default_intent": string | null;
    "refuse": Record<string, string>;
  };
  "full_text": Array<{
    "field": string;
    "weight"?: number;
    "language"?: string;
    "chunk_size"?: number;
    "reach"?: string;
    "given"?: boolean;
    "dimension"?: number | null;
  }>;
  "vectors": Array<{
    "field": string;
    "weight"?: number;
    "language"?: string;
    "chunk_size"?: number;
    "reach"?: string;
    "given"?: boolean;
    "dimension"?: number | null;
  }>;
  /** Fields that agents must change by proposals; * for all of them. */
  "review": Array<string>;
  "settings": Array<{
    "name": string;
    "value": unknown;
    "origin": "type" | "policy" | "configuration" | "default";
    "description": string;
  }>;
};

export type SqlGiven = {
  /** One read-only SELECT. Tables: one per node type and edge label, search_index, search_cache. */
  "statement": string;
  /** At most this many results. */
  "limit"?: number;
  /** Time limit, in seconds. */
  "timeout"?: number;
};

export type SqlAnswer = {
  "columns": Array<string>;
  "rows": Array<Record<string, unknown>>;
  "truncated": boolean;
};

export type NeighborsGiven = {
  /** A type or collection, by its name, table or label. */
  "type": string;
  /** The identity of a record: a text, a number, or a list of its parts (an edge: [from, to]). */
  "identity": string | number | Array<string | number | Array<string | number> | Record<string, unknown>>;
  /** Only edges of this type, or of these. */
  "label"?: string | Array<string>;
  /** Direction in which edges are followed. */
  "direction"?: "out" | "in" | "both";
  /** Maximum number of edges away. */
  "depth"?: number;
  /** At most this many results. */
  "limit"?: number;
  /** Continue after this: the `next` of the previous page. */
  "after"?: string;
  /** Whole texts instead of matching lines. */
  "full"?: boolean;
  /** Only these fields (meta.source for a nested one) and the record's name; +_chunk adds a field to the default ones. */
  "fields"?: Array<string>;
};

export type NeighborsAnswer = {
  /** Nearest first, each with the edge that led to it. */
  "records": Array<{
    "__id"?: number | null;
    "__created_at"?: string | null;
    "__updated_at"?: string | null;
    "_type"?: string;
    "_etag"?: string;
    /** The record has fields that are missing or shortened here; do not put it back. */
    "_partial"?: Array<string>;
    /** For a document: the line of its file where this text begins. */
    "_line"?: number;
    "_depth"?: number;
    "_edge"?: {
      "_type": string;
      "_direction": "out" | "in";
      "_identity"?: unknown;
      [field: string]: unknown;
    };
    [field: string]: unknown;
  }>;
  "truncated": boolean;
  /** The cursor of the next page, for records one edge away. */
  "next": string | null;
};

export type PathGiven = {
  /** Start of the path: [type, identity]. */
  "start": [string, string | number | Array<string | number | Array<string | number> | Record<string, unknown>>];
  /** End of the path: [type, identity]. */
  "end": [string, string | number | Array<string | number | Array<string | number> | Record<string, unknown>>];
  /** Only edges of this type, or of these. */
  "label"?: string | Array<string>;
  /** Direction in which edges are followed. */
  "direction"?: "out" | "in" | "both";
  /** Maximum number of edges away. */
  "depth"?: number;
  /** Whole texts instead of matching lines. */
  "full"?: boolean;
  /** Only these fields (meta.source for a nested one) and the record's name; +_chunk adds a field to the default ones. */
  "fields"?: Array<string>;
};

export type PathAnswer = {
  /** From the start to the end; empty if no path exists. */
  "path": Array<{
    "__id"?: number | null;
    "__created_at"?: string | null;
    "__updated_at"?: string | null;
    "_type"?: string;
    "_etag"?: string;
    /** The record has fields that are missing or shortened here; do not put it back. */
    "_partial"?: Array<string>;
    /** For a document: the line of its file where this text begins. */
    "_line"?: number;
    "_depth"?: number;
    "_edge"?: {
      "_type": string;
      "_direction": "out" | "in";
      "_identity"?: unknown;
      [field: string]: unknown;
    };
    [field: string]: unknown;
  }>;
};

export type NearGiven = {
  /** A type or collection, by its name, table or label. */
  "type": string;
  /** The identity of a record: a text, a number, or a list of its parts (an edge: [from, to]). */
  "identity": string | number | Array<string | number | Array<string | number> | Record<string, unknown>>;
  /** At most this many results. */
  "limit"?: number;
  /** Whole texts instead of matching lines. */
  "full"?: boolean;
  /** Only these fields (meta.source for a nested one) and the record's name; +_chunk adds a field to the default ones. */
  "fields"?: Array<string>;
};

export type NearAnswer = {
  /** Nearest first; `_score` is a mean cosine. */
  "records": Array<{
    "__id"?: number | null;
    "__created_at"?: string | null;
    "__updated_at"?: string | null;
    "_type"?: string;
    "_etag"?: string;
    /** The record has fields that are missing or shortened here; do not put it back. */
    "_partial"?: Array<string>;
    /** For a document: the line of its file where this text begins. */
    "_line"?: number;
    "_score"?: number;
    [field: string]: unknown;
  }>;
};

export type CitingGiven = {
  /** A type or collection, by its name, table or label. */
  "type": string;
  /** The identity of a record: a text, a number, or a list of its parts (an edge: [from, to]). */
  "identity": string | number | Array<string | number | Array<string | number> | Record<string, unknown>>;
  /** At most this many results. */
  "limit"?: number;
  /** Whole texts instead of matching lines. */
  "full"?: boolean;
  /** Only these fields (meta.source for a nested one) and the record's name; +_chunk adds a field to the default ones. */
  "fields"?: Array<string>;
};

export type CitingAnswer = {
  "records": Array<{
    "__id"?: number | null;
    "__created_at"?: string | null;
    "__updated_at"?: string | null;
    "_type"?: string;
    "_etag"?: string;
    /** The record has fields that are missing or shortened here; do not put it back. */
    "_partial"?: Array<string>;
    /** For a document: the line of its file where this text begins. */
    "_line"?: number;
    [field: string]: unknown;
  }>;
  "truncated": boolean;
};

export type BlameGiven = {
  /** A type or collection, by its name, table or label. */
  "type": string;
  /** The identity of a record: a text, a number, or a list of its parts (an edge: [from, to]). */
  "identity": string | number | Array<string | number | Array<string | number> | Record<string, unknown>>;
  /** Only this field, or a path below it: names.fr, tags[0]. */
  "field"?: string;
};

export type BlameAnswer = {
  "fields": Array<{
    "field": string;
    "value": unknown;
    "author"?: string;
    "email"?: string;
    "date"?: string;
    "summary"?: string;
    "commit": string | null;
    "uncommitted"?: boolean;
    "shallow"?: boolean;
    "path": string;
    "line": number;
    "uri": string;
  }>;
};

export type LogGiven = {
  /** A type or collection, by its name, table or label. */
  "type": string;
  /** The identity of a record: a text, a number, or a list of its parts (an edge: [from, to]). */
  "identity": string | number | Array<string | number | Array<string | number> | Record<string, unknown>>;
};

export type LogAnswer = {
  /** The newest first. */
  "changes": Array<{
    "author"?: string;
    "email"?: string;
    "date"?: string;
    "summary"?: string;
    "commit": string | null;
    "uncommitted"?: boolean;
    "shallow"?: boolean;
    "op": string;
    "type": string;
    "identity": string;
    "was"?: string;
    "path": string;
    "line": number;
    /** For each changed field `before` and `after`. */
    "fields": Record<string, unknown>;
  }>;
};

export type WhyGiven = {
  /** A type or collection, by its name, table or label. */
  "type": string;
  /** The identity of a record: a text, a number, or a list of its parts (an edge: [from, to]). */
  "identity": string | number | Array<string | number | Array<string | number> | Record<string, unknown>>;
  /** The question, in words. */
  "query": string;
  /** How to search: by meaning (similar), words (match), both (hybrid), or the filter alone (where). Default: the type's policy. */
  "mode"?: "similar" | "match" | "hybrid" | "where";
  /** Only records that match this condition, applied before ranking: topic = 'storage' AND year > 2019. */
  "where"?: string;
  /** At most this many results. */
  "limit"?: number;
  /** Read the base at a commit, branch or tag. For callers who may see the whole base. */
  "at"?: string;
};

export type WhyAnswer = {
  "type": string;
  "identity": string;
  "question": string;
  "mode": string;
  "found": boolean;
  "rank": number | null;
  "limit": number;
  "plain": boolean;
  "reasons": Array<string>;
  "lanes": Record<string, unknown>;
  "tokens": Array<Record<string, unknown>>;
  "filter": Record<string, unknown> | null;
  "excluded": Array<string>;
  "chunks": number;
  "pending": number;
  "policy": Record<string, unknown>;
  "first": Array<string>;
  "notices": Array<string>;
};

export type CheckGiven = {
  /** Check only a change: the files since the merge base with a revision, or a range BASE..HEAD or BASE...HEAD. Admins only. */
  "since"?: string;
  /** A branch: all changes that HEAD lacks. */
  "branch"?: string;
};

export type CheckAnswer = {
  "outcome": "passed" | "findings" | "not_judged";
  "errors": number;
  "warnings": number;
  "records": number;
  "findings": Array<{
    "code": string;
    "message": string;
    "path"?: string;
    "line"?: number;
    "field"?: string;
    "remedy"?: string;
    "type"?: string;
    "identity"?: string;
  }>;
  /** Equal findings on several records. */
  "groups": Array<Record<string, unknown>>;
};

export type DiffGiven = {
  /** The versions to compare: BASE with the current files, BASE..HEAD, or BASE...HEAD. Admins only. */
  "range"?: string;
  /** A branch: all changes that HEAD lacks. */
  "branch"?: string;
  /** Only these types or records: TYPE or TYPE:IDENTITY. */
  "only"?: Array<string>;
  /** Fields to ignore: records that differ only in these are left out. */
  "ignore"?: Array<string>;
  /** Only these kinds of change, and no findings. */
  "ops"?: Array<"insert" | "update" | "rename" | "delete">;
  /** Approximate limit in bytes; omitted records are counted, and `next` continues. */
  "budget"?: number;
  /** Continue where an answer ended: the `after` of its `next`. */
  "after"?: string;
};

export type DiffAnswer = {
  "version": 1;
  "outcome": "passed" | "findings" | "not_judged";
  "base": {
    "name": string;
    "commit": string | null;
  };
  "head": {
    "name": string;
    "commit": string | null;
  };
  /** The folder of the base inside its repository, with / at its end; empty where the two are one. */
  "prefix": string;
  "summary": Record<string, number>;
  "types": Record<string, Record<string, number>>;
  /** The change of each record: `op`, `type`, `identity`, `fields`, places. */
  "changes": Array<Record<string, unknown>>;
  "ontology": Array<Record<string, unknown>>;
  "groups": Array<Record<string, unknown>>;
  "findings": Array<Record<string, unknown>>;
  "truncated": boolean;
  "next": Record<string, unknown> | null;
};

export type ImpactGiven = {
  /** The versions to compare: BASE with the current files, BASE..HEAD, or BASE...HEAD. Admins only. */
  "range"?: string;
  /** A branch: all changes that HEAD lacks. */
  "branch"?: string;
  /** Number of results of a question that count. */
  "k"?: number;
};

export type ImpactAnswer = {
  "version": 1;
  "outcome": "passed" | "findings" | "limits";
  "base": string;
  "head": string;
  "k": number;
  "questions": number;
  "compared": number;
  "lost": number;
  "faded": number;
  "ndcg": {
    "before": number | null;
    "after": number | null;
  };
  "recall": {
    "before": number | null;
    "after": number | null;
  };
  "crossed": Array<string>;
  "degraded": Array<string>;
  "results": Array<Record<string, unknown>>;
  "removed": Array<Record<string, unknown>>;
  "findings": Array<Record<string, unknown>>;
};

export type BranchesGiven = {
  /** Only this branch. */
  "branch"?: string;
  /** At most this many results. */
  "limit"?: number;
  /** Start after this branch: the `next` of the previous page. */
  "after"?: string;
};

export type BranchesAnswer = {
  /** The current checkout. */
  "head": {
    "name": string;
    "commit": string | null;
  };
  /** The operation in progress: merge, rebase, cherry-pick, revert, am. */
  "operation": string | null;
  /** Records by type and kind of change; null: not known. */
  "uncommitted": Record<string, Record<string, number>> | null;
  /** The newest first. */
  "branches": Array<{
    "name": string;
    "commit": string;
    "author": string;
    "date": string;
    "subject": string;
    "is_proposal": boolean;
    /** Records by type and kind of change; null: not known. */
    "records": Record<string, Record<string, number>> | null;
  }>;
  "next": string | null;
};

export type ConflictsGiven = {
  /** At most this many results. */
  "limit"?: number;
  /** Start after the conflict with this name: the `next` of the previous page. */
  "after"?: string;
};

export type ConflictsAnswer = {
  "operation": string;
  "conflicts": Array<{
    "name": string;
    "type": string;
    "field": string;
    "path": string;
    /** As in the record: a scalar, or a list (for an edge: [from, to]). */
    "identity": unknown;
    "base": string | null;
    "ours": string | null;
    "theirs": string | null;
    "etag": string;
  }>;
  "total": number;
  "next": string | null;
  "unreadable": Array<string>;
  "unstaged": Array<string>;
  "staged": Array<string>;
  "others": Array<string>;
  "files": Array<string>;
  "rescued": Array<string>;
  /** Rules that the resolved records break together. */
  "violations": Array<{
    "code": string;
    "message": string;
    "path"?: string;
    "line"?: number;
    "field"?: string;
    "remedy"?: string;
    "type"?: string;
    "identity"?: string;
  }>;
};

export type ResolveGiven = {
  /** Choices: for each conflict its `type`, `identity`, `field` and `etag`, and one of `choose` (ours, theirs, base, newest), `value`, `record`, and `delete` (true). */
  "answers": Array<Record<string, unknown>>;
  /** Give parts without open conflicts to git's index. */
  "stage"?: boolean;
  /** At most this many results. */
  "limit"?: number;
  /** Allow deleting more records of a table than `limits` in config.yaml: max(20, 10 %). Admins only. */
  "allow_shrink"?: boolean;
};

export type ResolveAnswer = {
  "operation": string;
  "conflicts": Array<{
    "name": string;
    "type": string;
    "field": string;
    "path": string;
    /** As in the record: a scalar, or a list (for an edge: [from, to]). */
    "identity": unknown;
    "base": string | null;
    "ours": string | null;
    "theirs": string | null;
    "etag": string;
  }>;
  "total": number;
  "next": string | null;
  "unreadable": Array<string>;
  "unstaged": Array<string>;
  "staged": Array<string>;
  "others": Array<string>;
  "files": Array<string>;
  "rescued": Array<string>;
  /** Rules that the resolved records break together. */
  "violations": Array<{
    "code": string;
    "message": string;
    "path"?: string;
    "line"?: number;
    "field"?: string;
    "remedy"?: string;
    "type"?: string;
    "identity"?: string;
  }>;
};

export type StatusGiven = Record<string, never>;

export type StatusAnswer = {
  "root"?: string;
  "revision"?: string | null;
  "branch"?: string | null;
  "records": Record<string, number> | null;
  "missing": number | null;
  "unverified": number | null;
  "team_cache": "absent" | "stale" | "current" | null;
  "model": string;
  "trust"?: boolean;
  "endpoints"?: Record<string, unknown>;
  "locked_by"?: string | null;
  "read_only"?: boolean | null;
  "warnings": Array<string> | null;
  "job"?: Record<string, unknown> | null;
  "store"?: Record<string, unknown>;
  "cache"?: Record<string, unknown>;
  "sealed"?: Record<string, unknown> | null;
};

export type ArchStatusGiven = {
  /** The type of the graph's nodes. */
  "graph"?: string;
};

export type ArchStatusAnswer = {
  "name": string;
  "configured": boolean;
  "trusted": boolean | null;
  "commit": string | null;
  "head": string | null;
  "ahead": number | null;
  "stale": boolean | null;
  "nodes": number;
  "edges": number;
};

export type ArchQueryGiven = {
  /** The question, in words. */
  "question": string;
};

export type ArchQueryAnswer = {
  /** Code nearby, the most certain first. */
  "hints": Array<Record<string, unknown>>;
};

export type GrowthGiven = {
  /** Maximum number of commits, spread over the whole history. */
  "limit"?: number;
  /** Time limit, in seconds. */
  "timeout"?: number;
  /** Read the base at a commit, branch or tag. For callers who may see the whole base. */
  "at"?: string;
};

export type GrowthAnswer = {
  "types": Array<{
    "name": string;
    "kind": "node" | "edge";
    "records": number;
    "parts": number;
    "bytes": number | null;
  }>;
  /** The oldest first; null for a published base and for callers who see a part of the base, empty outside of git. */
  "commits": null | Array<{
    "commit": string;
    /** Its place in the history, from 1. */
    "number": number;
    "date": string;
    "author": string;
    "summary": string;
    "types": Record<string, {
      "records": number;
      "bytes": number;
    }>;
  }>;
  /** Number of commits in the history. */
  "total": number;
  "shallow": boolean;
  /** Commits not counted for lack of time. */
  "left": number;
};

export type QualityGiven = {
  /** Maximum number of commits, spread over the whole history. */
  "limit"?: number;
  /** Number of further commits to evaluate, the newest first: each answers all questions. Admins only. */
  "evaluate"?: number;
  /** Time limit, in seconds. */
  "timeout"?: number;
  /** Read the base at a commit, branch or tag. For callers who may see the whole base. */
  "at"?: string;
};

export type QualityAnswer = {
  "k": number;
  "deepest": number;
  "asked": number;
  /** Questions not asked for lack of time. */
  "left": number;
  /** The mean of each lane over its questions. */
  "ndcg": Record<string, number | null>;
  "questions": Array<{
    "question": string;
    "type": string;
    "where": string | null;
    "expected": Record<string, number>;
    "lanes": Record<string, {
      "ndcg": number | null;
      "ranks": Record<string, number | null>;
      "problem"?: string;
    }>;
  }>;
  /** The oldest first; null for a published base and for callers who see a part of the base, empty outside of git. */
  "commits": null | Array<{
    "commit": string;
    /** Its place in the history, from 1. */
    "number": number;
    "date": string;
    "author": string;
    "summary": string;
    "ndcg": Record<string, number | null>;
    "problem"?: string;
  }>;
  /** Number of commits in the history. */
  "total": number;
  "shallow": boolean;
  /** Covered commits that are not evaluated yet. */
  "commits_left": number;
};

export type PutGiven = {
  /** A type or collection, by its name, table or label. */
  "type": string;
  /** One record as an object of its fields, or a list of them. An edge has `from` and `to`. */
  "records": Record<string, unknown> | Array<Record<string, unknown>>;
  /** Change only the fields given, each as a whole; otherwise the record is replaced. */
  "merge"?: boolean;
  /** Only if the record is still at this version: its `_etag`. */
  "if_match"?: string;
  /** Write nothing; show what would change. */
  "dry_run"?: boolean;
  /** Whether to make vectors now, or in a later search or `index build`. */
  "embed"?: boolean;
  /** Allow deleting more records of a table than `limits` in config.yaml: max(20, 10 %). Admins only. */
  "allow_shrink"?: boolean;
};

export type PutAnswer = {
  "inserted": number;
  "updated": number;
  "unchanged": number;
  "deleted": number;
  "pending": number;
  "files": Array<string>;
  "identities": Array<unknown>;
  "ids": Array<number>;
  "etags": Array<string>;
  "dry_run"?: boolean;
  "patch"?: string;
  /** The changes of the first records, with long texts shortened. */
  "changes"?: Array<{
    "op": "insert" | "update" | "delete";
    "type": string;
    "identity": unknown;
    /** For an update each changed field, `before` and `after`. */
    "fields"?: Record<string, unknown>;
  }>;
  /** Number of further records. */
  "changes_left_out"?: number;
};

export type DeleteGiven = {
  /** A type or collection, by its name, table or label. */
  "type": string;
  /** The identities of the records, each in the form of `identity`. */
  "identities": Array<string | number | Array<string | number | Array<string | number> | Record<string, unknown>>>;
  /** Also delete the edges of a node. */
  "cascade"?: boolean;
  /** Allow deleting more records of a table than `limits` in config.yaml: max(20, 10 %). Admins only. */
  "allow_shrink"?: boolean;
  /** Only if the record is still at this version: its `_etag`. */
  "if_match"?: string;
  /** Write nothing; show what would change. */
  "dry_run"?: boolean;
};

export type DeleteAnswer = {
  "inserted": number;
  "updated": number;
  "unchanged": number;
  "deleted": number;
  "pending": number;
  "files": Array<string>;
  "identities": Array<unknown>;
  "ids": Array<number>;
  "etags": Array<string>;
  "dry_run"?: boolean;
  "patch"?: string;
  /** The changes of the first records, with long texts shortened. */
  "changes"?: Array<{
    "op": "insert" | "update" | "delete";
    "type": string;
    "identity": unknown;
    /** For an update each changed field, `before` and `after`. */
    "fields"?: Record<string, unknown>;
  }>;
  /** Number of further records. */
  "changes_left_out"?: number;
};

export type RenameGiven = {
  /** A type or collection, by its name, table or label. */
  "type": string;
  /** The current identity of the record. */
  "old": string | number | Array<string | number | Array<string | number> | Record<string, unknown>>;
  /** The new identity of the record. */
  "new": string | number | Array<string | number | Array<string | number> | Record<string, unknown>>;
  /** Write nothing; show what would change. */
  "dry_run"?: boolean;
};

export type RenameAnswer = {
  "inserted": number;
  "updated": number;
  "unchanged": number;
  "deleted": number;
  "pending": number;
  "files": Array<string>;
  "identities": Array<unknown>;
  "ids": Array<number>;
  "etags": Array<string>;
  "dry_run"?: boolean;
  "patch"?: string;
  /** The changes of the first records, with long texts shortened. */
  "changes"?: Array<{
    "op": "insert" | "update" | "delete";
    "type": string;
    "identity": unknown;
    /** For an update each changed field, `before` and `after`. */
    "fields"?: Record<string, unknown>;
  }>;
  /** Number of further records. */
  "changes_left_out"?: number;
};

export type MemoryPutGiven = {
  /** The key of the memory, unique in its scope: deploy-steps, preference/editor. */
  "key": string;
  /** The text to remember, at most 20,000 characters. */
  "text": string;
  /** The owner of the memories: a tenant, or a scope below one (ann, ann/work). Default: the root scope. */
  "scope"?: string;
  /** Tags of the memory. */
  "tags"?: Array<string>;
  /** Its subjects: citations (duckkb://TYPE/IDENTITY) or addresses. */
  "links"?: Array<string>;
  /** The source: a conversation, a file, a person. */
  "source"?: string;
  /** Only if the record is still at this version: its `_etag`. */
  "if_match"?: string;
  /** Write nothing; show what would change. */
  "dry_run"?: boolean;
  /** Whether to make vectors now, or in a later search or `index build`. */
  "embed"?: boolean;
};

export type MemoryPutAnswer = {
  "inserted": number;
  "updated": number;
  "unchanged": number;
  "deleted": number;
  "pending": number;
  "files": Array<string>;
  "identities": Array<unknown>;
  "ids": Array<number>;
  "etags": Array<string>;
  "dry_run"?: boolean;
  "patch"?: string;
  /** The changes of the first records, with long texts shortened. */
  "changes"?: Array<{
    "op": "insert" | "update" | "delete";
    "type": string;
    "identity": unknown;
    /** For an update each changed field, `before` and `after`. */
    "fields"?: Record<string, unknown>;
  }>;
  /** Number of further records. */
  "changes_left_out"?: number;
};

export type MemorySearchGiven = {
  /** The question, in words. */
  "query": string;
  /** The owner of the memories: a tenant, or a scope below one (ann, ann/work). Default: the root scope. */
  "scope"?: string;
  /** How to search: by meaning (similar), words (match), both (hybrid), or the filter alone (where). Default: the type's policy. */
  "mode"?: "similar" | "match" | "hybrid";
  /** At most this many results. */
  "limit"?: number;
};

export type MemorySearchAnswer = {
  /** Best first. */
  "results": Array<{
    "_type"?: string;
    "_etag"?: string;
    /** The record has fields that are missing or shortened here; do not put it back. */
    "_partial"?: Array<string>;
    "_engine"?: string;
    "_score"?: number;
    "_chunk"?: {
      "field": string;
      "chunk_seq": number;
      "text"?: string;
    };
    "_scores"?: Record<string, unknown>;
    /** For a document: the line of its file where this text begins. */
    "_line"?: number;
    "_provenance"?: Record<string, unknown>;
    "_degraded"?: boolean;
    "_filled"?: boolean;
    "_explain"?: Record<string, unknown>;
    /** Number of accesses on this machine; null if unknown. */
    "_accessed": number | null;
    [field: string]: unknown;
  }>;
  "mode": string;
  "engine": string;
  "degraded": boolean;
  "notices": Array<{
    "code": string;
    "message": string;
    "remedy": string;
    /** The part that was missing, and the reason. */
    "reason"?: string;
  }>;
  "explain"?: Record<string, unknown>;
};

export type MemoryHistoryGiven = {
  /** The key of the memory, unique in its scope: deploy-steps, preference/editor. */
  "key": string;
  /** The owner of the memories: a tenant, or a scope below one (ann, ann/work). Default: the root scope. */
  "scope"?: string;
  /** At most this many results. */
  "limit"?: number;
};

export type MemoryHistoryAnswer = {
  "scope": string;
  "key": string;
  /** Newest first; without a text if it was deleted. */
  "versions": Array<{
    "commit"?: string | null;
    "uncommitted"?: boolean;
    "author"?: string;
    "email"?: string;
    "date"?: string;
    "summary"?: string;
    "shallow"?: boolean;
    "op": string;
    "was"?: string;
    "updated_at"?: string;
    "text"?: string;
    "tags"?: Array<string>;
    "links"?: Array<string>;
    "source"?: string;
  }>;
  "truncated": boolean;
};

export type MemoryStatsGiven = {
  /** The owner of the memories: a tenant, or a scope below one (ann, ann/work). Default: the root scope. */
  "scope"?: string;
};

export type MemoryStatsAnswer = {
  "scopes": Array<{
    "scope": string;
    "collection": string;
    "memories": number;
    /** At most five, the newest first. */
    "newest": Array<{
      "key": string;
      "updated_at": string;
    }>;
    /** At most one. */
    "oldest": Array<{
      "key": string;
      "updated_at": string;
    }>;
    /** Number of accesses on this machine; null if unknown. */
    "accessed": number | null;
    /** At most five. */
    "most_accessed": Array<{
      "key": string;
      /** Number of accesses on this machine; null if unknown. */
      "accessed": number | null;
    }>;
    "tags": Record<string, number>;
  }>;
};

export type MemoryMarkAccessedGiven = {
  /** The keys of memories. */
  "keys": Array<string>;
  /** The owner of the memories: a tenant, or a scope below one (ann, ann/work). Default: the root scope. */
  "scope"?: string;
};

export type MemoryMarkAccessedAnswer = {
  "scope": string;
  "marked": Array<{
    "key": string;
    /** Number of accesses on this machine; null if unknown. */
    "accessed": number | null;
  }>;
};

export type QueryDocumentsGiven = {
  /** Answered together, fused. */
  "searches": Array<{
    /** lex: words that must all occur; vec: a question; hyde: a possible answer. */
    "type": "lex" | "vec" | "hyde";
    /** The text to search for. */
    "query": string;
  }>;
  /** With `searches`: the purpose of the question; it is not searched for. */
  "intent"?: string;
  /** Only documents of these collections. */
  "collections"?: Array<string>;
  /** At most this many results. */
  "limit"?: number;
  /** Only documents with at least this score (0 to 1). */
  "min_score"?: number;
  /** Whole texts instead of matching lines. */
  "full"?: boolean;
  /** Explain each score and rank. */
  "explain"?: boolean;
  /** Maximum number of documents that a reranker reads. */
  "candidates"?: number;
  /** Time limit of a reranker, in milliseconds. */
  "rerank_timeout_ms"?: number;
  /** Show code near the results in the code graph: in `hints`, or on stderr. */
  "arch_hints"?: boolean;
  /** Read the base at a commit, branch or tag. For callers who may see the whole base. */
  "at"?: string;
  /** Only documents with at least this score (0 to 1). */
  "minScore"?: number;
};

export type QueryDocumentsAnswer = {
  /** Best first; a score is between 0 and 1. */
  "results": Array<{
    "docid": string;
    "file": string;
    "title": string;
    "context"?: string;
    "score": number;
    "line": number;
    "snippet"?: string;
    "body"?: string;
    "where"?: string;
    "_filled"?: boolean;
    "explain"?: Record<string, unknown> | null;
  }>;
  "notices": Array<{
    "code": string;
    "message": string;
    "remedy": string;
    /** The part that was missing, and the reason. */
    "reason"?: string;
  }>;
  /** Code near them in code graphs. */
  "hints"?: Array<Record<string, unknown>>;
  /** The part of the request that was not done. */
  "warnings": Array<{
    "code": string;
    "message": string;
    "count": number;
  }>;
};

export abstract class Actions {
  protected abstract post<Answer>(path: string, given: object, call: CallOptions): Promise<Answer>;

  /** Search by words, by meaning, by a filter, or by several of these. Searches one type or all. The filter is applied before ranking, so as many results as match come back, up to the limit. For callers with the role viewer. */
  find(given: FindGiven, call: CallOptions = {}): Promise<FindAnswer> {
    return this.post("/actions/find", given, call);
  }

  /** Get one record or document. Name a record by its type and identity, or by a citation; a document by its path, URI or docid. For callers with the role viewer. */
  get(given: GetGiven = {}, call: CallOptions = {}): Promise<GetAnswer> {
    return this.post("/actions/get", given, call);
  }

  /** Get several documents by a glob, or by a list of paths and docids. Larger files are reported as skipped, with the reason. For callers with the role viewer. */
  multi_get(given: MultiGetGiven, call: CallOptions = {}): Promise<MultiGetAnswer> {
    return this.post("/actions/multi_get", given, call);
  }

  /** Search documents by words and meaning. Reranks results and expands the question if models for that are configured. For callers with the role viewer. */
  query(given: QueryGiven = {}, call: CallOptions = {}): Promise<QueryAnswer> {
    return this.post("/actions/query", given, call);
  }

  /** Search documents by words, without any model. For callers with the role viewer. */
  search(given: SearchGiven, call: CallOptions = {}): Promise<SearchAnswer> {
    return this.post("/actions/search", given, call);
  }

  /** Pack evidence on a question for a model to answer from. Collects texts of records and documents within a budget of tokens, each with a citation that `get` resolves. For callers with the role viewer. */
  pack(given: PackGiven, call: CallOptions = {}): Promise<PackAnswer> {
    return this.post("/actions/pack", given, call);
  }

  /** Answer a question with a chat model, from evidence in the base. Each sentence is checked against the texts that it cites, and marked if they do not support it. Without enough evidence no model is called, and the nearest records are named. For callers with the role viewer. */
  ask(given: AskGiven, call: CallOptions = {}): Promise<AskAnswer> {
    return this.post("/actions/ask", given, call);
  }

  /** List the records of a type, or those that match a filter. Pages follow the order of identities. For callers with the role viewer. */
  list(given: ListGiven, call: CallOptions = {}): Promise<ListAnswer> {
    return this.post("/actions/list", given, call);
  }

  /** Count the records of a type, or those that match a filter. For callers with the role viewer. */
  count(given: CountGiven, call: CallOptions = {}): Promise<CountAnswer> {
    return this.post("/actions/count", given, call);
  }

  /** List the types and collections. Gives the kind, table, identity, searched fields and number of records of each. For callers with the role viewer. */
  types(given: TypesGiven = {}, call: CallOptions = {}): Promise<TypesAnswer> {
    return this.post("/actions/types", given, call);
  }

  /** Get the JSON Schema of the records of one type. For callers with the role viewer. */
  schema(given: SchemaGiven, call: CallOptions = {}): Promise<SchemaAnswer> {
    return this.post("/actions/schema", given, call);
  }

  /** Show how one type is searched and stored. Gives fields by lane, the policy, and effective settings with their origin. For callers with the role viewer. */
  settings(given: SettingsGiven, call: CallOptions = {}): Promise<SettingsAnswer> {
    return this.post("/actions/settings", given, call);
  }

  /** Run one read-only SELECT over the runtime tables. For callers with the role viewer. */
  sql(given: SqlGiven, call: CallOptions = {}): Promise<SqlAnswer> {
    return this.post("/actions/sql", given, call);
  }

  /** Get the records around one node, nearest first. Each has the edge that led to it. For callers with the role viewer. */
  neighbors(given: NeighborsGiven, call: CallOptions = {}): Promise<NeighborsAnswer> {
    return this.post("/actions/neighbors", given, call);
  }

  /** Get a shortest path between two nodes. Each record has the edge that led to it. For callers with the role viewer. */
  path(given: PathGiven, call: CallOptions = {}): Promise<PathAnswer> {
    return this.post("/actions/path", given, call);
  }

  /** Get the records most similar in meaning to a record. Compares the vectors of their texts, and first makes missing ones. For callers with the role viewer. */
  near(given: NearGiven, call: CallOptions = {}): Promise<NearAnswer> {
    return this.post("/actions/near", given, call);
  }

  /** Get the records that cite a record. Finds duckkb://TYPE/IDENTITY of any commit in their texts. For callers with the role viewer. */
  citing(given: CitingGiven, call: CallOptions = {}): Promise<CitingAnswer> {
    return this.post("/actions/citing", given, call);
  }

  /** Show which commit gave each field of a record its value. For callers with the role viewer. */
  blame(given: BlameGiven, call: CallOptions = {}): Promise<BlameAnswer> {
    return this.post("/actions/blame", given, call);
  }

  /** Show the history of a record, the newest change first. Also works for a deleted record. For callers with the role viewer. */
  log(given: LogGiven, call: CallOptions = {}): Promise<LogAnswer> {
    return this.post("/actions/log", given, call);
  }

  /** Explain why a search finds a record, or does not. For callers with the role viewer. */
  why(given: WhyGiven, call: CallOptions = {}): Promise<WhyAnswer> {
    return this.post("/actions/why", given, call);
  }

  /** Check the files of the base and report all problems. Each finding has its place and its remedy. For callers with the role viewer. */
  check(given: CheckGiven = {}, call: CallOptions = {}): Promise<CheckAnswer> {
    return this.post("/actions/check", given, call);
  }

  /** Compare two versions, record by record. Shows changes since the last commit, or on a branch. For callers with the role viewer. */
  diff(given: DiffGiven = {}, call: CallOptions = {}): Promise<DiffAnswer> {
    return this.post("/actions/diff", given, call);
  }

  /** Measure the effect of a change on the judged questions. Missing vectors are made first, which can take long. For callers with the role viewer. */
  impact(given: ImpactGiven = {}, call: CallOptions = {}): Promise<ImpactAnswer> {
    return this.post("/actions/impact", given, call);
  }

  /** List branches and proposals with changes that HEAD lacks. Gives the number of changed records of each. For callers with the role viewer. */
  branches(given: BranchesGiven = {}, call: CallOptions = {}): Promise<BranchesAnswer> {
    return this.post("/actions/branches", given, call);
  }

  /** List the open conflicts of a merge, rebase, pick or revert. Gives the values of each side, field by field. For callers with the role viewer. */
  conflicts(given: ConflictsGiven = {}, call: CallOptions = {}): Promise<ConflictsAnswer> {
    return this.post("/actions/conflicts", given, call);
  }

  /** Resolve conflicts by choosing a side or a value. Answers with the conflicts still open. For callers with the role editor. */
  resolve(given: ResolveGiven, call: CallOptions = {}): Promise<ResolveAnswer> {
    return this.post("/actions/resolve", given, call);
  }

  /** Show the state of this base. Gives its records, its model, and pending work. For callers with the role viewer. */
  status(given: StatusGiven = {}, call: CallOptions = {}): Promise<StatusAnswer> {
    return this.post("/actions/status", given, call);
  }

  /** Show the state of the code graph. Gives its commit, whether it is current, and whether its command is configured and trusted. For callers with the role viewer. */
  arch_status(given: ArchStatusGiven = {}, call: CallOptions = {}): Promise<ArchStatusAnswer> {
    return this.post("/actions/arch_status", given, call);
  }

  /** Show code near the functions, classes and files of a question. For callers with the role viewer. */
  arch_query(given: ArchQueryGiven, call: CallOptions = {}): Promise<ArchQueryAnswer> {
    return this.post("/actions/arch_query", given, call);
  }

  /** Show record counts and sizes over time. For callers with the role viewer. */
  growth(given: GrowthGiven = {}, call: CallOptions = {}): Promise<GrowthAnswer> {
    return this.post("/actions/growth", given, call);
  }

  /** Show how well searches answer the judged questions over time. Gives ranks of expected records and nDCG@10 by words, by meaning and by both. For callers with the role viewer. */
  quality(given: QualityGiven = {}, call: CallOptions = {}): Promise<QualityAnswer> {
    return this.post("/actions/quality", given, call);
  }

  /** Insert or replace records by their identity, all of them or none. An `_etag` in a record is a precondition: only that version is replaced. For callers with the role editor. */
  put(given: PutGiven, call: CallOptions = {}): Promise<PutAnswer> {
    return this.post("/actions/put", given, call);
  }

  /** Delete records of a type, all of them or none. For callers with the role editor. */
  delete(given: DeleteGiven, call: CallOptions = {}): Promise<DeleteAnswer> {
    return this.post("/actions/delete", given, call);
  }

  /** Change the identity of a record. Its `__id` stays, and edges that refer to it are rewritten in the same write. For callers with the role editor. */
  rename(given: RenameGiven, call: CallOptions = {}): Promise<RenameAnswer> {
    return this.post("/actions/rename", given, call);
  }

  /** Remember a text under a key, replacing the old text. Store what outlives this conversation: decisions, preferences, lessons, with links to their subjects. A missing scope of yours is created. For callers with the role editor. */
  memory_put(given: MemoryPutGiven, call: CallOptions = {}): Promise<MemoryPutAnswer> {
    return this.post("/actions/memory_put", given, call);
  }

  /** Search memories by words and by meaning. Searches one scope. For callers with the role viewer. */
  memory_search(given: MemorySearchGiven, call: CallOptions = {}): Promise<MemorySearchAnswer> {
    return this.post("/actions/memory_search", given, call);
  }

  /** Show earlier versions of a memory, the newest first. For callers with the role viewer. */
  memory_history(given: MemoryHistoryGiven, call: CallOptions = {}): Promise<MemoryHistoryAnswer> {
    return this.post("/actions/memory_history", given, call);
  }

  /** Show memory statistics: newest, oldest, most accessed, tags. Covers one scope, or each. For callers with the role viewer. */
  memory_stats(given: MemoryStatsGiven = {}, call: CallOptions = {}): Promise<MemoryStatsAnswer> {
    return this.post("/actions/memory_stats", given, call);
  }

  /** Count an access to memories. The counts appear in stats and search results, on this machine only. For callers with the role viewer. */
  memory_mark_accessed(given: MemoryMarkAccessedGiven, call: CallOptions = {}): Promise<MemoryMarkAccessedAnswer> {
    return this.post("/actions/memory_mark_accessed", given, call);
  }

  /** Search documents: each search for its lane, fused. */
  query_documents(given: QueryDocumentsGiven, call: CallOptions = {}): Promise<QueryDocumentsAnswer> {
    return this.post("/query", given, call);
  }
}
