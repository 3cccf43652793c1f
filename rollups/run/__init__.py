"""Does a run from its plan to its publications, in this process or by an executor, and rolls it back."""
