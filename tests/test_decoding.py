"""Classes are decoded for the first time by several threads at once."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import msgspec
import pytest

from replitree.decoding import converted, json_decoder, msgpack_decoder

THREADS = """
    from __future__ import annotations
    import sys, threading
    import msgspec
    from replitree.decoding import converted, json_decoder, msgpack_decoder
    sys.setswitchinterval(1e-6)

    class Inner(msgspec.Struct, frozen=True, array_like=True):
        a: int
        b: tuple[int, int]
        c: str

    class Outer(msgspec.Struct, frozen=True, array_like=True):
        name: str
        inner: tuple[Inner, ...]
        other: dict[str, Inner] | None = None

    outer = Outer("g", (Inner(1, (2, 3), "x"),), {"y": Inner(4, (5, 6), "z")})
    packed, text, plain = msgspec.msgpack.encode(outer), msgspec.json.encode(outer), msgspec.to_builtins(outer)
    barrier, found = threading.Barrier(6), []

    def decode(number):
        barrier.wait()
        found.append(
            (
                lambda: msgpack_decoder(Outer).decode(packed),
                lambda: json_decoder(Outer).decode(text),
                lambda: converted(plain, Outer),
            )[number % 3]()
        )

    threads = [threading.Thread(target=decode, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [outer] * 6, found
"""


def test_a_class_is_decoded_for_the_first_time_in_many_threads() -> None:
    for _ in range(5):
        subprocess.run([sys.executable, "-c", textwrap.dedent(THREADS)], check=True)


def test_what_is_not_of_the_type_is_said() -> None:
    with pytest.raises(msgspec.ValidationError):
        json_decoder(int).decode(b'"x"')
    with pytest.raises(msgspec.ValidationError):
        msgpack_decoder(list[int]).decode(msgspec.msgpack.encode(["x"]))
    with pytest.raises(msgspec.ValidationError):
        converted({"a": "x"}, dict[str, int])
    assert converted({"a": 1}, dict[str, int]) == {"a": 1}


def test_a_decoder_is_made_once() -> None:
    assert json_decoder(dict[str, int]) is json_decoder(dict[str, int])
