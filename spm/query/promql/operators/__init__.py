"""Operations on instant vectors: operators, aggregations, joins, labels and order."""
