"""PromQL with the semantics of Prometheus 3, evaluated over whole columns.

`syntax` bounds the text and parses it into a tree. `planning` checks types and turns the tree into a plan. `evaluation`
walks the plan over all series and steps at once: it reads the samples and calls `kernels` (functions of samples and
numbers) and `operators` (whatever combines vectors). `result_cache` reuses the steps of earlier range queries. Enter by
`engine.Engine`.
"""
