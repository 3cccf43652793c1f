"""The forms in which answers leave: Prometheus' JSON and text, remote read, PromQL as a tree, floats as text."""
