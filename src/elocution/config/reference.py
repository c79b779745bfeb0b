"""The config tree in words: the table that becomes docs/configuration.md, and the range that an error quotes."""

from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tomli_w
from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from elocution.config.tree import RunConfig

__all__ = ["describe_config", "describe_range"]

_PREFACE = """\
# Configuration

Every key of a run's TOML file, with the default that holds where the file says nothing. A key is given in its section,
or as `--set section.key=value` on the command line. An unknown key, a wrong type or a value out of range stops the run
before it loads a model. `elocution train CONFIG --dry-run` looks up every part, reads the prompts, and prints the
resolved config.

Made from `src/elocution/config/tree.py` by `make docs`; edit that file, not this one.
"""


def describe_config() -> str:
    """Markdown: one table for the keys outside a section, then one for each section."""
    return "\n".join([_PREFACE, *_tables(RunConfig, "")])


def describe_range(field: FieldInfo) -> str:
    """The values that a field takes, as in "at least 2 and at most 1024"; empty if its type says all."""
    if get_origin(field.annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(field.annotation))
    words = []
    for bound in field.metadata:
        match bound:
            case Ge(ge=limit):
                words.append(f"at least {limit}")
            case Gt(gt=limit):
                words.append(f"above {limit}")
            case Le(le=limit):
                words.append(f"at most {limit}")
            case Lt(lt=limit):
                words.append(f"below {limit}")
            case MinLen(min_length=limit):
                words.append(f"at least {limit} of them")
    return " and ".join(words)


def _tables(section: type[BaseModel], name: str) -> list[str]:
    """The section `name` and those within it; the whole tree has no name."""
    fields = section.model_fields
    table = _table({key: field for key, field in fields.items() if not isinstance(field.default, BaseModel)})
    parts = [f"## `[{name}]`\n\n{section.__doc__}\n\n{table}" if name else table]
    for key, field in fields.items():
        if isinstance(field.default, BaseModel):
            parts += _tables(type(field.default), f"{name}.{key}" if name else key)
    return parts


def _table(fields: dict[str, FieldInfo]) -> str:
    rows = ["| key | type | default | range | meaning |", "|---|---|---|---|---|"]
    for name, field in fields.items():
        cells = (f"`{name}`", _type_name(field.annotation), f"`{_toml(field.default)}`", describe_range(field))
        meaning = " ".join((field.description or "").split()).replace("|", "\\|")
        rows.append(f"| {' | '.join(cells)} | {meaning} |")
    return "\n".join(rows) + "\n"


def _type_name(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return "string"
    if origin is Annotated:
        return _type_name(get_args(annotation)[0])
    if origin is tuple:
        return f"list of {_type_name(get_args(annotation)[0])}"
    if origin is dict:
        return f"table of {_type_name(get_args(annotation)[1])}s"
    if origin in (Union, UnionType):
        return " or ".join(_type_name(part) for part in get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"tables of {', '.join(annotation.model_fields)}"
    return {str: "string", int: "integer", float: "number", bool: "boolean"}[annotation]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    plain = list(value) if isinstance(value, tuple) else value
    text = tomli_w.dumps({"value": plain}).removeprefix("value = ")
    return " ".join(text.split()).replace("[ ", "[").replace(", ]", "]")
