"""Rules as code: rule files of Prometheus and vmalert, in and out.

``nodes`` reads YAML, ``parse`` makes a ``content.RuleFile`` of it, ``plan`` compares that with the rules that exist,
``apply`` carries the difference out, and ``export`` writes YAML. A rule of a file is (file, group, name); the same
content again changes nothing. Enter by ``apply.import_files``.
"""
