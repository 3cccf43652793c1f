"""What is done with instant vectors: operators, aggregations, joins, labels, order."""
