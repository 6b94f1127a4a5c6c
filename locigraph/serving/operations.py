"""The table of operations of a served memory, from which its HTTP routes and MCP tools are generated."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from locigraph.kg.errors import LocigraphError, UnknownSpaceError, nearest, outcome, shortened
from locigraph.kg.metadata import MAX_KEYS
from locigraph.kg.registry import Table
from locigraph.kg.types import Scope
from locigraph.memory import Memory, Recalled, SessionOverview
from locigraph.retrieval.hit_filters import DEFAULT_FOLD
from locigraph.serving.keys import Caller
from locigraph.serving.problems import UNKNOWN_FIELD
from locigraph.training.explained import Explanation

# Of half a second: ten of them are taken together, and a key has two a second by default.
_SIZE_OF_RERANKING = 50
_SIZE_OF_EXPLAINING = 20  # the graph network reads the whole space
_MAX_TOP_K = 1_000  # an answer of more would be longer than a request may be
_MOST_TURNS = 5_000  # of one request
_MOST_LETTERS = 100_000  # of a turn, which is encoded while others wait
_LETTERS = 2_000  # of a text, which are as much work as a request of the smallest size


class Request(BaseModel):
    """Base of all requests; an unknown field, or a value of a wrong type, is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _knows_its_fields(cls, given: Any) -> Any:
        for name in given if isinstance(given, dict) else ():
            if name not in cls.model_fields:
                hint = nearest(str(name), cls.model_fields) if cls.model_fields else "; the request takes no fields"
                said = f"field {shortened(name)} is not known{hint}"
                raise PydanticCustomError(UNKNOWN_FIELD, "{said}", {"said": said})
        return given

    @property
    def touched(self) -> Iterable[str]:
        """The spaces that the request reads or changes."""
        return ()

    @property
    def size(self) -> int:
        """How much work it is, in requests of the smallest size."""
        return 1

    @property
    def waits_for_models(self) -> bool:
        """Whether a language model is asked, for which no question should wait."""
        return False

    def is_about_rebuilt(self, memory: Memory, caller: Caller) -> bool:
        """Whether it would have to wait for a space that is consolidated again."""
        touched = [*self.touched]
        return bool(touched) and outcome(partial(memory.is_rebuilding, touched)) is True


class Nothing(Request):
    """A request without fields."""


class _OfSpace(Request):
    space: str = Field(description="Name of the space.")

    @property
    def touched(self) -> Iterable[str]:
        """The space."""
        return (self.space,)


def _not_too_long(text: str) -> str:
    if len(text) > _MOST_LETTERS:
        said = f"a turn has {len(text):,} letters; send it in several of at most {_MOST_LETTERS:,}"
        raise PydanticCustomError("too_long", "{said}", {"said": said})
    return text


def _few(given: object) -> object:
    """An object without too many fields, each of which could be wrong; a list ends at its first mistake."""
    if isinstance(given, dict) and len(given) > MAX_KEYS:
        said = f"the object has {len(given):,} fields; send at most {MAX_KEYS}"
        raise PydanticCustomError("too_long", "{said}", {"said": said})
    return given


_Text = Annotated[str, AfterValidator(_not_too_long)]
_Names = Annotated[list[str], Field(fail_fast=True)]


