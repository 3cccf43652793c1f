"""Writes a command with curl for every operation of the OpenAPI schema that has none, as ``x-codeSamples``.

A command is for a shell in which the variables are set that it names: ``TOKEN``; ``APP`` and ``ORGANISATION``, numbers;
``SESSION`` and ``CSRF``, two cookies, where only a person may act; and what answers of other operations name, such as
``RULE``. Everything else stands in it, times too. Enter by ``describe``, a hook of the schema generator.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.conf import settings

from frontend.help.examples import BODIES, PATH_VALUES, PATH_VARIABLES, QUERIES, SNAPPY, VALUES

_FORM, _JSON = "application/x-www-form-urlencoded", "application/json"
_SHELL = {
    "%NOW%": "$(date +%s)",
    "%AGO%": "$(($(date +%s) - 3600))",
    "%SOON%": "$(($(date +%s) + 3600))",
    "%TODAY%": "$(date -u +%FT%TZ)",
    "%LATER%": "$(date -u -d 'next hour' +%FT%TZ)",
}


def describe(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Add a command to every operation that has none."""
    for path, methods in result["paths"].items():
        for method, operation in methods.items():
            if "x-codeSamples" not in operation:
                source = curl(settings.SPM_BASE_URL, path, method, operation)
                operation["x-codeSamples"] = [{"lang": "Shell", "source": source}]
    return result


def curl(base: str, path: str, method: str, operation: Mapping[str, Any]) -> str:
    """Return the command: who asks, headers, then the body or the parameters, and the address."""
    words = [*_credentials(base, method, operation), *_headers(operation), *_sent(method, operation)]
    if _verb(words) != method.upper():
        words.insert(0, f"-X {method.upper()}")
    kind, body = BODIES.get(operation["operationId"], ("", ""))
    before = f"printf '{body}' | " if kind == SNAPPY else ""
    return before + " ".join(["curl", *words, _address(base, path)])


def variables(source: str) -> list[str]:
    """Return the names of the shell variables that a command needs, in its order."""
    return list(dict.fromkeys(re.findall(r"\$([A-Z_]+)", source)))


def is_in_person(operation: Mapping[str, Any]) -> bool:
    """Whether no token may ask this."""
    return bool(operation["security"] == [{"cookieAuth": []}])


def _verb(words: Sequence[str]) -> str:
    """The method that curl takes by itself."""
    sends = any("--data" in word for word in words) and "-G" not in words
    return "POST" if sends else "GET"


def _credentials(base: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    if not is_in_person(operation):
        if operation["security"] != [{}]:
            yield '-H "Authorization: Bearer $TOKEN"'
        return
    if method == "get":
        yield '-b "sessionid=$SESSION"'
        return
    yield '-b "sessionid=$SESSION; csrftoken=$CSRF" -H "X-CSRFToken: $CSRF"'
    if base.startswith("https:"):
        yield f"-e {base}/"  # a form of another site has no such referrer


def _headers(operation: Mapping[str, Any]) -> Iterator[str]:
    if any(each["name"] == "If-Match" for each in operation.get("parameters", ())):
        yield "-H 'If-Match: *'"


def _sent(method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    """The words of what is sent: parameters of the address, fields of a form, or a body."""
    name = str(operation["operationId"])
    content = operation.get("requestBody", {}).get("content", {})
    if _FORM in content and _JSON not in content:
        form = content[_FORM]["schema"]
        yield from _pairs(name, form.get("required", ()))
    elif name in BODIES:
        kind, body = BODIES[name]
        yield f'-H "Content-Type: {kind}"'
        if kind == SNAPPY:
            yield '-H "Content-Encoding: snappy" --data-binary @-'
        else:
            yield f"--data-binary '{_filled(body, in_quotes=True)}'"
    else:
        required = [each["name"] for each in operation.get("parameters", ()) if _is_required(each)]
        pairs = list(_pairs(name, required))
        yield from ["-G", *pairs] if pairs else ()


def _is_required(parameter: Mapping[str, Any]) -> bool:
    return bool(parameter["in"] == "query" and parameter.get("required"))


def _pairs(name: str, required: Sequence[str]) -> Iterator[str]:
    values = {**{each: VALUES[each] for each in required}, **QUERIES.get(name, {})}
    for key, value in values.items():
        quote = '"' if "%" in value else "'"
        yield f"--data-urlencode {quote}{key}={_filled(value, in_quotes=False)}{quote}"


def _filled(text: str, *, in_quotes: bool) -> str:
    """Put what the shell computes for ``%NAME%``; within single quotes it stands between two quoted parts."""

    def shell(match: re.Match[str]) -> str:
        value = _SHELL.get(match[0], f"${match[1]}")
        return f"'{value}'" if in_quotes else value

    return re.sub(r"%([A-Z_]+)%", shell, text)


def _address(base: str, path: str) -> str:
    def value(match: re.Match[str]) -> str:
        before, name = match[1], match[2]
        known = PATH_VALUES.get(before) or PATH_VALUES.get(name)
        return f"/{before}/{known or '$' + (PATH_VARIABLES.get(before) or PATH_VARIABLES[name])}"

    filled = re.sub(r"/([^/{}]+)/\{(\w+)\}", value, path)
    return f'"{base}{filled}"' if "$" in filled else f"{base}{filled}"
