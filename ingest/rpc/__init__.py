"""OTLP over gRPC, at a port of its own. Loaded only where its port is set: gRPC is an extra."""
