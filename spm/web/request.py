"""Django's WSGI request, without the errors that would be raised before a handler can answer them."""

from django.core.handlers.wsgi import WSGIRequest


class Request(WSGIRequest):
    """A request that parses its query string on first use.

    Django parses the parameters while it makes a request whose body names a character set, and forgets them at once.
    Where there are too many of them, the error raised then would not become an answer.
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
