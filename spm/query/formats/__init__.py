"""The formats of answers: Prometheus' JSON and text, remote read, PromQL trees, and floats as text."""
