"""Parses replies of language models: finds the requested JSON object, or says what is wrong with the reply."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from locigraph.consolidation.errors import ConsolidationError
from locigraph.kg.errors import shortened
from locigraph.kg.language.tokens import printable_line

Schema = Mapping[str, Any]
_Form = TypeVar("_Form", bound="Form")
_Read = TypeVar("_Read")
_Value = TypeVar("_Value")
#: Characters of a wrong name in a reply that are repeated to the model.
SHOWN_OF_NAME = 40
_THOUGHT_TAG = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_FAULTS_TOLD, _LONGEST_FIELD = 3, 40
_MOST_FAILED = 200  # braces tried without finding an object; each failure scans the text before it for line numbers
# Schema keywords that limit lengths and patterns; some endpoints with strict schemas refuse them.
_BOUNDS = ("minLength", "maxLength", "minItems", "maxItems", "pattern")


class Form(BaseModel):
    """Base of the forms in which models reply: nothing but the named fields, texts without blanks around them."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)


def nonblank_line(text: str) -> str:
    """The text as a ``printable_line``; raises ValueError if it is blank."""
    line = printable_line(text)
    if not line:
        raise ValueError("must not be blank")
    return line


def named(name: str, shown: Mapping[str, _Value], *, what: str = "id") -> _Value:
    """What was shown to a model under a name; if nothing was, a ValueError that repeats the name only in part."""
    if name not in shown:
        raise ValueError(
            f"{what} {shortened(name, SHOWN_OF_NAME)} was not shown; shown are {', '.join(shown) or 'none'}"
        )
    return shown[name]


def read_reply(text: str, read: Callable[[Any], _Read]) -> _Read:
    """Convert the JSON object in a reply with ``read``, ignoring thoughts, code fences and text around it.

    Of several objects in the reply, ``read`` may accept only one: others may be drafts, examples, or quoted from the
    conversation. The time is linear in the length of the reply.

    Args:
        text: The reply.
        read: Converts an object to the result; raises ValueError or ConsolidationError that says what is wrong.

    Raises:
        ValueError: If there is no object, there are several that differ, or ``read`` raised it for the last one; says
            what is wrong.
        ConsolidationError: If ``read`` raised it for the last object.
    """
    fault: Exception | None = None
    accepted: list[tuple[Any, _Read]] = []
    for reply in _objects(text):
        try:
            if isinstance(reply, dict) and "properties" in reply and ("type" in reply or "required" in reply):
                raise ValueError("the reply repeats the schema; it should be an object of that schema")
            accepted.append((reply, read(reply)))
        except (ValueError, ConsolidationError) as error:
            fault = error
    if not accepted:
        raise fault or ValueError("the reply is not JSON")
    if any(reply != accepted[0][0] for reply, _ in accepted):
        raise ValueError(f"the reply has {len(accepted)} objects of the right form; it should have one")
    return accepted[0][1]


def _objects(text: str) -> Iterator[Any]:
    """The whole reply as JSON, or else each JSON object in it, without those nested in others or in thoughts."""
    try:
        try:
            # Without its thoughts only if need be: words of the answer may look like the tags of thoughts.
            yield json.loads(_without_fence(text), parse_constant=_refuse_constant)
            return
        except ValueError:
            answer = _without_thoughts(text).strip()
        if not answer:
            raise ValueError("the reply is empty")
        try:
            yield json.loads(answer, parse_constant=_refuse_constant)
            return
        except json.JSONDecodeError as error:
            fault = error
        decoder = json.JSONDecoder(parse_constant=_refuse_constant)
        start, has_object, failed = answer.find("{"), False, 0
        while start >= 0 and failed < _MOST_FAILED:
            try:
                reply, end = decoder.raw_decode(answer, start)
            except json.JSONDecodeError as error:
                end = max(start + 1, error.pos)  # text parsed up to the error is not parsed again
                failed += 1
            else:
                has_object = True
                yield reply
            start = answer.find("{", end)
        if not has_object:
            raise ValueError(f"the reply is not JSON ({fault})") from fault
    except RecursionError as error:
        raise ValueError("the reply is not JSON that can be read (nested too deeply)") from error


