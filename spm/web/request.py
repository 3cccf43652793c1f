"""A request as Django reads it, but for what would be raised before anybody can answer it."""

from django.core.handlers.wsgi import WSGIRequest


class Request(WSGIRequest):
    """One that reads its address when it is asked for it, not already when its body names a character set.

    Django reads the parameters to forget them at once, while it makes the request: where there are too many of them,
    what that raises would not become an answer.
    """

    @property
    def encoding(self) -> str | None:
        """The character set that the body names, if any."""
        return self._encoding

    @encoding.setter
    def encoding(self, value: str | None) -> None:
        self._encoding = value
        self.__dict__.pop("GET", None)
        self.__dict__.pop("_post", None)
