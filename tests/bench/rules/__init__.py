"""Ten thousand rules on 200 distinct expressions over a thousand series: ten metrics of a hundred hosts."""

HOSTS, METRICS, EXPRESSIONS = 100, 10, 200
FORMS = ("m{0}", "avg_over_time(m{0}[5m])", "max by (host) (m{0})", "rate(m{0}[5m])", "m{0} - m{0} offset 1m")


def expressions() -> list[str]:
    """Return the distinct expressions, each of which reads 100 series."""
    plain = [form.format(number) for form in FORMS for number in range(METRICS)]
    return [f"{expr} * {factor}" if factor > 1 else expr for factor in range(1, 5) for expr in plain]
