"""Decoders of messages and files: made one after the other, by whatever thread comes first.

msgspec (0.22) looks at the fields of a class when it is decoded for the first time, and while one thread does that, another one
that decodes the same class uses what is not there yet: the process ends with a segmentation fault.  So all of this project's
decoders are made here, under a lock; those that are made decode in any number of threads at once.

msgspec raises `UnicodeDecodeError` for text that is not UTF-8, and `RecursionError` for what is nested too deeply.  A caller
that reads a disk or the network expects one kind of error for all bytes that it can't use: a decoder of this module raises
`msgspec.DecodeError` for these, too.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, Generic, TypeVar, overload

import msgspec

T = TypeVar("T")


class Decoder(Generic[T]):
    """Decodes bytes to a type, in any thread.  Every error is a `msgspec.MsgspecError`."""

    __slots__ = ("_decoder",)

    def __init__(self, decoder: msgspec.json.Decoder[T] | msgspec.msgpack.Decoder[T]) -> None:
        self._decoder = decoder

    def decode(self, data: Any, /) -> T:
        """Return what the bytes, or the text, stand for."""
        try:
            return self._decoder.decode(data)
        except (UnicodeDecodeError, RecursionError) as error:
            raise _wrong(error) from error


class JsonDecoder(Decoder[T]):
    """A decoder of JSON."""

    __slots__ = ("_lines",)

    def __init__(self, decoder: msgspec.json.Decoder[T]) -> None:
        super().__init__(decoder)
        self._lines = decoder.decode_lines

    def decode_lines(self, data: bytes, /) -> list[T]:
        """Return what each line stands for."""
        try:
            return self._lines(data)
        except (UnicodeDecodeError, RecursionError) as error:
            raise _wrong(error) from error


def _wrong(error: UnicodeDecodeError | RecursionError) -> msgspec.DecodeError:
    if isinstance(error, UnicodeDecodeError):
        return msgspec.DecodeError(f"text is not UTF-8 at byte {error.start}")
    return msgspec.DecodeError("it is nested too deeply")


_making = threading.Lock()


@overload
def json_decoder(kind: type[T]) -> JsonDecoder[T]: ...
@overload
def json_decoder(kind: Any) -> JsonDecoder[Any]: ...
def json_decoder(kind: Any) -> JsonDecoder[Any]:
    """Return what decodes JSON to a type; `msgspec.MsgspecError` is raised for what is not of that type."""
    return _json_decoder(kind)


@overload
def msgpack_decoder(kind: type[T]) -> Decoder[T]: ...
@overload
def msgpack_decoder(kind: Any) -> Decoder[Any]: ...
def msgpack_decoder(kind: Any) -> Decoder[Any]:
    """Return what decodes MessagePack to a type; raises as `json_decoder`'s."""
    return _msgpack_decoder(kind)


@overload
def converted(value: object, kind: type[T]) -> T: ...
@overload
def converted(value: object, kind: Any) -> Any: ...
def converted(value: object, kind: Any) -> Any:
    """Return a value of dicts and lists as one of a type; raises as `json_decoder`'s."""
    _json_decoder(kind)
    return msgspec.convert(value, kind)


@cache
def _json_decoder(kind: Any) -> JsonDecoder[Any]:
    with _making:
        return JsonDecoder(msgspec.json.Decoder(kind))


@cache
def _msgpack_decoder(kind: Any) -> Decoder[Any]:
    with _making:
        return Decoder(msgspec.msgpack.Decoder(kind))
