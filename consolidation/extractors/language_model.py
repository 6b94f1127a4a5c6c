"""An extractor whose architect and scribe are language models behind OpenAI-compatible endpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from locigraph.consolidation.blueprint import (
    MAX_LABEL,
    AddNode,
    AddRelation,
    ArchiveNode,
    Blueprint,
    CoinedLabel,
    ContextNode,
    Mention,
    Operation,
    SupersedeNode,
    Topic,
    UpdateNode,
    Wording,
    check_blueprint,
    check_worded,
    needs_words,
)
from locigraph.consolidation.errors import ReplyFormatError, UnusableReplyError
from locigraph.consolidation.ledger import Purpose, tokens_of
from locigraph.consolidation.prompting import Document, messages, prompt
from locigraph.consolidation.protocols import Context
from locigraph.consolidation.replies import SHOWN_OF_NAME, Form, Schema, filled, named, nonblank_line, strict_schema
from locigraph.kg.counts import Spent
from locigraph.kg.errors import shortened
from locigraph.kg.schema import LABEL_PATTERN, NODE_TYPES, RELATION_LABELS, plannable_labels, plannable_types
from locigraph.kg.times import day_in_words
from locigraph.kg.types import NodeId, Turn

if TYPE_CHECKING:  # its client takes a second to import
    from locigraph.consolidation.llm import ChatClient

_Result = TypeVar("_Result")
#: Most nodes that one turn may reword, supersede or archive, so that a single malicious turn cannot destroy a memory.
MAX_CLOSED = 3
_MOST_OF_TURN, _MOST_OF_EARLIER = 12_000, 1_000  # characters shown of the turn, and of each earlier turn
# Assumptions of a dry run about each call, since contexts and replies are unknown beforehand: the input shows 16 nodes
# of 30 tokens; the reply has 1.25 times the tokens of the turn, and 120 tokens of JSON syntax.
_NODES_READ, _WORDS_WRITTEN, _JSON_WRITTEN = 16 * 30, 1.25, 120


def _plannable(name: str) -> str:
    if name not in plannable_types():
        known = ", ".join(plannable_types())
        raise ValueError(f"{shortened(name, SHOWN_OF_NAME)} is not a type that can be planned; expected one of {known}")
    return name


_Line = AfterValidator(nonblank_line)
_Ref = Literal["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"]
_Type = Annotated[str, Field(json_schema_extra={"enum": "types"}), AfterValidator(_plannable)]
_Kind = Literal["person", "organisation", "location", "product", "other"]
_Draft = Annotated[str, Field(min_length=1, max_length=600), _Line]
# The allowed values differ between turns; ``strict_schema`` fills them in.
_Shown = Annotated[str, Field(json_schema_extra={"enum": "shown"})]
_End = Annotated[str, Field(json_schema_extra={"enum": "ends"})]
_REFS = get_args(_Ref)


class NodeForm(Form):
    """A node to be added."""

    ref: _Ref
    type: _Type
    draft: _Draft
    part_of: _End | None = None


class UpdateForm(Form):
    """A known node that is said again, or in other words."""

    id: _Shown
    draft: _Draft | None = None


class SupersedeForm(Form):
    """A known node that is no longer true."""

    id: _Shown
    successor: _Ref


class RelationForm(Form):
    """An edge with a label of the schema."""

    source: _End
    label: Annotated[str, Field(json_schema_extra={"enum": "labels"})]
    target: _End


class CoinedForm(Form):
    """An edge with a label of the model's own."""

    source: _End
    label: Annotated[str, Field(pattern=f"^{LABEL_PATTERN.pattern}$")]
    description: Annotated[str, Field(min_length=1, max_length=200), _Line]
    target: _End


