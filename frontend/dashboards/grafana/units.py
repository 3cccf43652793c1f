"""The units of Grafana, and ours: a factor where theirs is another multiple. Pure."""

UNITS: dict[str, tuple[str, float]] = {
    "": ("", 1),
    **dict.fromkeys(
        ("none", "short", "string", "sishort", "locale", "hex", "conc", "cps", "ops", "reqps", "rps"), ("", 1)
    ),
    **dict.fromkeys(("wps", "iops", "eps", "mps", "rpm", "opm", "pps", "io/s", "read/s", "write/s", "docs/s"), ("", 1)),
    "percent": ("percent", 1),
    "percentunit": ("percent", 100),
    **dict.fromkeys(("bytes", "decbytes"), ("bytes", 1)),
    "kbytes": ("bytes", 1024),
    "deckbytes": ("bytes", 1000),
    "mbytes": ("bytes", 1024**2),
    "decmbytes": ("bytes", 1000**2),
    "gbytes": ("bytes", 1024**3),
    "decgbytes": ("bytes", 1000**3),
    "bits": ("bytes", 0.125),
    "decbits": ("bytes", 0.125),
    **dict.fromkeys(("Bps", "binBps"), ("bytes/s", 1)),
    **dict.fromkeys(("KBs", "KiBs"), ("bytes/s", 1024)),
    **dict.fromkeys(("MBs", "MiBs"), ("bytes/s", 1024**2)),
    **dict.fromkeys(("bps", "binbps"), ("bits/s", 1)),
    "Kbits": ("bits/s", 1000),
    "Mbits": ("bits/s", 1000**2),
    "s": ("seconds", 1),
    "dtdurations": ("seconds", 1),
    "clocks": ("seconds", 1),
    "ms": ("seconds", 0.001),
    "clockms": ("seconds", 0.001),
    "dtdurationms": ("seconds", 0.001),
    "µs": ("seconds", 1e-6),
    "us": ("seconds", 1e-6),
    "ns": ("seconds", 1e-9),
    "m": ("seconds", 60),
    "h": ("seconds", 3600),
    "d": ("seconds", 86400),
}


def unit_of(name: str) -> tuple[str, float, str]:
    """Return our unit, the factor of values, and what is said about the change; nothing if it is the same."""
    if name in UNITS:
        unit, factor = UNITS[name]
        return (
            unit,
            factor,
            "" if factor == 1 else f"values in “{name}” are multiplied by {factor:g} and shown as {unit}",
        )
    return "", 1, f"the unit “{name}” is not known here: plain numbers"
