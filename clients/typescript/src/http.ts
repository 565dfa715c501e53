// How an action is asked over HTTP, and what its errors are.

import { Actions, type ErrorCode } from "./actions.js";

export interface Options {
  /** Where `duckkb serve` listens: http://127.0.0.1:8181 */
  url: string;
  /** A tenant's token, or the server's own one. */
  token: string;
  /** In place of the platform's `fetch`. */
  fetch?: typeof fetch;
}

export interface CallOptions {
  /** Ends the call; what it has begun is carried through. */
  signal?: AbortSignal;
  /** Time limit of the answer in milliseconds; the server may set a lower one. */
  timeoutMs?: number;
  /** The call's name in the server's log. */
  requestId?: string;
}

export interface Finding {
  code: string;
  message: string;
  remedy?: string;
  field?: string;
}

/** What the server, or the way to it, says is wrong. `status` is 0 where nobody answered. */
export class DuckkbError extends Error {
  constructor(
    readonly status: number,
    readonly code: ErrorCode | "E_CONNECTION" | "E_ANSWER" | (string & {}),
    message: string,
    /** The next step. */
    readonly suggestion: string = "",
    readonly details: Record<string, unknown> & { findings?: Finding[] } = {},
    readonly requestId: string = "",
    /** After how many seconds it may be asked again, where the server says it. */
    readonly retryAfterS: number | null = null,
    cause?: unknown,
  ) {
    super(message, { cause });
    this.name = new.target.name;
  }
}

/** The arguments are not such as the action takes: 400, 413, 422. */
export class InvalidRequest extends DuckkbError {}
/** No token, an unknown one, or one that may not do this: 401, 403. */
export class Denied extends DuckkbError {}
/** There is no such record, document or type: 404. */
export class NotFound extends DuckkbError {}
/** It was refused as things stand, such as a write over a newer version: 409. */
export class Conflict extends DuckkbError {}
/** Nobody answers at the moment: 408, 429, 503, 504, or no connection. A read may be asked again; of a write look first. */
export class Unavailable extends DuckkbError {}

const BY_STATUS: Record<number, typeof DuckkbError> = {
  0: Unavailable,
  400: InvalidRequest,
  401: Denied,
  403: Denied,
  404: NotFound,
  408: Unavailable,
  409: Conflict,
  413: InvalidRequest,
  422: InvalidRequest,
  429: Unavailable,
  502: Unavailable,
  503: Unavailable,
  504: Unavailable,
};
/** What the way there and back takes beyond the time that the server has. */
const ON_THE_WAY_MS = 2_000;

/** A served knowledge base: a method for each of its actions. All raise `DuckkbError`. */
export class Duckkb extends Actions {
  readonly #url: string;
  readonly #token: string;
  readonly #fetch: typeof fetch;

  constructor(options: Options) {
    super();
    this.#url = options.url.replace(/\/+$/, "");
    this.#token = options.token;
    this.#fetch = options.fetch ?? ((...given) => fetch(...given)); // browsers refuse it as a method of another object
  }

  /** Whether the base can be asked now; false also where nobody answers. */
  async ready(): Promise<boolean> {
    try {
      return (await this.#fetch(`${this.#url}/ready`, { redirect: "error" })).ok;
    } catch {
      return false;
    }
  }

  protected async post<Answer>(path: string, given: object, call: CallOptions): Promise<Answer> {
    const headers: Record<string, string> = {
      authorization: `Bearer ${this.#token}`,
      "content-type": "application/json",
    };
    if (call.requestId !== undefined) headers["x-request-id"] = call.requestId;
    if (call.timeoutMs !== undefined) headers["x-timeout-ms"] = String(Math.ceil(call.timeoutMs));
    const late = call.timeoutMs === undefined ? [] : [AbortSignal.timeout(call.timeoutMs + ON_THE_WAY_MS)];
    const signals = [...late, ...(call.signal ? [call.signal] : [])];
    let response: Response;
    let text: string;
    try {
      response = await this.#fetch(this.#url + path, {
        method: "POST",
        headers,
        body: JSON.stringify(given),
        redirect: "error", // the token is for this server alone
        ...(signals.length ? { signal: AbortSignal.any(signals) } : {}),
      });
      text = await response.text();
    } catch (problem) {
      if (call.signal?.aborted) throw problem;
      const code = late[0]?.aborted ? "E_TIMEOUT" : "E_CONNECTION";
      throw new Unavailable(0, code, `${this.#url} does not answer`, "is `duckkb serve` running?", {}, "", null, problem);
    }
    return answered<Answer>(response, text);
  }
}

function answered<Answer>(response: Response, text: string): Answer {
  const id = response.headers.get("x-request-id") ?? "";
  const Kind = BY_STATUS[response.status] ?? DuckkbError;
  let body: any;
  try {
    body = JSON.parse(text);
  } catch {
    body = undefined;
  }
  if (response.ok && body !== undefined) return body as Answer;
  const error = body?.error;
  if (response.ok || typeof error?.code !== "string") {
    const said = `the answer (${response.status}) is not one of duckkb`;
    throw new (response.ok ? DuckkbError : Kind)(response.status, "E_ANSWER", said, "is it the right url?", {}, id);
  }
  const after = Number(response.headers.get("retry-after") ?? Number.NaN);
  const told = [error.code, error.message, error.suggestion, error.details ?? {}] as const;
  throw new Kind(response.status, ...told, id, Number.isNaN(after) ? null : after);
}