class TurnToAdd(_OfSpace):
    """One turn of a conversation; its space is created if there is none of the name."""

    session: str = Field(description="Session that the turn belongs to; add the turns of a session in order.")
    speaker: str = Field(description="Name of the speaker.")
    text: _Text = Field(description="The words of the turn.")
    spoken_at: str | None = Field(
        None,
        description="When the turn was spoken (ISO 8601; UTC if no time zone is given). Relative dates in the text are "
        "resolved on the day in UTC; give local times without a time zone if days should be local. Turns without a "
        "time are found with any as_of.",
    )
    turn_id: str | None = Field(
        None, description="ID of the turn, so that a repeated request adds it only once; null generates one."
    )
    image_caption: _Text | None = Field(None, description="Description of an image that the turn shares.")
    user: str | None = Field(None, description="User to whom the space belongs; it cannot be changed afterwards.")
    agent: str | None = Field(None, description="Agent to which the space belongs; it cannot be changed afterwards.")
    metadata: Annotated[dict[str, str | int | float | bool] | None, BeforeValidator(_few)] = Field(
        None, description="Names with texts, numbers or booleans, for the filter of recall."
    )
    expires_at: str | None = Field(None, description="When the turn is to be forgotten (ISO 8601); null to keep it.")

    @property
    def size(self) -> int:
        """By its length."""
        return 1 + (len(self.text) + len(self.image_caption or "")) // _LETTERS


class TurnsToAdd(Request):
    """Turns of one or more conversations: all are remembered, or none. Those that were forgotten stay forgotten."""

    turns: list[TurnToAdd] = Field(min_length=1, max_length=_MOST_TURNS, fail_fast=True)

    @property
    def touched(self) -> Iterable[str]:
        """The spaces of all turns."""
        return {turn.space for turn in self.turns}

    @property
    def size(self) -> int:
        """Number of turns; long ones count several times."""
        return sum(turn.size for turn in self.turns)


class _OfScope(Request):
    space: str | None = Field(None, description="Name of a space; null for all spaces of the user or agent.")
    user: str | None = Field(None, description="User, for all spaces of this user that the caller may use.")
    agent: str | None = Field(None, description="Agent, for all spaces of this agent that the caller may use.")

    @property
    def touched(self) -> Iterable[str]:
        """The space that is named."""
        return () if self.space is None else (self.space,)

    def within(self, memory: Memory, caller: Caller) -> dict[str, Any]:
        """The fields as arguments of ``Memory``; the spaces of a user or agent are limited to those of the caller."""
        given = dict(self)
        if self.space is None and (self.user is not None or self.agent is not None):
            given["space"] = [space for space in memory.spaces() if caller.may_use(space)]
        return given

    def is_about_rebuilt(self, memory: Memory, caller: Caller) -> bool:
        """See ``Request``; for a user or agent, a space of theirs that the caller may use."""
        named = {name: self.within(memory, caller)[name] for name in ("space", "user", "agent")}
        return outcome(partial(memory.is_rebuilding, **named)) is True


class Asked(_OfScope):
    """A question to a space, or to all spaces of a user or agent."""

    question: str = Field(description="What to look for.")
    top_k: int = Field(10, ge=1, le=_MAX_TOP_K, description="Largest number of hits.")
    budget_tokens: int | None = Field(
        None, ge=1, le=1_000_000, description="Size in tokens of a context for a language model, instead of top_k hits."
    )
    budget_kinds: Annotated[dict[str, int] | None, BeforeValidator(_few)] = Field(
        None,
        description="Largest numbers of facts, reflections and episodes in a context; a kind that is not named has no "
        "limit.",
    )
    as_of: str | None = Field(None, description="Use only what was known at this time (ISO 8601); null for now.")
    strategy: str | None = Field(
        None, description="A strategy of locigraph recall; null for v2, or v1 if v2 cannot be used."
    )
    reranker: Literal["default"] | None = Field(
        None,
        description="default for the shipped reranker, which orders the best hits better but takes about half a second "
        "of processor time; null for none.",
    )
    speaker: str | _Names | None = Field(
        None, description="One or more speakers; only memories in their words are returned."
    )
    fold: float | None = Field(
        DEFAULT_FOLD,
        description="Word similarity from which texts count as duplicates and form one hit; null folds nothing.",
    )
    include_superseded: bool = Field(
        False, description="Whether what was replaced keeps its rank; otherwise it comes after what has replaced it."
    )
    min_confidence: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Smallest probability that there is an answer; below it there are no hits. Only v2 knows it.",
    )
    filter: dict[str, Any] | None = Field(
        None,
        description='Conditions on the metadata of turns, such as {"project": {"$ne": "boats"}}, and on $speaker, '
        "$session, $turn, $spoken_at and $type.",
    )

    @property
    def size(self) -> int:
        """By the length of the question; a reranker takes the time of many searches."""
        return (1 if self.reranker is None else _SIZE_OF_RERANKING) + len(self.question) // _LETTERS


