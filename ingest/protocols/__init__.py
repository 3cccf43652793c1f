"""Parsers: the bytes of a body become a ``spm.wire.Parsed``, the form that all later packages use. Pure, no Django.

Enter by ``registry.PROTOCOLS`` or by the ``parse`` of a module. ``warm`` compiles all kernels into the cache on disk.
"""

from ingest.protocols.influx import joined
from ingest.protocols.influx import reader as influx_reader
from ingest.protocols.json import collectd
from ingest.protocols.json import samples as json_samples
from ingest.protocols.otlp import reader as otlp_reader
from ingest.protocols.prometheus import remote_write
from ingest.protocols.prometheus import text as prometheus_text

_EVERY_FORM = b"m,a=b v=1i,w=2u,x=0.5,y=12345678901234567.89,z=true,e=1e3 1\nm,a=b v=1i,x=0.5,y=12345678901234567.89\n"
_EVERY_TEXT = b'# TYPE m counter\nm{a="b"} 1.5 1\nm{a="b"} NaN\n'
_EVERY_SAMPLE = (
    b'{"samples": [{"metric": "m", "tags": {"a": "b"}, "value": 1.5, "time": 1}, {"metric": "m", "value": "NaN"}]}'
)
_EVERY_COLUMN = b'{"series": [{"metric": "m", "tags": {"a": "b"}, "times": [1, 2], "values": [1.5, 2]}]}'
_EVERY_LIST = (
    b"""[{"values": [1, null], "dsnames": ["rx", "tx"], "time": 1.5, "host": "h", "plugin": "if", "type": "octets"}]"""
)
_SAMPLE = bytes.fromhex("120b 09 000000000000f03f 10 01")
_LABELLED = bytes.fromhex("0a1c 0a0d 0a085f5f6e616d655f5f 1201 75") + _SAMPLE
_REFERRING = bytes.fromhex("2200 2208 5f5f6e616d655f5f 2201 75 2a11 0a02 0102") + _SAMPLE
_EXPORTED = b"""{"resourceMetrics": [{
 "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]},
 "scopeMetrics": [{"metrics": [
  {"name": "a", "sum": {"aggregationTemporality": 2, "dataPoints": [
   {"timeUnixNano": 1000000, "asInt": 1, "exemplars": [{"timeUnixNano": 1000000, "asInt": 1}]}]}},
  {"name": "b", "histogram": {"aggregationTemporality": 2, "dataPoints": [
   {"timeUnixNano": 1000000, "count": 3, "bucketCounts": [1, 2], "explicitBounds": [5]}]}},
  {"name": "c", "exponentialHistogram": {"aggregationTemporality": 2, "dataPoints": [
   {"timeUnixNano": 1000000, "count": 3, "scale": 3, "positive": {"offset": 1, "bucketCounts": [1, 2]}}]}},
  {"name": "d", "summary": {"dataPoints": [
   {"timeUnixNano": 1000000, "count": 3, "quantileValues": [{"quantile": 0.5, "value": 2}]}]}}]}]}]}"""


def warm() -> None:
    """Compile every kernel of the parsers, or load it from the cache.

    Line protocol is the last one: a process that compiles the pipeline meanwhile begins with it.
    """
    for _ in range(2):  # in the second round all series are known, so the kernels read the bodies
        otlp_reader.parse(_EXPORTED, "application/json", now_ms=1_000_000)
        remote_write.parse(_LABELLED, now_ms=1_000_000)
        remote_write.parse_v2(_REFERRING, now_ms=1_000_000)
        collectd.parse(_EVERY_LIST, now_ms=1_000_000)
        for body in (_EVERY_SAMPLE, _EVERY_COLUMN):
            json_samples.parse(body, now_ms=1_000_000)
        prometheus_text.parse(_EVERY_TEXT, now_ms=1_000_000)
        influx_reader.parse(_EVERY_FORM, now_ms=1_000_000, precision="ms")
        joined.parse_many([joined.BodyToParse(_EVERY_FORM, 1_000_000, "ms")] * 2)
