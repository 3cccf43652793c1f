"""From the bytes of a body to the one form all later rooms know: ``spm.wire.Parsed``. Pure, no Django.

Enter by ``line_protocol.parse`` or ``json_samples.parse``. ``warm`` compiles all kernels into the cache on disk.
"""

from ingest.protocols import line_protocol

_EVERY_FORM = b"m,a=b v=1i,w=2u,x=0.5,y=12345678901234567.89,z=true,e=1e3 1\nm,a=b v=1i,x=0.5,y=12345678901234567.89\n"


def warm() -> None:
    """Compile every kernel of this room, or load it from the cache."""
    for _ in range(2):  # the second time all series are known, and the compiled reader takes the whole way
        line_protocol.parse(_EVERY_FORM, now_ms=1_000_000, precision="ms")
