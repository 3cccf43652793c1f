"""What an import refuses, and what it takes of a file with faults: each refusal has a reason, never another error."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from django.test import RequestFactory

from frontend.transfer import readers as transfer_readers
from frontend.transfer.unpacking import pieces_of
from spm.errors import BadMessage, Explained
from spm.limits import IMPORT_LINE_BYTES_MAX, REJECTIONS_MAX
from spm.wire import Parsed, parse_canonical

NOW = 1_700_000_000_000
MARK = b"\xef\xbb\xbf"
GOOD = b"metric,label.a,time_ms,value\nm,x,5,1\n"


def read(form: str, *pieces: bytes) -> list[Parsed]:
    return list(transfer_readers.FORMS[form](pieces, NOW))


def samples_of(parts: Sequence[Parsed]) -> list[tuple[dict[str, str], int, float]]:
    """Labels, time and value of each sample."""
    samples = []
    for parsed in parts:
        for index, time, value in zip(parsed.series_index.tolist(), parsed.ts.tolist(), parsed.values, strict=True):
            metric, tags = parse_canonical(parsed.series.canonical(index))
            samples.append(({"__name__": metric, **tags}, time, float(value)))
    return samples


def lines_refused(parts: Sequence[Parsed]) -> list[int]:
    return [each.line for parsed in parts for each in parsed.rejections]


def parquet_file(names: Sequence[str], *columns: Any) -> bytes:
    """A file of Parquet with these columns."""
    library: Any = pytest.importorskip("pyarrow.parquet")
    sink = io.BytesIO()
    library.write_table(pa.Table.from_arrays([pa.array(each) for each in columns], names=list(names)), sink)
    return sink.getvalue()


TIMES = pa.array([5], pa.timestamp("ms", tz="UTC"))


@pytest.mark.parametrize(
    "head",
    ["value,metric,time_ms", "time_ms,metric,value", "metric,time_ms,value", "label.host,metric,time_ms,value"],
)
@pytest.mark.parametrize("before", [MARK, b"\n", b"\r\n\r\n", MARK + b"\n"])
def test_texts_of_a_table_stay_texts_whatever_stands_before_its_head(head: str, before: bytes) -> None:
    cells = {"metric": "true", "label.host": "01", "time_ms": "5", "value": "1"}
    row = ",".join(cells[name] for name in head.split(","))
    [(labels, time, value)] = samples_of(read("csv", before + f"{head}\n{row}\n".encode()))
    assert (labels["__name__"], time, value) == ("true", 5, 1.0)
    assert labels.get("host") in (None, "01")


@pytest.mark.parametrize("form", ["csv", "jsonl", "prometheus", "openmetrics"])
def test_mark_at_the_beginning_of_a_text_is_no_part_of_it(form: str) -> None:
    body = {"csv": GOOD, "jsonl": b'{"metric":{"__name__":"m"},"values":[1],"timestamps":[5]}'}.get(form, b"m 1 5")
    for cut in (1, 4, len(body)):
        assert samples_of(read(form, (MARK + body)[:cut], (MARK + body)[cut:]))[0][0]["__name__"] == "m"


@pytest.mark.parametrize(
    "body",
    [
        b"metric,label.\xff,time_ms,value\nm,x,5,1\n",
        b"metric,label." + b"x" * 140_000 + b",time_ms,value\nm,x,5,1\n",
        b"metric,label." + b"x," * 200_000,
        b"",
        b"\n\n",
        b"m,x,5,1\n",
        b"foo,bar\n",
        MARK,
    ],
    ids=["not UTF-8", "a cell too long", "too long", "empty", "blank lines", "only a row", "others", "a mark"],
)
def test_table_without_a_head_that_can_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(BadMessage):
        read("csv", body)


def test_table_of_a_head_alone_is_empty() -> None:
    assert read("csv", b"metric,time_ms,value") == []


def test_table_whose_rows_end_in_any_way_is_read_whole() -> None:
    rows = [["metric", "label.a", "time_ms", "value"], *(["m", 'x\n"y"', str(n + 1), str(n)] for n in range(20_000))]
    for end in ("\n", "\r\n", "\r"):
        text = io.StringIO()
        csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(rows)
        body = text.getvalue().encode()
        parts = read("csv", *(body[at : at + 7_001] for at in range(0, len(body), 7_001)))
        assert sum(len(parsed.ts) for parsed in parts) == 20_000


@pytest.mark.parametrize(
    "names",
    [
        "label.a,label.a,metric,time_ms,value",
        "value,value,metric,time_ms",
        "time_ms,time_ms,metric,value",
        "metric,metric,time_ms,value",
        "label.__name__,metric,time_ms,value",
    ],
)
def test_columns_with_the_same_meaning_are_refused_and_named(names: str) -> None:
    cells = {"time_ms": "5", "value": "1"}
    row = ",".join(cells.get(name, "x") for name in names.split(","))
    with pytest.raises(BadMessage, match="several columns have the same meaning; got " + names.split(",")[0]):
        read("csv", f"{names}\n{row}\n".encode())
    columns = [TIMES if name == "time_ms" else [1.0] if name == "value" else ["x"] for name in names.split(",")]
    with pytest.raises(BadMessage, match="several columns have the same meaning"):
        read("parquet", parquet_file(names.replace("time_ms", "time").split(","), *columns))


@pytest.mark.parametrize(
    "line",
    [
        '{"metric":{"__name__":"m","a":"x","a":"y"},"values":[1],"timestamps":[5]}',
        '{"metric":{"__name__":"m","a":"x","\\u0061":"y"},"values":[1],"timestamps":[5]}',
        '{"metric":{"__name__":"m"},"values":[1],"values":[2],"timestamps":[5]}',
    ],
)
def test_line_of_json_that_says_something_twice_is_refused(line: str) -> None:
    parts = read("jsonl", line.encode())
    assert (samples_of(parts), lines_refused(parts)) == ([], [1])
    assert "twice" in parts[0].rejections[0].reason


def test_labels_with_quotes_are_not_taken_for_labels_named_twice() -> None:
    metric = {"__name__": "m", "a": '"x" "metric" \\', "metric": "values"}
    line = json.dumps({"metric": metric, "values": [1], "timestamps": [5]}).encode()
    assert samples_of(read("jsonl", line)) == [(metric, 5, 1.0)]


def test_damaged_name_of_a_column_of_parquet_is_refused() -> None:
    body = parquet_file(["metric", "label.abcd", "time", "value"], ["m"], ["x"], TIMES, [1.0])
    with pytest.raises(BadMessage):
        read("parquet", body.replace(b"label.abcd", b"label.\xff\xfe\xfd\xfc"))


def test_body_that_breaks_off_is_refused() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise ConnectionResetError

    request = RequestFactory().post("/api/v1/import")
    request.META |= {"CONTENT_LENGTH": "", "wsgi.input": Broken(), "wsgi.input_terminated": True}
    with pytest.raises(BadMessage):
        list(pieces_of(request))


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ('h{le="1"} 5 1 # {trace_id="abc"} 0.5 1', {"le": "1"}),
        ('c_total 5 1 # {a="b"} 1', {}),
        ('h{le="} 1 # {"} 5 1 # {trace_id="a b"} 0.5', {"le": "} 1 # {"}),
        ('{"h",le="\\"}"} 5 1 # {}', {"le": '"}'}),
    ],
)
def test_sample_with_an_exemplar_is_taken_with_its_own_labels(line: str, labels: dict[str, str]) -> None:
    [(sample_labels, time, value)] = samples_of(read("openmetrics", line.encode()))
    assert {name: text for name, text in sample_labels.items() if name != "__name__"} == labels
    assert (time, value) == (1_000, 5.0)


PADDING = b"p" * 60
MANY = 70_000  # of which more than one block is made
LINES = {
    "csv": (b"metric,label.a,time_ms,value", b"m,%d" + PADDING + b",%d,1"),
    "jsonl": (b"", b'{"metric":{"__name__":"m","a":"%d' + PADDING + b'"},"values":[1],"timestamps":[%d]}'),
    "prometheus": (b"", b'm{a="%d' + PADDING + b'"} 1 %d'),
}
BAD_LINES = [
    ("csv", b"m,x,5,n/a"),
    ("csv", b"m,x,5,"),
    ("csv", b"m,x,1.5,1"),
    ("csv", b"m,x,5"),
    ("csv", b"m,x,5,1,1"),
    ("csv", b"m,\xff,5,1"),
    ("csv", b"m,\xff,5"),
    ("csv", b"m,x,5,1e400"),
    ("csv", b"m,x,5,-1e400"),
    ("csv", b"m,x,-5,1"),
    ("csv", b",x,5,1"),
    ("csv", b"m,x,99999999999999999999,1"),
    ("jsonl", b'{"metric":{"__name__":"m"},"values":["1e400"],"timestamps":[5]}'),
    ("jsonl", b"\xff"),
    ("prometheus", b"caf\xe9 1 5"),
    ("prometheus", b"m 1e400 5"),
    ("prometheus", b"m -1e400 5"),
    ("prometheus", b"m 1 2 3"),
    ("prometheus", b'm{a="x",a="y"} 1 5'),
    ("prometheus", b"m 1 99999999999999999"),
]


@pytest.mark.parametrize(("form", "bad"), BAD_LINES)
@pytest.mark.parametrize("count", [2, MANY])
def test_bad_line_refuses_itself_alone_and_is_named(form: str, bad: bytes, count: int) -> None:
    head, line = LINES[form]
    begun = [head] if head else []
    rows = [*begun, *(line % (n % 9, n + 1) for n in range(count // 2)), b"", bad, b""]
    wanted = len(rows) - 1
    rows += [*(line % (n % 9, n + 1) for n in range(count // 2)), bad]
    body = b"\n".join(rows)
    parts = read(form, *(body[at : at + 70_000] for at in range(0, len(body), 70_000)))
    assert sum(len(parsed.ts) for parsed in parts) == count // 2 * 2
    assert lines_refused(parts) == [wanted, len(rows)]
    assert sum(parsed.rejected for parsed in parts) == 2


@pytest.mark.parametrize("word", ["Inf", "+Inf", "-Infinity", "NaN", "1e308", "1e-400", "-0"])
def test_words_of_values_stay_what_they_mean(word: str) -> None:
    parts = read("csv", f"metric,time_ms,value\nm,5,{word}\n".encode())
    assert str(samples_of(parts)[0][2]) == str(float(word))


def test_bad_rows_are_all_counted_and_the_first_are_listed() -> None:
    parts = read("csv", b"metric,time_ms,value\n" + b"m,5,x\nm,5\n" * 300 + b"m,5,1\n")
    assert (len(samples_of(parts)), sum(parsed.rejected for parsed in parts)) == (1, 600)
    assert 0 < len(lines_refused(parts)) <= REJECTIONS_MAX


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int64", [2**60, 2**53 + 1, None, -(2**63), 2**63 - 1]),
        ("uint64", [2**60, 2**53 + 1, None, 2**63, 2**64 - 1]),
        ("string", ["1.5", "n/a", None, "Inf", "1e400"]),
    ],
)
def test_bad_row_of_parquet_refuses_itself_alone_and_is_named(kind: str, values: list[Any]) -> None:
    times = pa.array([5, 6, 7, 8, 9], pa.timestamp("ms", tz="UTC"))
    parts = read("parquet", parquet_file(["metric", "time", "value"], ["m"] * 5, times, pa.array(values, kind)))
    assert [(time, value) for _, time, value in samples_of(parts)] == [(5, float(values[0])), (8, float(values[3]))]
    assert lines_refused(parts) == [2, 3, 5]


def test_text_of_parquet_that_is_not_utf8_and_a_missing_time_refuse_their_rows() -> None:
    raw = pa.array([b"x", b"\xed\xa0\x80", b"z", None], pa.binary()).view(pa.string())
    times = pa.array([5, 6, None, 8], pa.timestamp("ms", tz="UTC"))
    for labels in (raw, raw.dictionary_encode()):
        parts = read(
            "parquet", parquet_file(["metric", "label.a", "time", "value"], ["m"] * 4, labels, times, [1.0] * 4)
        )
        assert ([time for _, time, _ in samples_of(parts)], lines_refused(parts)) == ([5, 8], [2, 3])


@pytest.mark.parametrize(
    ("name", "column"), [("value", pa.array([[1.0]])), ("label.a", pa.array([[1.0]])), ("time", pa.array([5]))]
)
def test_column_of_parquet_of_a_strange_type_is_refused_by_its_name(name: str, column: pa.Array) -> None:
    columns = {"metric": ["m"], "label.a": ["x"], "time": TIMES, "value": [1.0], name: column}
    with pytest.raises(BadMessage, match=f"the column {name} ") as caught:
        read("parquet", parquet_file(list(columns), *columns.values()))
    assert caught.value.remedy


def until_fault(read: Iterator[Parsed]) -> tuple[list[Parsed], Explained]:
    """What was read, and what ended it."""
    parts: list[Parsed] = []
    try:
        for parsed in read:
            parts.append(parsed)
    except Explained as error:
        return parts, error
    raise AssertionError("nothing ended it")


def broken(body: bytes) -> Iterator[bytes]:
    yield body
    raise BadMessage("the body is cut off")


@pytest.mark.parametrize("form", LINES)
@pytest.mark.parametrize("count", [3, MANY])
def test_what_stands_before_a_break_is_stored_and_the_answer_says_where_to_go_on(form: str, count: int) -> None:
    head, line = LINES[form]
    rows = [*([head] if head else []), *(line % (n % 9, n + 1) for n in range(count)), line % (1, 123456)]
    parts, fault = until_fault(transfer_readers.FORMS[form](broken(b"\n".join(rows)[:-3]), NOW))
    assert f"from line {len(rows)} on" in fault.remedy
    assert sum(len(parsed.ts) for parsed in parts) == count


@pytest.mark.parametrize("form", LINES)
def test_line_over_the_limit_ends_the_file_behind_what_was_good(form: str) -> None:
    head, line = LINES[form]
    body = (head + b"\n" if head else b"") + line % (1, 5) + b"\nm," + b"x" * (IMPORT_LINE_BYTES_MAX + 4_000_000)
    pieces = (body[at : at + (1 << 18)] for at in range(0, len(body), 1 << 18))
    parts, fault = until_fault(transfer_readers.FORMS[form](pieces, NOW))
    assert (len(samples_of(parts)), fault.what[-8:]) == (1, "too long")
    assert f"from line {3 if head else 2} on" in fault.remedy