class ToExplain(_OfSpace):
    """A question to a space, to explain why turns are found."""

    question: str = Field(description="What to look for.")
    top_k: int = Field(3, ge=1, le=50, description="Number of turns to explain.")
    as_of: str | None = Field(None, description="Use only what was known at this time (ISO 8601); null for now.")
    turn_ids: _Names | None = Field(
        None, min_length=1, max_length=50, description="IDs of the turns to explain, instead of the best top_k."
    )

    @property
    def size(self) -> int:
        """By the length of the question, too."""
        return _SIZE_OF_EXPLAINING + len(self.question) // _LETTERS


class OfPerson(_OfScope):
    """A person, in a space or in all spaces of a user or agent."""

    speaker: str | None = Field(
        None, description="The person, as named in the turns; null for the one about whom most is known."
    )
    budget_tokens: int = Field(1_000, ge=1, le=1_000_000, description="Size of the text in tokens.")
    worded: bool = Field(
        False, description="Whether the server's language model joins the statements to fewer sentences."
    )

    @property
    def waits_for_models(self) -> bool:
        """Whether the profile is worded."""
        return self.worded


class ToForget(_OfScope):
    """Turns to erase permanently, or a whole space, or all spaces of a user or agent."""

    turn_ids: _Names | None = Field(None, min_length=1, description="IDs of the turns, all of one space.")
    whole_space: bool = Field(False, description="Whether to erase all turns of the space; turn_ids must then be null.")


class OfSpace(_OfSpace):
    """A space."""


class Added(BaseModel):
    """The ID of the turn."""

    turn_id: str


class AddedTurns(BaseModel):
    """The IDs of the turns, in the order given, also of those that stay forgotten."""

    turn_ids: list[str]


class Hit(BaseModel):
    """A memory that was found, with its source turns.

    ``same`` lists turns of its space that say the same, ``elsewhere`` those of other spaces. ``spoken_at`` is when it
    was said, ``again`` when they were (ISO 8601, UTC). ``until`` is the day on which something replaced it, null
    while it holds, and ``superseded_by`` are the turns that say what has. ``confidence`` is the probability that it is
    evidence, if v2 was asked.
    """

    space: str
    node_id: str
    type: str
    text: str
    turn_ids: list[str]
    score: float
    signals: dict[str, float]
    same: list[str]
    elsewhere: dict[str, list[str]]
    spoken_at: str | None
    again: list[str]
    until: str | None
    superseded_by: list[str]
    confidence: float | None


class Answer(BaseModel):
    """What was found, best first.

    ``notes`` say what the caller should know: that another strategy answered, or that turns are missing. ``context``
    is what fits into ``budget_tokens``, of ``context_tokens``; ``left_out`` hits did not fit. ``confidence`` is
    the probability that there is an answer, if v2 was asked.
    """

    hits: list[Hit]
    strategy: str
    notes: list[str]
    confidence: float | None
    context: str | None
    context_tokens: int | None
    left_out: int | None
    encode_ms: float
    search_ms: float


class Explained(BaseModel):
    """The best turns with the parts of their scores and what each neighbour adds; ``notes`` say what is missing."""

    turns: list[Explanation]
    notes: list[str]


class KnownStatement(BaseModel):
    """A fact or event: its text, category, day (of an event, or on which a fact was stated last), space and sources."""

    text: str
    category: str
    day: str | None
    space: str
    turn_ids: list[str]


