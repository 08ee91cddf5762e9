"""Decoders of messages and files: made one after the other, by whatever thread comes first.

msgspec (0.22) looks at the fields of a class when it is decoded for the first time, and while one thread does that, another one
that decodes the same class uses what is not there yet: the process ends with a segmentation fault.  So all of this project's
decoders are made here, under a lock; those that are made decode in any number of threads at once.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, TypeVar, overload

import msgspec

JsonDecoder = msgspec.json.Decoder

T = TypeVar("T")

_making = threading.Lock()


@overload
def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return what decodes JSON to a type; `msgspec.MsgspecError` is raised for what is not of that type."""
    return _json_decoder(kind)


@overload
def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
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
def _json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    with _making:
        return msgspec.json.Decoder(kind)


@cache
def _msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    with _making:
        return msgspec.msgpack.Decoder(kind)
