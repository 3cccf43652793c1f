"""Properties of this room have no deadline: the first example may load compiled kernels, and cores are shared."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
