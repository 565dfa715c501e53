// Asks a running server what stdin says, as JSON: {url, token, asked: [[method, arguments]...]}; prints the answers, and how errors come.

import { Conflict, Denied, Duckkb, DuckkbError, InvalidRequest, NotFound, Unavailable, type FindAnswer } from "../src/index.js";

declare const process: { stdin: AsyncIterable<Uint8Array>; stdout: { write(text: string): void } };

const pieces: string[] = [];
const decoder = new TextDecoder();
for await (const piece of process.stdin) pieces.push(decoder.decode(piece, { stream: true }));
// As browsers do, which refuse it as a method of another object.
const own = globalThis.fetch;
globalThis.fetch = function (this: unknown, ...given: Parameters<typeof fetch>) {
  if (this !== undefined && this !== globalThis) throw new TypeError("Illegal invocation");
  return own(...given);
} as typeof fetch;

const { url, token, asked } = JSON.parse(pieces.join(""));
const kb = new Duckkb({ url, token });

const answers: unknown[] = [];
for (const [name, given] of asked) {
  answers.push(await (kb[name as "find"] as (given: unknown) => Promise<unknown>).call(kb, given));
}

// What types hold: this file is compiled with them.
const found: FindAnswer = await kb.find({ type: "Note", query: "ducks", mode: "match", limit: 1 });
const best: number | undefined = found.results[0]?._score;
// @ts-expect-error there is no such mode
kb.find({ type: "Note", mode: "telepathy" }).catch(() => undefined);
// @ts-expect-error a find names a type
kb.find({ query: "ducks" }).catch(() => undefined);
// @ts-expect-error no such argument
kb.status({ bogus: 1 }).catch(() => undefined);

async function error(call: Promise<unknown>): Promise<unknown> {
  try {
    await call;
  } catch (problem) {
    if (!(problem instanceof DuckkbError)) return String((problem as Error).name);
    const kinds = { InvalidRequest, Denied, NotFound, Conflict, Unavailable };
    const kind = Object.entries(kinds).find(([, one]) => problem instanceof one)?.[0];
    return [kind, problem.status, problem.code, problem.requestId, (problem.details.findings ?? []).length];
  }
  return "no error";
}

const stopped = new AbortController();
stopped.abort();
const errors = [
  await error(kb.get({ type: "Note", identity: "none" }, { requestId: "r-404" })),
  await error(kb.find({ type: "Note", limit: 0, bogus: 1 } as never, { requestId: "r-400" })),
  await error(kb.put({ type: "Note", records: [{ id: "n1", _etag: "0" }] }, { requestId: "r-409" })),
  await error(new Duckkb({ url, token: "x".repeat(64) }).status({}, { requestId: "r-403" })),
  await error(new Duckkb({ url: "http://127.0.0.1:9", token }).status()),
  await error(kb.status({}, { signal: stopped.signal })),
];
const ready = [await kb.ready(), await new Duckkb({ url: "http://127.0.0.1:9", token }).ready()];
process.stdout.write(JSON.stringify({ answers, best: typeof best, errors, ready }));
