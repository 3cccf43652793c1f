"""The texts that rules attach to their alerts: templates in the part of Go's language that Prometheus' rules use.

``template`` parses and renders, ``functions`` has what a template may call. A template sees the labels and the value of
one alert and what its queries answer, in bounds (``limits``); it reads no files. Enter by ``template.render``.
"""
