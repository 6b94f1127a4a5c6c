// Made from the server's OpenAPI document by `python -m tests.typescript_client`; do not edit.

/** Where the server is, and how it is asked. */
export interface ClientOptions {
  /** Address of the server. @default "http://127.0.0.1:8765" */
  baseUrl?: string;
  /** A key of the server's key file; none for a server without keys. */
  apiKey?: string;
  /** How long a request may take, in milliseconds; null for no limit. @default 60000 */
  timeoutMs?: number | null;
  /** Sends the requests. @default globalThis.fetch */
  fetch?: typeof globalThis.fetch;
}

/** How one request is sent. */
export interface CallOptions {
  /** Ends the request when the caller wants; its reason is thrown then. */
  signal?: AbortSignal;
  /** How long this request may take, in milliseconds, instead of the client's limit; null for no limit. */
  timeoutMs?: number | null;
}

/** Why a request has no answer; `message` is what the server says, or why it was not reached. */
export class LocigraphError extends Error {
  /** HTTP status; 0 if there was no answer. An addition without an answer may have been kept: use its `turn_id`. */
  readonly status: number;
  /** Kind of the problem, such as `urn:locigraph:unknown-space`; `about:blank` for one without a name. */
  readonly type: string;
  /** Seconds after which the server can be asked again, where it says so (429, 503); else null. */
  readonly retryAfterS: number | null;
}

/** A client of a Locigraph server: one method for each operation. */
export class LocigraphClient {
  constructor(options?: ClientOptions);

  /** Remember one turn of a conversation; the next recall finds it. */
  add(request: TurnToAdd, options?: CallOptions): Promise<Added>;

  /** Remember turns of conversations, all or none; turns that were forgotten stay forgotten. */
  addMany(request: TurnsToAdd, options?: CallOptions): Promise<AddedTurns>;

  /** Find memories that answer a question, in one space or all spaces of a user or agent. */
  recall(request: Asked, options?: CallOptions): Promise<Answer>;

  /** Tell what is known about a person: current facts and events by category, with their sources. */
  profile(request: OfPerson, options?: CallOptions): Promise<ProfileAnswer>;

  /** Explain why turns are found: the parts of each score, with the neighbours that add to it. */
  explain(request: ToExplain, options?: CallOptions): Promise<Explained>;

  /** Permanently erase turns, a space or all spaces of a user, with all that was derived from them. */
  forget(request: ToForget, options?: CallOptions): Promise<Forgotten>;

  /** Let the turns of a space expire some days after they were spoken, or keep them for ever. */
  setRetention(request: ToKeep, options?: CallOptions): Promise<Kept>;

  /** List the spaces, each the memory of a conversation, with its user, agent and title. */
  spaces(options?: CallOptions): Promise<Spaces>;

  /** List the times at which turns of a space were spoken. */
  times(request: OfSpace, options?: CallOptions): Promise<Times>;

  /** Tell what a space is about: its sessions, speakers and most frequent topics. */
  overview(request: OfSpace, options?: CallOptions): Promise<SpaceOverview>;

  /** Tell which strategy answers, and what is not indexed yet. */
  health(options?: CallOptions): Promise<Health>;
}

/** The ID of the turn. */
export interface Added {
  turn_id: string;
}

/** The IDs of the turns, in the order given, also of those that stay forgotten. */
export interface AddedTurns {
  turn_ids: string[];
}

/**
 * What was found, best first.
 *
 * `notes` say what the caller should know: that another strategy answered, or that turns are missing. `context`
 * is what fits into `budget_tokens`, of `context_tokens`; `left_out` hits did not fit. `confidence` is
 * the probability that there is an answer, if v2 was asked.
 */
export interface Answer {
  hits: Hit[];
  strategy: string;
  notes: string[];
  confidence: number | null;
  context: string | null;
  context_tokens: number | null;
  left_out: number | null;
  encode_ms: number;
  search_ms: number;
}

