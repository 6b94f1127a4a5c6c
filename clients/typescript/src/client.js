// Made from the server's OpenAPI document by `python -m tests.typescript_client`; do not edit.

import { Connection, LocigraphError } from "./connection.js";

export { LocigraphError };

/** A client of a Locigraph server: one method for each operation. */
export class LocigraphClient {
  #connection;

  constructor(options) {
    this.#connection = new Connection(options);
  }

  /** Remember one turn of a conversation; the next recall finds it. */
  add(request, options) {
    return this.#connection.send("POST", "/v1/add", request, options);
  }

  /** Remember turns of conversations, all or none; turns that were forgotten stay forgotten. */
  addMany(request, options) {
    return this.#connection.send("POST", "/v1/add_many", request, options);
  }

  /** Find memories that answer a question, in one space or all spaces of a user or agent. */
  recall(request, options) {
    return this.#connection.send("POST", "/v1/recall", request, options);
  }

  /** Tell what is known about a person: current facts and events by category, with their sources. */
  profile(request, options) {
    return this.#connection.send("POST", "/v1/profile", request, options);
  }

  /** Explain why turns are found: the parts of each score, with the neighbours that add to it. */
  explain(request, options) {
    return this.#connection.send("POST", "/v1/explain", request, options);
  }

  /** Permanently erase turns, a space or all spaces of a user, with all that was derived from them. */
  forget(request, options) {
    return this.#connection.send("POST", "/v1/forget", request, options);
  }

  /** Let the turns of a space expire some days after they were spoken, or keep them for ever. */
  setRetention(request, options) {
    return this.#connection.send("POST", "/v1/set_retention", request, options);
  }

  /** List the spaces, each the memory of a conversation, with its user, agent and title. */
  spaces(options) {
    return this.#connection.send("GET", "/v1/spaces", undefined, options);
  }

  /** List the times at which turns of a space were spoken. */
  times(request, options) {
    return this.#connection.send("POST", "/v1/times", request, options);
  }

  /** Tell what a space is about: its sessions, speakers and most frequent topics. */
  overview(request, options) {
    return this.#connection.send("POST", "/v1/overview", request, options);
  }

  /** Tell which strategy answers, and what is not indexed yet. */
  health(options) {
    return this.#connection.send("GET", "/v1/health", undefined, options);
  }
}