class MentionForm(Form):
    """A named thing."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_LABEL), _Line]
    kind: _Kind


class PlanForm(Form):
    """What an architect replies."""

    add: list[NodeForm] = Field(max_length=len(_REFS))
    update: list[UpdateForm] = Field(max_length=8, default=[])
    supersede: list[SupersedeForm] = Field(max_length=MAX_CLOSED, default=[])
    archive: list[_Shown] = Field(max_length=MAX_CLOSED, default=[])
    relate: list[RelationForm] = Field(max_length=8)
    coin: list[CoinedForm] = Field(max_length=2)
    mentions: list[MentionForm] = Field(max_length=12)
    topics: list[Annotated[str, Field(min_length=1, max_length=60), _Line]] = Field(max_length=3)


class WordsForm(Form):
    """The words of one node."""

    ref: Annotated[str, Field(json_schema_extra={"enum": "refs"})]
    label: Annotated[str, Field(min_length=1, max_length=80), _Line]
    description: Annotated[str, Field(min_length=1, max_length=800), _Line]


class WordingForm(Form):
    """What a scribe replies."""

    words: list[WordsForm] = Field(max_length=32)


@dataclass(frozen=True, slots=True)
class _Names:
    """Short names (m1, m2, ...) under which the models are shown existing nodes for one turn.

    Nodes are shown oldest first, not by rank: so models read them in the order of events, and nearly equal scores that
    rank differently on another machine do not change the request.
    """

    ids: Mapping[str, NodeId]

    @classmethod
    def of(cls, context: Context) -> _Names:
        ids = sorted(node.id for node in context.shown)  # ids begin with the time
        return cls({f"m{number}": node_id for number, node_id in enumerate(ids, start=1)})

    def id(self, name: str) -> NodeId:
        return named(name, self.ids)

    def end(self, name: str) -> str:
        return name if name in _REFS else self.id(name)


class LLMExtractor:
    """An extractor that asks one language model for each turn's plan and another for its wording.

    The conversation is passed as JSON data, so that text in it is not mistaken for instructions. A reply may refer only
    to nodes that were shown and to types and labels that were offered, and may close only a few nodes. If a reply
    breaks a rule, the model may correct it once; otherwise the turn fails, and the replies are kept. Edges, mentions
    and topics that break a rule are left out instead: small models fill every list, and facts are worth more.

    Args:
        architect: Client of the model that plans what a turn changes.
        scribe: Client of the model that writes labels and descriptions of the planned nodes.
    """

    name = "llm"

    def __init__(self, architect: ChatClient, scribe: ChatClient) -> None:
        self._architect = architect
        self._scribe = scribe
        self.ledger = architect.ledger
        self.concurrency = architect.concurrency

    @property
    def version(self) -> str:
        """Both models, and hashes of model and prompt."""
        stages = (("architect", self._architect), ("scribe", self._scribe))
        return ", ".join(f"{stage} {client.version(prompt(stage))}" for stage, client in stages)

    def plan(self, turn: Turn, context: Context) -> Blueprint:
        """The architect's plan; raises UnusableReplyError if its reply is unusable even after one correction."""
        names = _Names.of(context)
        nodes = {node.id: node for node in context.shown}
        offered = _offered(context)

        def read(reply: Any) -> Blueprint:
            form = _without_unsound_edges(filled(PlanForm, _sound(reply)), names, nodes, offered)
            plan = _plan_of(form, turn, names, nodes)
            check_blueprint(
                plan,
                turn_id=turn.turn_id,
                turns=(turn.turn_id,),
                shown=context.shown,
                labels=[*RELATION_LABELS, *(label.name for label in context.labels)],
            )
            return plan

        return self._ask(self._architect, "architect", turn, _to_plan(turn, context, names), read)

    def write(self, turn: Turn, plan: Blueprint, context: Context) -> Mapping[str, Wording]:
        """The scribe's wording; no model is called if the plan needs none."""
        short = {node_id: name for name, node_id in _Names.of(context).ids.items()}
        needed = {
            short.get(NodeId(name), name): name for op in plan.operations if (name := needs_words(op)) is not None
        }
        if not needed:
            return {}

        def read(reply: Any) -> Mapping[str, Wording]:
            written = filled(WordingForm, reply).words
            refs = [words.ref for words in written]
            if len(set(refs)) != len(refs):
                raise ValueError("a ref has words twice; write each once")
            check_worded(needed.keys(), {*refs})
            return {needed[words.ref]: Wording(words.label, words.description) for words in written}

        asked = _to_write(turn, plan, context, short)
        return self._ask(self._scribe, "scribe", turn, asked, read)

    def expected_texts(self, turns: Sequence[Turn]) -> Sequence[str]:
        """An empty list, since the models' texts are not known beforehand."""
        return []

    def estimate(self, turns: Sequence[Turn]) -> Spent:
        """Estimate the usage for these turns, by the assumptions at the top of this module; no model is called."""
        total = Spent()
        nothing = Context((), ())
        for number, turn in enumerate(turns):
            context = Context((), tuple(turns[max(0, number - 4) : number]))
            document, schema = _to_plan(turn, context, _Names.of(nothing))
            shown = tokens_of(json.dumps(document, ensure_ascii=False)) + _NODES_READ
            output_tokens = int(_WORDS_WRITTEN * tokens_of(turn.utterance)) + _JSON_WRITTEN
            for stage, client in (("architect", self._architect), ("scribe", self._scribe)):
                input_tokens = tokens_of(prompt(stage)) + shown
                if stage == "architect":
                    input_tokens += tokens_of(json.dumps(schema))
                total += client.prices.spent(input_tokens, output_tokens)
        return total

    def _ask(
        self, client: ChatClient, stage: str, turn: Turn, asked: tuple[Document, Schema], read: Callable[[Any], _Result]
    ) -> _Result:
        document, schema = asked
        purpose = Purpose(stage, turn.space, turn.turn_id)
        try:
            return client.ask(messages(stage, document), schema, read, purpose=purpose)
        except ReplyFormatError as error:
            raise UnusableReplyError(f"{stage}: {error}") from error


