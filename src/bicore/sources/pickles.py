"""Read pickled numbers, text and arrays without Python's unpickler.

`pickletools` splits a pickle into operations, and a small stack machine replays those that plain
data needs. Nothing is imported or called: a call in the file becomes a `Call`, which only records
its arguments. Arrays are built from such records with `np.frombuffer`, after their type is checked.
"""

from __future__ import annotations

import operator
import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np

from bicore.data import Array
from bicore.errors import InputError

#: The names that pickled arrays refer to, as NumPy 1 and 2 write them, and what each one makes.
_NAMES = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy.core.multiarray scalar": "scalar",
    "numpy._core.multiarray scalar": "scalar",
    "numpy.core.numeric _frombuffer": "buffer",
    "numpy._core.numeric _frombuffer": "buffer",
    "numpy ndarray": "class",
    "numpy dtype": "dtype",
    "_codecs encode": "bytes",
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
#: Operations that push their own argument.
_VALUES = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
    ]
)
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
#: Characters of an unknown name that an error shows.
_LONGEST_NAME = 100


@dataclass(eq=False)
class Call:
    """A call that a pickle asks for: recorded, never made."""

    made: Any
    arguments: Any
    state: Any = None


def load_plain(content: bytes, operations: int) -> Any:
    """Read a pickle of at most ``operations`` operations; a damaged one raises any exception."""
    machine = _Machine()
    for count, (operation, argument, _) in enumerate(pickletools.genops(content)):
        if count == operations:
            raise ValueError(f"it has more than {operations} operations")
        machine.run(operation.name, argument)
    return machine.stack.pop()


class _Machine:
    """The stack, the marks in it and the memo of a pickle that is being read."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        """Replay one operation."""
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            self.stack.append(tuple(self._pop_from(len(self.stack) - _TUPLES[name])))
        elif not (self._remember(name, argument) or self._collect(name)):
            self._record(name, argument)

    def _remember(self, name: str, argument: Any) -> bool:
        """Replay an operation on the memo; whether it is one."""
        match name:
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = self.stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = self.stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                self.stack.append(self.memo[argument])
            case _:
                return False
        return True

    def _collect(self, name: str) -> bool:
        """Replay an operation on lists, dicts and long tuples; whether it is one."""
        match name:
            case "MARK":
                self.marks.append(len(self.stack))
            case "EMPTY_LIST":
                self.stack.append([])
            case "EMPTY_DICT":
                self.stack.append({})
            case "TUPLE":
                self.stack.append(tuple(self._pop_from(self.marks.pop())))
            case "LIST":
                self.stack.append(self._pop_from(self.marks.pop()))
            case "DICT":
                items = self._pop_from(self.marks.pop())
                self.stack.append({})
                self._set_items(items)
            case "APPEND":
                self._append(self._pop_from(len(self.stack) - 1))
            case "APPENDS":
                self._append(self._pop_from(self.marks.pop()))
            case "SETITEM":
                self._set_items(self._pop_from(len(self.stack) - 2))
            case "SETITEMS":
                self._set_items(self._pop_from(self.marks.pop()))
            case _:
                return False
        return True

    def _record(self, name: str, argument: Any) -> None:
        """Record a name, a call or its state; refuse all other operations."""
        match name:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "GLOBAL":
                self.stack.append(_known(argument))
            case "STACK_GLOBAL":
                self.stack.append(_known(" ".join(self._pop_from(len(self.stack) - 2))))
            case "REDUCE":
                self.stack.append(Call(*self._pop_from(len(self.stack) - 2)))
            case "BUILD":
                (state,) = self._pop_from(len(self.stack) - 1)
                self.stack[-1].state = state
            case _:
                raise ValueError(f"plain data does not need the operation {name}")

    def _pop_from(self, start: int) -> list[Any]:
        if not 0 <= start <= len(self.stack):
            raise ValueError("its stack is empty")
        found = self.stack[start:]
        del self.stack[start:]
        return found

    def _append(self, items: list[Any]) -> None:
        self.stack[-1].extend(items)

    def _set_items(self, items: list[Any]) -> None:
        """Only text is a key: the hash of a deeply nested tuple overflows the C stack."""
        if not all(isinstance(key, str) for key in items[::2]):
            raise ValueError("a key is not text")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))


def _known(name: str) -> str:
    """Translate a name that the file refers to, if arrays need it."""
    if name not in _NAMES:
        shown = name.replace(" ", ".", 1)[:_LONGEST_NAME].encode("unicode_escape").decode()
        raise InputError(
            f"the file asks for {shown}, which plain data has no use for: it is refused, and "
            "nothing of it was run."
        )
    return _NAMES[name]


def as_array(stored: Call) -> Array:
    """Build an array of bytes or whole numbers (``u1`` or ``i8``) from its record."""
    if stored.made == "buffer":
        data, kind, shape, order = stored.arguments
        fortran = order == "F"
    elif stored.made == "array":
        _, shape, kind, fortran, data = stored.state
    else:
        raise ValueError("an array is missing")
    found = _values(data, kind).reshape(shape, order="F" if fortran else "C")
    if found.shape != shape:
        raise ValueError("a shape has a negative size")
    return found


def as_whole_number(stored: Any) -> int:
    """Read a Python integer or a NumPy scalar."""
    if isinstance(stored, Call):
        kind, data = stored.arguments
        (stored,) = _values(data, kind)
    return operator.index(stored)


def _values(data: Any, kind: Call) -> Array:
    """Read values of an admitted type."""
    code, order = kind.arguments[0], kind.state[1]
    if kind.made != "dtype" or code not in ("u1", "i8") or order not in ("|", "<", ">"):
        raise ValueError("its values are neither bytes (u1) nor whole numbers (i8)")
    return np.frombuffer(_as_bytes(data), np.dtype(f"{order}{code}"))


def _as_bytes(stored: Any) -> Any:
    """Read bytes, which Python 2 and old protocols store as Latin-1 text."""
    if isinstance(stored, Call):
        stored, codec = stored.arguments
        if codec != "latin1":
            raise ValueError("its text is not Latin-1")
    return stored.encode("latin1") if isinstance(stored, str) else stored