class ProfileAnswer(BaseModel):
    """What is known about a person, by category; ``left_out`` did not fit. ``text`` is the same for a prompt."""

    speaker: str
    statements: list[KnownStatement]
    left_out: int
    text: str


class Forgotten(BaseModel):
    """Number of nodes that were erased; 0 if everything named was forgotten already."""

    erased: int


class ToKeep(_OfSpace):
    """How long a space keeps its turns."""

    days: float | None = Field(
        description="Number of days after which a turn expires, from when it was spoken, or else added; null keeps "
        "turns that are added later for ever. It holds for stored turns, too, but puts nothing off."
    )


class Kept(BaseModel):
    """Number of stored turns that now expire earlier."""

    earlier: int


class Spaces(BaseModel):
    """The spaces that the caller may use, and of some of them more: user and agent, title, days that turns are kept."""

    spaces: list[str]
    scopes: dict[str, Scope]
    titles: dict[str, str]
    days_kept: dict[str, float]


class Times(BaseModel):
    """Times (ISO 8601, UTC), earliest first; undated turns have none."""

    times: list[str]


class SpaceOverview(BaseModel):
    """Sessions in the order of the conversation, and numbers of turns by speaker and by topic, most frequent first."""

    sessions: list[SessionOverview]
    speakers: dict[str, int]
    topics: dict[str, int]


class Health(BaseModel):
    """The strategy that answers, and how much is still to be indexed and embedded.

    ``checkpoint`` is the version of v2's checkpoint; if it is null, v1 answers, and ``reason`` tells why. ``due_rows``
    counts rows of nodes that are not yet in the index, ``due_spaces`` spaces that the next recall embeds.
    """

    strategy: str
    checkpoint: str | None
    reason: str
    due_rows: int
    due_spaces: int


RequestT = TypeVar("RequestT", bound=Request)
_AnswerT = TypeVar("_AnswerT")


