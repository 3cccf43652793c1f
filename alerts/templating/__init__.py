"""The texts that rules attach to their alerts: templates in the part of Go's language that Prometheus' rules use.

``template`` parses and renders, ``functions`` has what a template may call. A template sees the labels and the value of
one alert and nothing else: it cannot query, loop, or read files. Enter by ``template.render``.
"""