def _to_plan(turn: Turn, context: Context, names: _Names) -> tuple[Document, Schema]:
    shown = list(names.ids)
    nodes = {node.id: node for node in context.shown}
    document = _document(
        turn,
        context,
        known_nodes=[{"id": name, **_known(nodes[node_id], turn)} for name, node_id in names.ids.items()],
        types={name: NODE_TYPES[name].description for name in plannable_types()},
        relations=_offered(context),
    )
    enums = {
        "shown": shown,
        "ends": [*_REFS, *shown],
        "labels": list(_offered(context)),
        "types": list(plannable_types()),
    }
    return document, strict_schema(PlanForm, enums, leave_out=() if shown else ("update", "supersede", "archive"))


def _known(node: ContextNode, turn: Turn) -> dict[str, str]:
    """What a model sees of a known node as of a turn; a retried turn does not see that later turns superseded it."""
    shown = {"type": node.type, "text": node.description}
    if node.first_day is not None:
        shown["from"] = day_in_words(node.first_day)
    if (since := _superseded_at(node, turn)) is not None:
        shown["superseded_on"] = day_in_words(since)
    return shown


def _superseded_at(node: ContextNode, turn: Turn) -> datetime | None:
    """When the node was superseded, as far as it was known at the time of the turn; None if it was not."""
    since = node.superseded_at
    return since if since is not None and since <= turn.recorded_at else None


def _offered(context: Context) -> dict[str, str]:
    """The relation labels that an architect may use, with their descriptions."""
    return {label.name: label.description for label in (*plannable_labels(), *context.labels)}


def _to_write(turn: Turn, plan: Blueprint, context: Context, short: Mapping[NodeId, str]) -> tuple[Document, Schema]:
    texts = {node.id: node.description for node in context.shown}
    planned = []
    for operation in plan.operations:
        if isinstance(operation, AddNode):
            planned.append({"ref": operation.ref, "type": operation.type, "draft": operation.draft, "now": None})
        elif isinstance(operation, UpdateNode) and operation.draft is not None:
            planned.append({"ref": short[operation.id], "draft": operation.draft, "now": texts[operation.id]})
    refs = [str(node["ref"]) for node in planned]
    return _document(turn, context, plan=planned), strict_schema(WordingForm, {"refs": refs})


def _document(turn: Turn, context: Context, **more: Any) -> Document:
    """The data that a model sees; it is sent as JSON, so that everything said stays inside quotes."""
    earlier = [{"speaker": before.speaker, "said": before.text[:_MOST_OF_EARLIER]} for before in context.recent]
    shown = {"speaker": turn.speaker, "said": turn.text[:_MOST_OF_TURN]}
    if turn.image_caption:
        shown["shows_image"] = turn.image_caption[:_MOST_OF_EARLIER]
    if turn.spoken_at is not None:
        shown["on"] = f"{turn.spoken_at:%A} {day_in_words(turn.spoken_at)}"
    return {**more, "earlier_turns": earlier, "turn": shown}


