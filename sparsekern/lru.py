"""A bounded cache: what was used longest ago makes room for what is new."""

from itertools import count
from threading import RLock


class Lru:
    """Values by key, of which at most `most` are kept. Threads may share it."""

    def __init__(self, most):
        self._most, self._clock, self._lock = most, count(), RLock()
        self._entries = {}  # key -> [value, time of its last use]

    def __len__(self):
        return len(self._entries)

    def get(self, key):
        """The value of `key`, which counts as a use, or None. It takes no lock and hashes the key once."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry[1] = next(self._clock)
        return entry[0]

    def get_or_make(self, key, make):
        """The value of `key`: if there is none, what `make()` returns, called once. It must not be None; what
        it raises passes through, and nothing is kept.
        """
        with self._lock:
            value = self.get(key)
            if value is None:
                value = make()
                if len(self._entries) >= self._most:
                    oldest, _ = min(self._entries.items(), key=lambda item: item[1][1])
                    del self._entries[oldest]
                self._entries[key] = [value, next(self._clock)]
            return value
