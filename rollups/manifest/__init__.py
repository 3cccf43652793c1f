"""The one write that counts: manifest cells read and changed by check-and-put."""
