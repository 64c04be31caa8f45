"""A checker of the part of JSON Schema that ``docs/cli.schema.json`` uses."""

import json
from pathlib import Path
from typing import cast

Json = dict[str, object]
_FILE = Path(__file__).parent.parent.parent / "docs" / "cli.schema.json"
_ROOT = cast(Json, json.loads(_FILE.read_text()))
_DEFINITIONS = cast("dict[str, Json]", _ROOT["$defs"])
_TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "null": type(None)}


def report(verb: str, text: str) -> Json:
    """The report that a verb printed, which must be one object of the verb's schema."""
    found = cast(Json, json.loads(text, parse_constant=_refuse))
    problems = errors(found, _DEFINITIONS[verb], verb)
    assert not problems, problems
    return found


def _refuse(name: str) -> object:
    raise AssertionError(f"{name} is no JSON")


def errors(value: object, schema: Json, place: str) -> list[str]:
    """What in ``value`` is not as ``schema`` says."""
    match schema:
        case {"$ref": str(name)}:
            return errors(value, _DEFINITIONS[name.rpartition("/")[2]], place)
        case {"anyOf": list(choices)}:
            found = [errors(value, choice, place) for choice in choices]
            return [] if [] in found else found[0]
        case {"enum": list(values)}:
            return [] if value in values else [f"{place}: {value!r} is none of {values}"]
        case {"type": "array", "items": items}:
            if not isinstance(value, list):
                return [f"{place}: {value!r} is no array"]
            return [problem for i, item in enumerate(value) for problem in errors(item, items, f"{place}[{i}]")]
        case {"type": "object"}:
            return _object_errors(value, schema, place)
        case {"type": str(name)}:
            fits = isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
            return [] if fits else [f"{place}: {value!r} is no {name}"]
        case _:
            raise AssertionError(f"{place}: unknown schema {schema}")


def _object_errors(value: object, schema: Json, place: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{place}: {value!r} is no object"]
    properties = cast("dict[str, Json]", schema.get("properties", {}))
    others = schema["additionalProperties"]
    found = [
        f"{place}: {name} is missing" for name in cast("list[str]", schema.get("required", [])) if name not in value
    ]
    for name, item in value.items():
        if name in properties:
            found += errors(item, properties[name], f"{place}.{name}")
        elif isinstance(others, dict):
            found += errors(item, others, f"{place}.{name}")
        else:
            found.append(f"{place}: {name} is not in the schema")
    return found