def _sound(reply: Any) -> Any:
    """A reply without the edges, mentions and topics that break a rule of the form, or are more than it holds."""
    if not isinstance(reply, dict):
        return reply
    kept = dict(reply)
    for name in ("relate", "coin", "mentions", "topics"):
        if isinstance(reply.get(name), list):
            field = PlanForm.model_fields[name]
            (one,) = get_args(field.annotation)
            sound = [each for each in reply[name] if _is_valid(one, each)]
            kept[name] = sound[: next(limit.max_length for limit in field.metadata if hasattr(limit, "max_length"))]
    return kept


def _is_valid(kind: Any, value: Any) -> bool:
    try:
        _adapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _without_unsound_edges(
    form: PlanForm, names: _Names, nodes: Mapping[NodeId, ContextNode], offered: Collection[str]
) -> PlanForm:
    """The form without edges that join no two known nodes, or whose labels are not offered, or coined again.

    A node that names itself, or what is no event, as the event that it is part of is part of none, and so is one that
    is no part of an event by its type.
    """
    type_of = {name: nodes[node_id].type for name, node_id in names.ids.items()}
    type_of |= {node.ref: node.type for node in form.add}

    def joins(edge: RelationForm | CoinedForm) -> bool:
        return edge.source != edge.target and {edge.source, edge.target} <= type_of.keys()

    def placed(node: NodeForm) -> NodeForm:
        is_part = node.type == "sub_event" and type_of.get(node.part_of or "") == "event_node"
        return node if is_part else node.model_copy(update={"part_of": None})

    return form.model_copy(
        update={
            "add": [placed(node) for node in form.add],
            "relate": [edge for edge in form.relate if joins(edge) and edge.label in offered],
            "coin": [edge for edge in form.coin if joins(edge) and edge.label not in RELATION_LABELS],
        }
    )


def _plan_of(form: PlanForm, turn: Turn, names: _Names, nodes: Mapping[NodeId, ContextNode]) -> Blueprint:
    """Convert a validated form to a plan; raises ValueError for changes that an architect may not make."""
    operations: list[Operation] = []
    for node in form.add:
        operations.append(AddNode(node.ref, node.type, node.draft, (turn.turn_id,)))
        if node.part_of is not None:
            operations.append(AddRelation(names.end(node.part_of), "CONTAINS", node.ref))
    changed = [
        names.id(name) for name in [*(u.id for u in form.update), *(s.id for s in form.supersede), *form.archive]
    ]
    if len(set(changed)) != len(changed):
        raise ValueError("a known node is changed twice; update, supersede or archive it once")
    for update in form.update:
        if _superseded_at(nodes[names.id(update.id)], turn) is not None:
            raise ValueError(
                f"{update.id} holds no longer; if it holds again, add it as a new fact, which supersedes what had "
                "taken its place"
            )
    for superseded in form.supersede:
        if _superseded_at(nodes[names.id(superseded.id)], turn) is not None:
            raise ValueError(f"{superseded.id} was superseded before; supersede the node that replaced it, or none")
    closed = len(form.supersede) + len(form.archive) + sum(update.draft is not None for update in form.update)
    if closed > MAX_CLOSED:
        raise ValueError(f"{closed} known nodes are reworded, superseded or archived by one turn; at most {MAX_CLOSED}")
    operations += [UpdateNode(names.id(update.id), update.draft) for update in form.update]
    operations += [SupersedeNode(names.id(superseded.id), superseded.successor) for superseded in form.supersede]
    operations += [ArchiveNode(names.id(name)) for name in form.archive]
    edges: list[RelationForm | CoinedForm] = [*form.relate, *form.coin]
    operations += [AddRelation(names.end(edge.source), edge.label, names.end(edge.target)) for edge in edges]
    return Blueprint(
        tuple(operations),
        # Models know kinds; Paris is not Parisa.
        tuple(Mention(each.name, each.kind, each.kind not in ("person", "other")) for each in form.mentions),
        tuple(Topic(topic.replace("_", " "), topic.replace("_", " ")) for topic in form.topics),
        tuple({edge.label: CoinedLabel(edge.label, edge.description) for edge in form.coin}.values()),
    )