@dataclass(frozen=True, slots=True)
class Operation(Generic[RequestT]):
    """An operation of a memory that clients can call.

    Attributes:
        name: Name of the route or tool.
        description: One sentence for people and for language models.
        request: Model of the request.
        answer: Model of the answer.
        run: Performs the operation for a caller, in a thread.
        run_each: Performs several requests of their callers in one call, which is faster; returns an answer or an
            error for each. None if nothing would be gained.
        run_at_once: Performs those of several requests that wait for nothing; returns None for the others. None if all
            may wait.
        steps: Performs the operation in steps, between which others get their turn; None if it has but one.
        changes: Whether it changes the memory.
        erases: Whether it erases something.
    """

    name: str
    description: str
    request: type[RequestT]
    answer: type[BaseModel]
    run: Callable[[Memory, RequestT, Caller], BaseModel]
    run_each: Callable[[Memory, Sequence[tuple[RequestT, Caller]]], Sequence[BaseModel | Exception]] | None = None
    run_at_once: (
        Callable[[Memory, Sequence[tuple[RequestT, Caller]]], Sequence[BaseModel | Exception | None]] | None
    ) = None
    steps: Callable[[Memory, RequestT, Caller], Generator[None, None, BaseModel]] | None = None
    changes: bool = False
    erases: bool = False

    def perform(self, memory: Memory, asked: RequestT, caller: Caller) -> BaseModel:
        """Perform the operation, if the caller may use all its spaces.

        Raises:
            ForbiddenSpaceError: If the caller may not use one of them; nothing is done then.
            LocigraphError: As ``Memory`` does, without names of other callers' spaces.
        """
        caller.require(asked.touched)
        try:
            return self.run(memory, asked, caller)
        except UnknownSpaceError as error:
            known = memory.spaces()
            if error.space not in asked.touched and error.space not in known:
                # One of a user's spaces was forgotten after they were listed; the others still answer.
                return self.perform(memory, asked, caller)
            raise caller.unknown(error.space, known) from None

    def perform_each(self, memory: Memory, requests: Sequence[tuple[RequestT, Caller]]) -> list[BaseModel | Exception]:
        """Perform several requests, each with its caller; returns an answer for each, or the error of ``perform``."""
        if self.run_each is None or len(requests) == 1:
            return [outcome(partial(self.perform, memory, asked, caller)) for asked, caller in requests]
        found = self._of_allowed(self.run_each, memory, requests)
        # An unknown space is told in the words for its caller, which ``perform`` has.
        return [
            outcome(partial(self.perform, memory, *request)) if isinstance(answer, UnknownSpaceError) else answer
            for request, answer in zip(requests, found, strict=True)
        ]

    def perform_at_once(
        self, memory: Memory, requests: Sequence[tuple[RequestT, Caller]]
    ) -> list[BaseModel | Exception | None]:
        """Perform those of several requests that wait for nothing; None for the others."""
        assert self.run_at_once is not None
        found = self._of_allowed(self.run_at_once, memory, requests)
        return [None if isinstance(answer, UnknownSpaceError) else answer for answer in found]

    def begin(self, memory: Memory, asked: RequestT, caller: Caller) -> Generator[None, None, BaseModel]:
        """The steps of the operation, as ``perform`` would perform it."""
        assert self.steps is not None
        caller.require(asked.touched)
        return self.steps(memory, asked, caller)

    def _of_allowed(
        self,
        work: Callable[[Memory, Sequence[tuple[RequestT, Caller]]], Sequence[_AnswerT]],
        memory: Memory,
        requests: Sequence[tuple[RequestT, Caller]],
    ) -> list[_AnswerT | Exception]:
        """What a function makes of the requests whose callers may use their spaces; the others are refused."""
        refused = [outcome(partial(caller.require, asked.touched)) for asked, caller in requests]
        allowed = [request for request, error in zip(requests, refused, strict=True) if error is None]
        done = outcome(partial(work, memory, allowed)) if allowed else list[_AnswerT]()
        found: Iterator[_AnswerT | Exception] = iter([done] * len(allowed) if isinstance(done, Exception) else done)
        return [next(found) if error is None else error for error in refused]


def _add(memory: Memory, asked: TurnToAdd, caller: Caller) -> Added:
    return Added(turn_id=memory.add(**dict(asked)))


def _add_each(memory: Memory, asked: Sequence[tuple[TurnToAdd, Caller]]) -> list[Added | LocigraphError]:
    outcomes = memory.add_each([dict(turn) for turn, _ in asked])
    return [each if isinstance(each, LocigraphError) else Added(turn_id=each) for each in outcomes]


def _add_many(memory: Memory, asked: TurnsToAdd, caller: Caller) -> AddedTurns:
    return AddedTurns(turn_ids=list(memory.add_many([dict(turn) for turn in asked.turns])))


def _add_in_steps(memory: Memory, asked: TurnsToAdd, caller: Caller) -> Generator[None, None, AddedTurns]:
    made = yield from memory.adding([dict(turn) for turn in asked.turns])
    return AddedTurns(turn_ids=list(made))


def _recall(memory: Memory, asked: Asked, caller: Caller) -> Answer:
    return _answer_of(memory.recall(**asked.within(memory, caller)))


def _recall_each(memory: Memory, asked: Sequence[tuple[Asked, Caller]]) -> list[Answer | Exception]:
    found = memory.recall_each([each.within(memory, caller) for each, caller in asked])
    return [each if isinstance(each, Exception) else _answer_of(each) for each in found]


def _recall_at_once(memory: Memory, asked: Sequence[tuple[Asked, Caller]]) -> list[Answer | Exception | None]:
    named = [each for each, _ in asked if each.space is not None]  # the spaces of a user have to be listed first
    found = iter(memory.recall_at_once([dict(each) for each in named]))
    return [None if each.space is None else _answer_or_error(next(found)) for each, _ in asked]


