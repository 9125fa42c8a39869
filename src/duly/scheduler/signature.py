"""Signatures: what a handler takes and returns, as codecs.

A payload is the handler's keyword arguments as a JSON object, checked against its annotations when it is submitted and
rebuilt from them when the handler is called. Conversion is strict; what JSON cannot represent is refused, never
altered. A result is checked against the return annotation before it is stored, so that it can be read back.
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

from duly.errors import ConfigurationError, PayloadError, ReturnMismatch, shown
from duly.model.json_types import from_builtins, to_builtins
from duly.rules.keywords import misplaced_options
from duly.rules.suggestions import did_you_mean
from duly.runtime.context import Context
from duly.scheduler.callables import function_of

EMPTY = b"{}"
UNKNOWN_FIELD = re.compile(r"Object contains unknown field `([^`]*)`")  # the words of msgspec, for an outermost field

_UNSUPPORTED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
_NULL = b"null"


# What a value that does not fit its annotation raises, and what a type that JSON cannot carry raises.
_UNFIT = (ValidationError, TypeError, ValueError)
_UNFIT_OR_UNKNOWN = (*_UNFIT, NotImplementedError)

# Values of these types are known to fit an annotation that is the same type: they need not be decoded to be checked.
_PLAIN = (bool, int, str)

_encoder = msgspec.json.Encoder(enc_hook=to_builtins)


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
        self._returns = hints.get("return", Any)
        self._result = _decoder(name, self._returns)
        self.may_return_none = self._fits(_NULL)

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
            msgspec.convert(arguments, self._struct, strict=True, dec_hook=from_builtins)
        except _UNFIT_OR_UNKNOWN as exc:
            raise self._misfit(exc, self._way_out(arguments)) from None
        if self._untyped or self._open:
            self._check_untyped(arguments)
        return encode_payload(self.name, arguments) if arguments else EMPTY

    def decode(self, payload: bytes) -> dict[str, Any]:
        """Rebuild the arguments. Raises `PayloadError` where the payload does not fit (any more)."""
        if payload == EMPTY and not self.required:
            return {}
        try:
            return self._arguments(payload)
        except (msgspec.DecodeError, *_UNFIT_OR_UNKNOWN) as exc:
            raise self._misfit(exc, f"it takes {self.describe()}") from None

    def _misfit(self, exc: Exception, way_out: str) -> PayloadError:
        """The error for a payload that does not fit, with the parameter that an unknown name is similar to."""
        unknown = UNKNOWN_FIELD.fullmatch(str(exc))
        hint = "" if unknown is None else did_you_mean(unknown[1], self._names)
        return PayloadError(f"payload of {self.name}: {exc}{hint}; {way_out}")

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

    def _way_out(self, arguments: Mapping[str, Any]) -> str:
        options = misplaced_options(self.name, arguments.keys(), self._names)
        return options or f"it takes {self.describe()}"

    def describe(self) -> str:
        """The parameters, as a person would write them."""
        shown = [str(parameter) for parameter in self._parameters]
        return f"({', '.join(shown)})" if shown else "no arguments"

    # --- results

    def encode_result(self, value: Any) -> bytes:
        """A returned value as JSON.

        Raises `ReturnMismatch` for a value that does not fit the return annotation, and ValueError or TypeError for one
        that fits and that JSON cannot carry.
        """
        try:
            encoded = _encoder.encode(value)
            if _NULL in encoded:
                _refuse_nan(value)
        except (*_UNFIT, OverflowError, RecursionError):
            self._refuse_unfit(value)
            raise
        if (type(value) is not self._returns or self._returns not in _PLAIN) and not self._fits(encoded):
            raise self._mismatch(value)
        return encoded

    def _fits(self, encoded: bytes) -> bool:
        """Whether a result can be read back as the return annotation. One that cannot be checked is taken to fit."""
        if self._returns is Any:
            return True
        try:
            self._result.decode(encoded)
        except NotImplementedError:
            return True
        except Exception:  # noqa: BLE001  # a validator of pydantic is foreign code
            return False
        return True

    def _refuse_unfit(self, value: Any) -> None:
        """Say that a value that cannot be encoded is of the wrong type, if it is."""
        try:
            msgspec.convert(value, self._returns, strict=True, dec_hook=from_builtins)
        except NotImplementedError:
            return
        except Exception:  # noqa: BLE001  # as above
            raise self._mismatch(value) from None

    def _mismatch(self, value: Any) -> ReturnMismatch:
        wanted = inspect.formatannotation(self._returns)
        return ReturnMismatch(
            f"{self.name} returned {shown(value)}, a {type(value).__qualname__}, but is annotated `-> {wanted}`:"
            f" correct the annotation or the value; a run is not repeated for that"
        )

    def decode_result(self, result: bytes) -> Any:
        """A stored result as the handler's return type. Raises `ReturnMismatch` where it does not fit (any more)."""
        try:
            return self._result.decode(result)
        except (msgspec.DecodeError, *_UNFIT_OR_UNKNOWN) as exc:
            wanted = inspect.formatannotation(self._returns)
            raise ReturnMismatch(f"the stored result of {self.name} does not fit `-> {wanted}`: {exc}") from None


def encode_payload(name: str, arguments: Mapping[str, Any]) -> bytes:
    """Arguments as a JSON object, unchecked but for what JSON cannot carry."""
    try:
        encoded = _encoder.encode(arguments)
        if _NULL in encoded:
            _refuse_nan(arguments)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise PayloadError(f"payload of {name}: {_culprit(arguments)}{exc}") from None
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
    plain = function_of(function)
    try:
        return {} if isinstance(plain, type) else typing.get_type_hints(plain)
    except Exception as exc:
        place = getattr(plain, "__qualname__", plain)
        raise ConfigurationError(
            f"the annotations of handler {name!r} ({place}) cannot be resolved: {exc}; "
            f"the types it names must be importable from its module"
        ) from exc


def _refuse_unsupported(name: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> None:
    if parameters and parameters[0].name == "self" and "self" not in hints:
        raise ConfigurationError(
            f"handler {name!r} is a method that is not bound to an object: create the object first, then write"
            f" scheduler.job(…)(the_object.{name})"
        )
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
        return msgspec.json.Decoder(kind, dec_hook=from_builtins)
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
    _walk_for_nan(msgspec.to_builtins(value, enc_hook=to_builtins))


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