def _without_fence(text: str) -> str:
    """The content of a reply that is nothing but a fenced block of code; any other text as it is."""
    first, _, rest = text.strip().partition("\n")
    return rest.removesuffix("```") if first.startswith("```") and rest.endswith("```") else text


def _without_thoughts(text: str) -> str:
    """The text of a reply after its thoughts, or before them if nothing follows.

    Chat templates of some models put the opening tag into the prompt, so that the reply has only the closing tag.
    """
    # Scan tag by tag: a regex for a whole thought would read the rest of the reply for each unclosed tag.
    parts, start, begun = [], 0, -1
    for tag in _THOUGHT_TAG.finditer(text):
        if not tag[1] and begun < 0:
            begun = tag.start()
        elif tag[1] and begun >= 0:
            parts.append(text[start:begun])
            start, begun = tag.end(), -1
    answer = "".join([*parts, text[start:]])
    end = max((tag.end() for tag in _THOUGHT_TAG.finditer(answer) if tag[1]), default=0)
    return answer[end:] if answer[end:].strip() else answer[:end]


def _refuse_constant(name: str) -> None:
    raise ValueError(f"the reply is not JSON ({name} is not a JSON number)")


def filled(form: type[_Form], reply: Any) -> _Form:
    """Validate a reply against a form.

    Raises:
        ValueError: If the reply does not fit the form; names the first fields that are wrong.
    """
    try:
        return form.model_validate(reply)
    except ValidationError as error:
        faults = [
            f"{'.'.join(str(part)[:_LONGEST_FIELD] for part in fault['loc']) or 'the reply'}: {fault['msg']}"
            for fault in error.errors(include_url=False)[:_FAULTS_TOLD]
        ]
        raise ValueError("; ".join(faults)) from error


def strict_schema(
    form: type[Form], enums: Mapping[str, Sequence[str]] | None = None, *, leave_out: Sequence[str] = ()
) -> Schema:
    """JSON schema of a form as strict endpoints require it: every property required, no others allowed.

    Args:
        form: The form; it must not be recursive.
        enums: Allowed values by name, for the fields whose schema has ``"enum": <name>``.
        leave_out: Fields to omit from the schema of this request; they must have defaults.
    """
    schema = dict(_schema_of(form))
    definitions = schema.pop("$defs", {})
    schema["properties"] = {name: value for name, value in schema["properties"].items() if name not in leave_out}

    def strict(part: Any) -> Any:
        if isinstance(part, list):
            return [strict(member) for member in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return strict(definitions[part["$ref"].rpartition("/")[2]])
        kept = {name: value for name, value in part.items() if name not in ("title", "default", "description")}
        if isinstance(kept.get("enum"), str):
            kept["enum"] = list((enums or {})[kept["enum"]])
        if "anyOf" in kept:  # no schema may allow none of its values, so what nothing can fill may only be null
            members = [strict(member) for member in kept["anyOf"]]
            return kept | {"anyOf": [member for member in members if member.get("enum") != []]}
        if kept.get("type") == "object":  # properties may have the same names as schema keywords
            kept["properties"] = {name: strict(value) for name, value in part["properties"].items()}
            return kept | {"required": list(kept["properties"]), "additionalProperties": False}
        return {name: value if name == "enum" else strict(value) for name, value in kept.items()}

    result: Schema = strict(schema)
    return result


@cache
def _schema_of(form: type[Form]) -> Schema:
    return form.model_json_schema()  # cached, since it would take a third of a turn's time outside the models


def without_bounds(schema: Any) -> Any:
    """The schema without limits on lengths and without patterns."""
    if isinstance(schema, list):
        return [without_bounds(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: without_bounds(value) for name, value in schema.items() if name not in _BOUNDS}
