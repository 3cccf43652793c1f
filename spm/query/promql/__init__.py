"""PromQL with the semantics of Prometheus 3, evaluated over whole columns.

The way of a query: `guard` bounds the text, `lexer` and `grammar` make a tree of it (`syntax`), `parse` checks types
and makes a plan (`plan`), `evaluation` walks the plan over all series and steps at once, with the kernels of `windows`,
`overtime`, `hours`, `aggregate`, `buckets` and `binary`. Functions that work on labels or order stand in `relabel`,
`ordering`, `choose` and `enrich`. Enter by `engine.Engine`.
"""
