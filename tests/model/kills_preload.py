"""Imported by the server that forks the processes of ``kills``: all that they need is loaded when it has been."""

from tests.model import kills

kills.warm()
