"""Properties have no deadline each: the machine may be busy with others."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