def _answer_or_error(found: Recalled | Exception | None) -> Answer | Exception | None:
    return found if found is None or isinstance(found, Exception) else _answer_of(found)


def _answer_of(found: Recalled) -> Answer:
    return Answer.model_validate(found.as_json())


def _explain(memory: Memory, asked: ToExplain, caller: Caller) -> Explained:
    return Explained(turns=memory.explain(**dict(asked)), notes=memory.notes(asked.space))


def _profile(memory: Memory, asked: OfPerson, caller: Caller) -> ProfileAnswer:
    found = memory.profile(**asked.within(memory, caller))
    return ProfileAnswer.model_validate({**found.as_json(), "text": str(found)})


def _forget(memory: Memory, asked: ToForget, caller: Caller) -> Forgotten:
    return Forgotten(erased=memory.forget(**asked.within(memory, caller)))


def _set_retention(memory: Memory, asked: ToKeep, caller: Caller) -> Kept:
    return Kept(earlier=memory.set_retention(asked.space, days=asked.days))


def _spaces(memory: Memory, asked: Request, caller: Caller) -> Spaces:
    found = {space: scope for space, scope in memory.scopes().items() if caller.may_use(space)}
    return Spaces(
        spaces=list(found),
        scopes={space: scope for space, scope in found.items() if scope},
        titles={space: title for space, title in memory.titles().items() if space in found},
        days_kept={space: keep / timedelta(days=1) for space, keep in memory.retentions().items() if space in found},
    )


def _times(memory: Memory, asked: OfSpace, caller: Caller) -> Times:
    return Times(times=[time.isoformat() for time in memory.times(asked.space)])


def _overview(memory: Memory, asked: OfSpace, caller: Caller) -> SpaceOverview:
    return SpaceOverview.model_validate(memory.overview(asked.space), from_attributes=True)


def _health(memory: Memory, asked: Request, caller: Caller) -> Health:
    return Health.model_validate(memory.state(), from_attributes=True)


OPERATIONS: Table[Operation[Any]] = Table(
    "operation",
    [
        Operation(
            "add", "Remember one turn of a conversation; the next recall finds it.",
            TurnToAdd, Added, _add, _add_each, changes=True,
        ),
        Operation(
            "add_many", "Remember turns of conversations, all or none; turns that were forgotten stay forgotten.",
            TurnsToAdd, AddedTurns, _add_many, steps=_add_in_steps, changes=True,
        ),
        Operation(
            "recall", "Find memories that answer a question, in one space or all spaces of a user or agent.",
            Asked, Answer, _recall, _recall_each, _recall_at_once,
        ),
        Operation(
            "profile", "Tell what is known about a person: current facts and events by category, with their sources.",
            OfPerson, ProfileAnswer, _profile,
        ),
        Operation(
            "explain", "Explain why turns are found: the parts of each score, with the neighbours that add to it.",
            ToExplain, Explained, _explain,
        ),
        Operation(
            "forget", "Permanently erase turns, a space or all spaces of a user, with all that was derived from them.",
            ToForget, Forgotten, _forget, changes=True, erases=True,
        ),
        Operation(
            "set_retention", "Let the turns of a space expire some days after they were spoken, or keep them for ever.",
            ToKeep, Kept, _set_retention, changes=True, erases=True,
        ),
        Operation(
            "spaces", "List the spaces, each the memory of a conversation, with its user, agent and title.",
            Nothing, Spaces, _spaces,
        ),
        Operation("times", "List the times at which turns of a space were spoken.", OfSpace, Times, _times),
        Operation(
            "overview", "Tell what a space is about: its sessions, speakers and most frequent topics.",
            OfSpace, SpaceOverview, _overview,
        ),
        Operation("health", "Tell which strategy answers, and what is not indexed yet.", Nothing, Health, _health),
    ],
)  # fmt: skip
