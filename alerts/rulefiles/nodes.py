"""YAML as nodes that know their lines. Pure.

Only plain YAML is read: no aliases (a short file could stand for gigabytes), no tags, no key twice, and not more than
so many bytes, nodes and levels. The types of texts are decided by who reads them, so that a label ``yes`` is a text.
Enter by ``compose``.
"""

from collections.abc import Iterator

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, Event, NodeEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from alerts.rulefiles import limits
from alerts.rulefiles.content import Place

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"


def compose(text: str, file: str) -> Node | None:
    """Return the root of the only document of a text, None if it is empty; raises ``BadRuleFile``."""
    size = len(text.encode())
    if size > limits.FILE_BYTES_MAX:
        raise Place(file, 1).refuse("the file is too large", got=f"{size} bytes", wanted=f"≤ {limits.FILE_BYTES_MAX}")
    try:
        for event, count, depth in _measured(yaml.parse(text, Loader=_LOADER)):
            _check(event, count, depth, file)
        return yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise Place(file, mark.line + 1 if mark else 1).refuse(f"not YAML: {what}") from error


def _measured(events: Iterator[Event]) -> Iterator[tuple[Event, int, int]]:
    count = depth = 0
    for event in events:
        count += isinstance(event, NodeEvent)
        depth += isinstance(event, CollectionStartEvent)
        yield event, count, depth
        depth -= isinstance(event, CollectionEndEvent)


def _check(event: Event, count: int, depth: int, file: str) -> None:
    place = Place(file, event.start_mark.line + 1 if event.start_mark else 1)
    if isinstance(event, AliasEvent):
        raise place.refuse("an alias of YAML is not accepted in rule files", remedy="Write the content out.")
    if count > limits.NODES_MAX:
        raise place.refuse("too many parts", wanted=f"at most {limits.NODES_MAX}", remedy="Split the file.")
    if depth > limits.DEPTH_MAX:
        raise place.refuse("nested too deeply", wanted=f"at most {limits.DEPTH_MAX} levels")


def line_of(node: Node) -> int:
    """Return the line of a node, from 1 on."""
    return int(node.start_mark.line) + 1


def entries(node: Node | None, place: Place, what: str) -> dict[str, tuple[Node, Place]]:
    """Return the entries of a mapping with their places; an empty node has none."""
    if node is None or is_null(node):
        return {}
    if not isinstance(node, MappingNode):
        raise _at(place, node).refuse(f"{what} must be a mapping", got=kind_of(node))
    result: dict[str, tuple[Node, Place]] = {}
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            raise _at(place, key).refuse(f"a name in {what} must be a text", got=kind_of(key))
        if key.value in result:
            raise _at(place, key).refuse(f'"{key.value}" stands twice in {what}')
        result[key.value] = value, _at(place, key)
    return result


def items(node: Node, place: Place, what: str) -> list[tuple[Node, Place]]:
    """Return the items of a list with their places; an empty node has none."""
    if is_null(node):
        return []
    if not isinstance(node, SequenceNode):
        raise _at(place, node).refuse(f"{what} must be a list", got=kind_of(node))
    return [(item, _at(place, item)) for item in node.value]


def text(node: Node, place: Place, what: str, *, chars_max: int) -> str:
    """Return the text of a scalar, whatever type YAML would make of it."""
    if not isinstance(node, ScalarNode):
        raise place.refuse(f"{what} must be a text", got=kind_of(node))
    value = "" if is_null(node) else str(node.value)
    if len(value) > chars_max:
        raise place.refuse(f"{what} is too long", got=f"{len(value)} characters", wanted=f"at most {chars_max}")
    return value


def is_null(node: Node) -> bool:
    """Whether a node is empty."""
    return isinstance(node, ScalarNode) and node.tag == _NULL


def kind_of(node: Node) -> str:
    """Name what a node is."""
    return "a list" if isinstance(node, SequenceNode) else "a mapping" if isinstance(node, MappingNode) else "a text"


def _at(place: Place, node: Node) -> Place:
    return Place(place.file, line_of(node), place.group, place.rule)
