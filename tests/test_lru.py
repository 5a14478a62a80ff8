"""The bounded cache."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparsekern.lru import Lru


def fill(lru, keys):
    for key in keys:
        lru.get_or_make(key, lambda key=key: [key])


def kept(lru, keys):
    """Which of `keys` are there; asking for them uses them, in their order."""
    return [key for key in keys if lru.get(key) is not None]


def test_a_value_is_made_once():
    lru, made = Lru(2), []
    assert lru.get("a") is None and len(lru) == 0
    for _ in range(2):
        assert lru.get_or_make("a", lambda: made.append("a") or "value") == "value"
    assert made == ["a"] and lru.get("a") == "value"


def test_the_value_used_longest_ago_makes_room_and_no_other():
    lru = Lru(3)
    fill(lru, "abcd")
    assert kept(lru, "abcd") == ["b", "c", "d"] and len(lru) == 3


@pytest.mark.parametrize("use", [Lru.get, lambda lru, key: lru.get_or_make(key, list)], ids=["get", "make"])
def test_a_value_that_is_used_stays(use):
    lru = Lru(3)
    fill(lru, "abc")
    use(lru, "a")
    fill(lru, "d")
    assert kept(lru, "abcd") == ["a", "c", "d"]


def test_what_cannot_be_made_leaves_the_others():
    lru = Lru(2)
    fill(lru, "ab")
    with pytest.raises(ZeroDivisionError):
        lru.get_or_make("c", lambda: 1 / 0)
    assert kept(lru, "abc") == ["a", "b"]


def test_threads_at_once_make_one_value_for_a_key():
    lru, start, made = Lru(2), threading.Barrier(8), []

    def make():
        time.sleep(0.01)  # the others come meanwhile
        made.append("value")
        return made[-1]

    def work(_):
        start.wait()
        return lru.get_or_make("a", make)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(8))) == {"value"}
    assert made == ["value"]


def test_threads_never_get_the_value_of_another_key_nor_keep_more_than_the_bound():
    lru, start = Lru(4), threading.Barrier(4)

    def work(number):
        start.wait()
        for i in range(1000):
            key = (i + number) % 6
            assert lru.get_or_make(key, lambda key=key: [key]) == [key]
            assert lru.get(key) in ([key], None)  # another thread may have needed the room
            assert len(lru) <= 4

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(lru) == 4