/** A question to a space, or to all spaces of a user or agent. */
export interface Asked {
  /** Name of a space; null for all spaces of the user or agent. */
  space?: string | null;
  /** User, for all spaces of this user that the caller may use. */
  user?: string | null;
  /** Agent, for all spaces of this agent that the caller may use. */
  agent?: string | null;
  /** What to look for. */
  question: string;
  /** Largest number of hits. @default 10 */
  top_k?: number;
  /** Size in tokens of a context for a language model, instead of top_k hits. */
  budget_tokens?: number | null;
  /** Largest numbers of facts, reflections and episodes in a context; a kind that is not named has no limit. */
  budget_kinds?: Record<string, number> | null;
  /** Use only what was known at this time (ISO 8601); null for now. */
  as_of?: string | null;
  /** A strategy of locigraph recall; null for v2, or v1 if v2 cannot be used. */
  strategy?: string | null;
  /**
   * default for the shipped reranker, which orders the best hits better but takes about half a second of processor
   * time; null for none.
   */
  reranker?: "default" | null;
  /** One or more speakers; only memories in their words are returned. */
  speaker?: string | string[] | null;
  /** Word similarity from which texts count as duplicates and form one hit; null folds nothing. @default 0.9 */
  fold?: number | null;
  /** Whether what was replaced keeps its rank; otherwise it comes after what has replaced it. @default false */
  include_superseded?: boolean;
  /** Smallest probability that there is an answer; below it there are no hits. Only v2 knows it. */
  min_confidence?: number | null;
  /**
   * Conditions on the metadata of turns, such as {"project": {"$ne": "boats"}}, and on $speaker, $session, $turn,
   * $spoken_at and $type.
   */
  filter?: Record<string, unknown> | null;
}

/** The best turns with the parts of their scores and what each neighbour adds; `notes` say what is missing. */
export interface Explained {
  turns: Explanation[];
  notes: string[];
}

/**
 * A turn's score and its parts; `score` is their sum.
 *
 * Attributes:
 *     turn_id: ID of the turn.
 *     description: The turn's text.
 *     score: Inner product of question and stored vector.
 *     own_meaning, own_words, own_context: The turn's own shares (context: its speaker and date).
 *     bias: What the turn's traits add, whatever the question.
 *     influences: What each neighbour adds, greatest effect first.
 */
export interface Explanation {
  turn_id: string;
  description: string;
  score: number;
  own_meaning: number;
  own_words: number;
  own_context: number;
  bias: number;
  influences: Influence[];
}

/** Number of nodes that were erased; 0 if everything named was forgotten already. */
export interface Forgotten {
  erased: number;
}

/**
 * The strategy that answers, and how much is still to be indexed and embedded.
 *
 * `checkpoint` is the version of v2's checkpoint; if it is null, v1 answers, and `reason` tells why. `due_rows`
 * counts rows of nodes that are not yet in the index, `due_spaces` spaces that the next recall embeds.
 */
export interface Health {
  strategy: string;
  checkpoint: string | null;
  reason: string;
  due_rows: number;
  due_spaces: number;
}

/**
 * A memory that was found, with its source turns.
 *
 * `same` lists turns of its space that say the same, `elsewhere` those of other spaces. `spoken_at` is when it
 * was said, `again` when they were (ISO 8601, UTC). `until` is the day on which something replaced it, null
 * while it holds, and `superseded_by` are the turns that say what has. `confidence` is the probability that it is
 * evidence, if v2 was asked.
 */
export interface Hit {
  space: string;
  node_id: string;
  type: string;
  text: string;
  turn_ids: string[];
  score: number;
  signals: Record<string, number>;
  same: string[];
  elsewhere: Record<string, string[]>;
  spoken_at: string | null;
  again: string[];
  until: string | null;
  superseded_by: string[];
  confidence: number | null;
}

/**
 * What one neighbour adds to a turn's score.
 *
 * Attributes:
 *     node_id: The neighbour.
 *     relation: Name of the network's relation between neighbour and turn, such as `fact` or `previous`.
 *     description: The neighbour's text.
 *     meaning, words, date: Its shares of the score by the text block, the lexical block and the context block.
 *     effect: By how much the score falls when the edge is deleted from the graph and all weights are computed anew.
 *         It may be negative: without an irrelevant neighbour, the others of its relation count for more.
 */
export interface Influence {
  node_id: string;
  relation: string;
  description: string;
  meaning: number;
  words: number;
  date: number;
  effect: number;
}

/** Number of stored turns that now expire earlier. */
export interface Kept {
  earlier: number;
}

/** A fact or event: its text, category, day (of an event, or on which a fact was stated last), space and sources. */
export interface KnownStatement {
  text: string;
  category: string;
  day: string | null;
  space: string;
  turn_ids: string[];
}

