"""Signatures: what a handler takes and returns, as codecs.

A payload is the handler's keyword arguments as a JSON object, checked against its annotations when it is submitted and
rebuilt from them when the handler is called. Conversion is strict; what JSON cannot represent is refused, never
altered.
"""

from __future__ import annotations

import inspect
import math
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import msgspec
from msgspec import UNSET, ValidationError

from duly.errors import ConfigurationError, PayloadError
from duly.rules.suggestions import did_you_mean
from duly.runtime.context import Context

EMPTY = b"{}"
UNKNOWN_FIELD = re.compile(r"Object contains unknown field `([^`]*)`")  # the words of msgspec, for an outermost field

_UNSUPPORTED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
_NULL = b"null"


def _encode_foreign(value: Any) -> Any:
    """Pydantic models, recognised by their methods: the package need not be installed."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__qualname__} is not something JSON can carry")
    return dump(mode="json")


def _decode_foreign(kind: type, value: Any) -> Any:
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise TypeError(f"{kind.__qualname__} is not something JSON can carry")
    return validate(value)


_encoder = msgspec.json.Encoder(enc_hook=_encode_foreign)


class Signature:
    """The parameters and the result of one handler."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        hints = _hints(name, function)
        parameters = _parameters(name, function)
        self.takes_context = bool(parameters) and hints.get(parameters[0].name) is Context
        self._parameters = parameters[1:] if self.takes_context else parameters
        _refuse_unsupported(name, self._parameters, hints)
        self._open = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in self._parameters)
        named = [parameter for parameter in self._parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
        self._names = [parameter.name for parameter in named]
        self._untyped = {parameter.name for parameter in named if hints.get(parameter.name, Any) is Any}
        self.required = [parameter.name for parameter in named if parameter.default is inspect.Parameter.empty]
        self._struct = _struct(name, named, hints, is_open=self._open)
        self._decoder = _decoder(name, self._struct)
        self._result = _decoder(name, hints.get("return", Any))

    def named(self, name: str) -> Signature:
        """The same signature for another job with the same function; what is large is shared."""
        twin = copy(self)
        twin.name = name
        return twin

    # --- payloads

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Positional and keyword arguments as keyword arguments."""
        if not args:
            return kwargs
        if len(args) > len(self._names):
            raise PayloadError(f"{self.name} takes {len(self._names)} arguments, {len(args)} were given")
        named = dict(zip(self._names, args, strict=False))
        if twice := named.keys() & kwargs.keys():
            raise PayloadError(f"{self.name} got {', '.join(sorted(twice))} twice, by position and by name")
        return named | kwargs

    def encode(self, arguments: Mapping[str, Any]) -> bytes:
        """Check arguments against the annotations and encode them. Raises `PayloadError` naming the fault."""
        try:
            msgspec.convert(arguments, self._struct, strict=True, dec_hook=_decode_foreign)
        except (ValidationError, TypeError, ValueError) as exc:
            raise self._misfit(exc) from exc
        if self._untyped or self._open:
            self._check_untyped(arguments)
        return encode_payload(self.name, arguments) if arguments else EMPTY

    def decode(self, payload: bytes) -> dict[str, Any]:
        """Rebuild the arguments. Raises `PayloadError` where the payload does not fit (any more)."""
        if payload == EMPTY and not self.required:
            return {}
        try:
            return self._arguments(payload)
        except (ValidationError, msgspec.DecodeError, TypeError, ValueError) as exc:
            raise self._misfit(exc) from exc

    def _misfit(self, exc: Exception) -> PayloadError:
        """The error for a payload that does not fit, with the parameter that an unknown name is similar to."""
        unknown = UNKNOWN_FIELD.fullmatch(str(exc))
        hint = "" if unknown is None else did_you_mean(unknown[1], self._names)
        return PayloadError(f"payload of {self.name}: {exc}{hint}; it takes {self.describe()}")

    def _arguments(self, payload: bytes) -> dict[str, Any]:
        values = self._decoder.decode(payload)
        known = {name: value for name in self._names if (value := getattr(values, name)) is not UNSET}
        if not self._open:
            return known
        return {name: value for name, value in msgspec.json.decode(payload).items() if name not in known} | known

    def _check_untyped(self, arguments: Mapping[str, Any]) -> None:
        """Refuse values other than plain JSON without an annotation: they would be decoded as another type."""
        for name, value in arguments.items():
            if name in self._untyped or name not in self._names:
                odd = _not_json(value)
                if odd is not None:
                    raise PayloadError(
                        f"payload of {self.name}: {name} holds a {type(odd).__qualname__}, which would come back as"
                        f" something else; annotate the parameter with its type"
                    )

    def describe(self) -> str:
        """The parameters, as a person would write them."""
        shown = [str(parameter) for parameter in self._parameters]
        return f"({', '.join(shown)})" if shown else "no arguments"

    # --- results

    def encode_result(self, value: Any) -> bytes:
        """A returned value as JSON. Raises ValueError or TypeError for what JSON cannot carry."""
        encoded = _encoder.encode(value)
        if _NULL in encoded:
            _refuse_nan(value)
        return encoded

    def decode_result(self, result: bytes) -> Any:
        """A stored result as the handler's return type."""
        return self._result.decode(result)


def encode_payload(name: str, arguments: Mapping[str, Any]) -> bytes:
    """Arguments as a JSON object, unchecked but for what JSON cannot carry."""
    try:
        encoded = _encoder.encode(arguments)
        if _NULL in encoded:
            _refuse_nan(arguments)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise PayloadError(f"payload of {name}: {_culprit(arguments)}{exc}") from exc
    return encoded


def _culprit(arguments: Mapping[str, Any]) -> str:
    """The argument that cannot be encoded, for the message."""
    for key, value in arguments.items():
        try:
            _encoder.encode(value)
            _refuse_nan(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return f"{key}: "
    return ""


def _parameters(name: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError) as exc:
        raise ConfigurationError(
            f"handler {name!r}: its parameters are not known: {exc}; wrap it in a function"
        ) from exc


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception as exc:
        raise ConfigurationError(
            f"the annotations of handler {name!r} ({function.__qualname__}) cannot be resolved: {exc}; "
            f"the types it names must be importable from its module"
        ) from exc


def _refuse_unsupported(name: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> None:
    for parameter in parameters:
        if parameter.kind in _UNSUPPORTED:
            raise ConfigurationError(
                f"handler {name!r} has the parameter {parameter}: payloads are keyword arguments, name it"
            )
        if hints.get(parameter.name) is Context:
            raise ConfigurationError(f"handler {name!r}: {parameter.name}: Context must be the first parameter")


def _struct(
    name: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any], *, is_open: bool
) -> type[msgspec.Struct]:
    """A struct with the handler's parameters as fields; those with a default may be missing."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in parameters:
        kind = hints.get(parameter.name, Any)
        required = parameter.default is inspect.Parameter.empty
        fields.append((parameter.name, kind) if required else (parameter.name, kind, UNSET))
    try:
        return msgspec.defstruct("Arguments", fields, forbid_unknown_fields=not is_open, kw_only=True)
    except TypeError as exc:
        raise ConfigurationError(f"handler {name!r}: its parameters cannot be a payload: {exc}") from exc


def _decoder(name: str, kind: Any) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(kind, dec_hook=_decode_foreign)
    except TypeError as exc:
        raise ConfigurationError(f"handler {name!r}: JSON cannot carry one of its types: {exc}") from exc


def _not_json(value: Any) -> Any:
    """The first part of a value that is not plain JSON, None if all is."""
    match value:
        case None | bool() | int() | float() | str():
            return None if type(value) in (type(None), bool, int, float, str) else value
        case list() | tuple():
            return next((odd for item in value if (odd := _not_json(item)) is not None), None)
        case dict():
            return value if any(type(key) is not str for key in value) else _not_json(list(value.values()))
        case _:
            return value


def _refuse_nan(value: Any) -> None:
    """JSON has no NaN and no infinity; an encoder that writes null for them would lose data silently."""
    _walk_for_nan(msgspec.to_builtins(value, enc_hook=_encode_foreign))


def _walk_for_nan(value: Any) -> None:
    match value:
        case float() if not math.isfinite(value):
            raise ValueError(f"{value} is not a number that JSON can carry")
        case dict():
            for item in value.values():
                _walk_for_nan(item)
        case list() | tuple():
            for item in value:
                _walk_for_nan(item)
        case _:
            pass
