"""PromQL with the semantics of Prometheus 3, evaluated over whole columns.

The way of a query: `guard` bounds the text, `parse` makes a plan of it (`plan`), `engine` evaluates the plan over all
series and steps at once with the kernels of `windows`, `hours`, `functions`, `aggregate` and `binary`. Enter by
`engine.Engine`.
"""
