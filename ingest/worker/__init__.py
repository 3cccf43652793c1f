"""The Celery worker: from the queue to the store in batches, poison sandbox, dead-letter queue, metrics."""
