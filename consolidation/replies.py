"""Reads what language models reply: the JSON object that was asked for, or what is wrong with the reply."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

Schema = Mapping[str, Any]
_Form = TypeVar("_Form", bound="Form")
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_LAST_THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_FAULTS_TOLD = 3
# What limits lengths; some endpoints that know strict schemas refuse these words.
_BOUNDS = ("minLength", "maxLength", "minItems", "maxItems", "pattern")


class Form(BaseModel):
    """Base of the forms in which models reply: nothing but the named fields, texts without blanks around them."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)


def one_line(text: str) -> str:
    """The text on one line, without control characters; refuses one that says nothing."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    if not line:
        raise ValueError("must not be blank")
    return line


def parsed(text: str) -> Any:
    """The JSON object in a reply; thoughts, code fences and words around it are passed over.

    Raises:
        ValueError: If there is none; says why.
    """
    # Behind the last end no thought is looked for: the rest of the reply would be read for each that has none.
    last = _LAST_THOUGHT.match(text)
    end = 0 if last is None else last.end()
    said = _THOUGHT.sub("", text[:end]) + text[end:]
    if not said.strip():
        raise ValueError("the reply is empty")
    fenced = _FENCE.search(said)
    said = (fenced[1] if fenced else said).strip()
    try:
        reply = _first_json(said)
    except json.JSONDecodeError as error:
        raise ValueError(f"the reply is not JSON ({error})") from error
    except RecursionError as error:
        raise ValueError("the reply is not JSON that can be read (nested too deeply)") from error
    if isinstance(reply, dict) and "properties" in reply and ("type" in reply or "required" in reply):
        raise ValueError("the reply repeats the schema; it should be an object of that schema")
    return reply


def _first_json(text: str) -> Any:
    """The text as JSON, or the object that begins at its first brace."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        start = text.find("{")
        if start <= 0:
            raise
        try:
            return json.JSONDecoder(parse_constant=_refuse_constant).raw_decode(text, start)[0]
        except json.JSONDecodeError:
            raise error from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"the reply is not JSON ({name} is no number of JSON)")


def filled(form: type[_Form], reply: Any) -> _Form:
    """A form as the reply fills it in.

    Raises:
        ValueError: If it does not; names the first fields that are wrong.
    """
    try:
        return form.model_validate(reply)
    except ValidationError as error:
        faults = [
            f"{'.'.join(str(part) for part in fault['loc']) or 'the reply'}: {fault['msg']}"
            for fault in error.errors(include_url=False)[:_FAULTS_TOLD]
        ]
        raise ValueError("; ".join(faults)) from error


def strict_schema(
    form: type[Form], enums: Mapping[str, Sequence[str]] | None = None, *, leave_out: Sequence[str] = ()
) -> Schema:
    """JSON schema of a form as strict endpoints take it: every property required, nothing else allowed.

    Args:
        form: The form, without references to itself.
        enums: Values by name, for the fields whose schema says ``"enum": <name>``.
        leave_out: Fields that make no sense this time; they must have defaults.
    """
    schema = dict(_schema_of(form))
    definitions = schema.pop("$defs", {})
    schema["properties"] = {name: value for name, value in schema["properties"].items() if name not in leave_out}

    def strict(part: Any) -> Any:
        if isinstance(part, list):
            return [strict(each) for each in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return strict(definitions[part["$ref"].rpartition("/")[2]])
        made = {name: value for name, value in part.items() if name not in ("title", "default", "description")}
        if isinstance(made.get("enum"), str):
            made["enum"] = list((enums or {})[made["enum"]])
        if made.get("type") == "object":  # its properties may be named like words of the schema
            made["properties"] = {name: strict(value) for name, value in part["properties"].items()}
            return made | {"required": list(made["properties"]), "additionalProperties": False}
        return {name: value if name == "enum" else strict(value) for name, value in made.items()}

    result: Schema = strict(schema)
    return result


@cache
def _schema_of(form: type[Form]) -> Schema:
    return form.model_json_schema()  # a third of what a turn costs beside the models, if made for each


def without_bounds(schema: Any) -> Any:
    """The schema without limits of lengths."""
    if isinstance(schema, list):
        return [without_bounds(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: without_bounds(value) for name, value in schema.items() if name not in _BOUNDS}
