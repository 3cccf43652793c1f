"""OpenTelemetry metrics over OTLP, as protobuf or JSON."""