/** A person, in a space or in all spaces of a user or agent. */
export interface OfPerson {
  /** Name of a space; null for all spaces of the user or agent. */
  space?: string | null;
  /** User, for all spaces of this user that the caller may use. */
  user?: string | null;
  /** Agent, for all spaces of this agent that the caller may use. */
  agent?: string | null;
  /** The person, as named in the turns; null for the one about whom most is known. */
  speaker?: string | null;
  /** Size of the text in tokens. @default 1000 */
  budget_tokens?: number;
  /** Whether the server's language model joins the statements to fewer sentences. @default false */
  worded?: boolean;
}

/** A space. */
export interface OfSpace {
  /** Name of the space. */
  space: string;
}

/** Why a request has no answer (RFC 9457). */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
}

/** What is known about a person, by category; `left_out` did not fit. `text` is the same for a prompt. */
export interface ProfileAnswer {
  speaker: string;
  statements: KnownStatement[];
  left_out: number;
  text: string;
}

/**
 * The owner of a space: a user, an agent, or both. All spaces of one owner can be searched together.
 *
 * For the owner of a space, None means that none was given; in a search, None matches any.
 */
export interface Scope {
  user?: string | null;
  agent?: string | null;
}

/**
 * A session of a space.
 *
 * Attributes:
 *     session: Its ID.
 *     turns: Number of its turns.
 *     begins_at: When its first turn was spoken; None if no turn has a time.
 */
export interface SessionOverview {
  session: string;
  turns: number;
  begins_at: string | null;
}

/** Sessions in the order of the conversation, and numbers of turns by speaker and by topic, most frequent first. */
export interface SpaceOverview {
  sessions: SessionOverview[];
  speakers: Record<string, number>;
  topics: Record<string, number>;
}

/** The spaces that the caller may use, and of some of them more: user and agent, title, days that turns are kept. */
export interface Spaces {
  spaces: string[];
  scopes: Record<string, Scope>;
  titles: Record<string, string>;
  days_kept: Record<string, number>;
}

/** Times (ISO 8601, UTC), earliest first; undated turns have none. */
export interface Times {
  times: string[];
}

/** A question to a space, to explain why turns are found. */
export interface ToExplain {
  /** Name of the space. */
  space: string;
  /** What to look for. */
  question: string;
  /** Number of turns to explain. @default 3 */
  top_k?: number;
  /** Use only what was known at this time (ISO 8601); null for now. */
  as_of?: string | null;
  /** IDs of the turns to explain, instead of the best top_k. */
  turn_ids?: string[] | null;
}

/** Turns to erase permanently, or a whole space, or all spaces of a user or agent. */
export interface ToForget {
  /** Name of a space; null for all spaces of the user or agent. */
  space?: string | null;
  /** User, for all spaces of this user that the caller may use. */
  user?: string | null;
  /** Agent, for all spaces of this agent that the caller may use. */
  agent?: string | null;
  /** IDs of the turns, all of one space. */
  turn_ids?: string[] | null;
  /** Whether to erase all turns of the space; turn_ids must then be null. @default false */
  whole_space?: boolean;
}

/** How long a space keeps its turns. */
export interface ToKeep {
  /** Name of the space. */
  space: string;
  /**
   * Number of days after which a turn expires, from when it was spoken, or else added; null keeps turns that are
   * added later for ever. It holds for stored turns, too, but puts nothing off.
   */
  days: number | null;
}

/** One turn of a conversation; its space is created if there is none of the name. */
export interface TurnToAdd {
  /** Name of the space. */
  space: string;
  /** Session that the turn belongs to; add the turns of a session in order. */
  session: string;
  /** Name of the speaker. */
  speaker: string;
  /** The words of the turn. */
  text: string;
  /**
   * When the turn was spoken (ISO 8601; UTC if no time zone is given). Relative dates in the text are resolved on
   * the day in UTC; give local times without a time zone if days should be local. Turns without a time are found
   * with any as_of.
   */
  spoken_at?: string | null;
  /** ID of the turn, so that a repeated request adds it only once; null generates one. */
  turn_id?: string | null;
  /** Description of an image that the turn shares. */
  image_caption?: string | null;
  /** User to whom the space belongs; it cannot be changed afterwards. */
  user?: string | null;
  /** Agent to which the space belongs; it cannot be changed afterwards. */
  agent?: string | null;
  /** Names with texts, numbers or booleans, for the filter of recall. */
  metadata?: Record<string, string | number | boolean> | null;
  /** When the turn is to be forgotten (ISO 8601); null to keep it. */
  expires_at?: string | null;
}

/** Turns of one or more conversations: all are remembered, or none. Those that were forgotten stay forgotten. */
export interface TurnsToAdd {
  turns: TurnToAdd[];
}
