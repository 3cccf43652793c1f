"""Cuts the OpenAPI schema into what a page shows of an operation: parameters, shapes of bodies, answers, its command.

Pure. Enter by ``operations_of``; ``matching`` looks for words.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frontend.help.curl import is_in_person, variables

_DEPTH_MAX = 4  # of a shape: what lies deeper is named only
_TITLES = {  # of groups, where their names are no words
    "apps": "Apps",
    "prometheus": "Prometheus' API",
    "ingest": "Sending data",
    "transfer": "Export and import",
    "query-builder": "Query builder",
}


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter, or a field of a body."""

    name: str
    place: str
    kind: str
    text: str
    required: bool


@dataclass(frozen=True, slots=True)
class Body:
    """A body in one of its types: its fields if it is an object, else its shape."""

    kind: str
    fields: Sequence[Field]
    shape: str


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer by its status."""

    status: str
    text: str
    kinds: Sequence[str]
    shape: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation as pages show it. ``right``: act, role and scope, as the schema has them; empty if it needs none."""

    name: str
    method: str
    path: str
    group: str
    text: str
    parameters: Sequence[Field]
    bodies: Sequence[Body]
    answers: Sequence[Answer]
    failures: Sequence[Answer]
    command: str
    variables: Sequence[str]
    right: Mapping[str, str]
    is_open: bool
    is_in_person: bool

    @property
    def headline(self) -> str:
        """The first sentence of the text, for lists."""
        return self.text.partition("\n")[0]

    @property
    def sends(self) -> bool:
        """Whether a token with the scope ingest asks this."""
        return self.group == "Sending data" or self.name.startswith("agent_")


def operations_of(schema: Mapping[str, Any]) -> list[Operation]:
    """Return the operations of a schema, those of a group together."""
    components = schema["components"]["schemas"]
    operations = [
        _operation(path, method, operation, components)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]
    return sorted(operations, key=lambda each: (each.group, each.path))


def matching(operations: Sequence[Operation], words: str) -> list[Operation]:
    """Return the operations in whose address, text, parameters or fields every word stands."""
    wanted = words.lower().split()
    return [each for each in operations if all(word in _searched(each) for word in wanted)]


def _searched(operation: Operation) -> str:
    fields = [*operation.parameters, *(field for body in operation.bodies for field in body.fields)]
    parts = [operation.name, operation.method, operation.path, operation.group, operation.text]
    return " ".join([*parts, *(f"{field.name} {field.text}" for field in fields)]).lower()


def _operation(path: str, method: str, operation: Mapping[str, Any], components: Mapping[str, Any]) -> Operation:
    source = operation["x-codeSamples"][0]["source"]
    answers = [_answer(status, answer, components) for status, answer in sorted(operation["responses"].items())]
    text = operation.get("description") or operation.get("summary", "")
    content = operation.get("requestBody", {}).get("content", {})
    return Operation(
        name=operation["operationId"],
        method=method.upper(),
        path=path,
        group=_group(path, operation["tags"][0]),
        text=text.strip(),
        parameters=[_field(each, each["in"], components) for each in operation.get("parameters", ())],
        bodies=[_body(kind, each.get("schema", {}), components) for kind, each in content.items()],
        answers=[each for each in answers if each.status < "400"],
        failures=[each for each in answers if each.status >= "400"],
        command=source,
        variables=variables(source),
        right=operation.get("x-right", {}),
        is_open=operation["security"] == [{}],
        is_in_person=is_in_person(operation),
    )


def _group(path: str, tag: str) -> str:
    """The title under which an operation stands: what it is about below an app or an organisation, else its tag."""
    parts = path.split("/")
    about = parts[5] if tag in ("apps", "organisations") and len(parts) > 5 else tag
    return _TITLES.get(about, about.replace("-", " ").capitalize())


def _field(parameter: Mapping[str, Any], place: str, components: Mapping[str, Any]) -> Field:
    schema = parameter.get("schema", {})
    text = parameter.get("description") or schema.get("description", "")
    kind = _shape(schema, components, _DEPTH_MAX)
    return Field(parameter["name"], place, f"{kind}{_bounds(schema)}", text, bool(parameter.get("required")))


def _body(kind: str, schema: Mapping[str, Any], components: Mapping[str, Any]) -> Body:
    whole = _resolved(schema, components)
    required = whole.get("required", ())
    fields = [
        _field({"name": name, "schema": each, "required": name in required}, "body", components)
        for name, each in whole.get("properties", {}).items()
        if not each.get("readOnly")
    ]
    return Body(kind, fields, "" if fields else _shape(schema, components))


def _answer(status: str, answer: Mapping[str, Any], components: Mapping[str, Any]) -> Answer:
    content = answer.get("content", {})
    shapes = [_shape(each.get("schema", {}), components) for each in content.values()]
    return Answer(status, answer.get("description", ""), list(content), shapes[0] if shapes else "")


def _resolved(schema: Mapping[str, Any], components: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references, and an ``allOf`` of one, which is how a reference with a remark is written."""
    while True:
        if "$ref" in schema:
            schema = components[schema["$ref"].rpartition("/")[2]]
        elif len(schema.get("allOf", ())) == 1:
            schema = schema["allOf"][0]
        else:
            return schema


def _shape(schema: Mapping[str, Any], components: Mapping[str, Any], depth: int = 0) -> str:
    """Return a shape in the manner of JSON, with types where values would stand."""
    whole = _resolved(schema, components)
    pad, end = "  " * (depth + 1), "  " * depth
    if choices := whole.get("oneOf") or whole.get("anyOf"):
        return " or ".join(dict.fromkeys(_shape(each, components, depth) for each in choices if each) or ["any"])
    if "enum" in whole:
        return " | ".join(repr(each).replace("'", '"') for each in whole["enum"])
    if whole.get("properties") and depth < _DEPTH_MAX:
        required = whole.get("required", ())
        rows = [
            f"{pad}{name}{'' if name in required else '?'}: {_shape(each, components, depth + 1)}"
            for name, each in whole["properties"].items()
        ]
        return "\n".join(["{", *rows, f"{end}}}"])
    if whole.get("type") == "array":
        return f"[{_shape(whole.get('items', {}), components, depth)}]"
    if isinstance(whole.get("additionalProperties"), Mapping) and whole["additionalProperties"]:
        return f"{{name: {_shape(whole['additionalProperties'], components, depth)}}}"
    return _plain(whole)


def _plain(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "any")
    form = {"date-time": " (RFC 3339)", "binary": " (bytes)"}.get(schema.get("format", ""), "")
    return f"{kind}{form}{' or null' if schema.get('nullable') else ''}"


def _bounds(schema: Mapping[str, Any]) -> str:
    return "".join(_bound_texts(schema))


def _bound_texts(schema: Mapping[str, Any]) -> Iterator[str]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        yield f", {low} to {high}"
    elif low is not None:
        yield f", from {low}"
    elif high is not None:
        yield f", up to {high}"
    if "maxLength" in schema:
        yield f", up to {schema['maxLength']} signs"
    if schema.get("default") not in (None, ""):
        yield f"; {schema['default']} by default"
