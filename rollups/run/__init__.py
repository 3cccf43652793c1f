"""One run from survey to publish, in this process or by an executor, and its roll back."""
