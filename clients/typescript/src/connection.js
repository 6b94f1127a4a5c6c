// The part of the client that is written by hand: one request, its time limit, its errors.

const MOST_SHOWN = 200; // characters of an answer that is no JSON

/** Why a request has no answer; `message` is what the server says, or why it was not reached. */
export class LocigraphError extends Error {
  constructor(message, { status = 0, type = "about:blank", retryAfterS = null, cause = undefined } = {}) {
    super(message, { cause });
    this.name = "LocigraphError";
    this.status = status;
    this.type = type;
    this.retryAfterS = retryAfterS;
  }
}

/** A server, and how it is asked. */
export class Connection {
  #baseUrl;
  #headers;
  #timeoutMs;
  #fetch;

  constructor({ baseUrl = "http://127.0.0.1:8765", apiKey, timeoutMs = 60_000, fetch = globalThis.fetch } = {}) {
    this.#baseUrl = String(baseUrl).replace(/\/+$/, "");
    this.#headers = apiKey ? { Authorization: `Bearer ${apiKey}` } : {};
    this.#timeoutMs = timeoutMs;
    this.#fetch = fetch;
  }

  async send(method, path, request, { signal, timeoutMs = this.#timeoutMs } = {}) {
    const url = this.#baseUrl + path;
    const limit = timeoutMs === null ? undefined : AbortSignal.timeout(timeoutMs);
    const fetch = this.#fetch; // as a method of this object a browser's own would refuse to run
    let response, text;
    try {
      response = await fetch(url, {
        method,
        headers: request === undefined ? this.#headers : { ...this.#headers, "Content-Type": "application/json" },
        body: request === undefined ? undefined : JSON.stringify(request),
        signal: signal && limit ? AbortSignal.any([signal, limit]) : signal ?? limit,
      });
      text = await response.text();
    } catch (error) {
      if (signal?.aborted) throw error; // the caller's own doing
      const reason = limit?.aborted ? `no answer within ${timeoutMs} ms` : error.cause?.message || error.message;
      throw new LocigraphError(`${method} ${url}: ${reason}`, { cause: error });
    }
    const found = parsed(text);
    if (response.ok && found !== undefined) return found;
    // A proxy in front of the server may answer in its own words.
    const said = found?.detail ?? `${response.statusText || "not JSON"}: ${text.slice(0, MOST_SHOWN)}`;
    const wait = Number(response.headers.get("Retry-After") ?? NaN);
    throw new LocigraphError(typeof said === "string" ? said : JSON.stringify(said), {
      status: response.status,
      type: found?.type,
      retryAfterS: Number.isFinite(wait) ? wait : null,
    });
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
