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

#: The names that pickled arrays refer to, without the module that differs between NumPy 1 and 2.
_NAMES = {
    "numpy multiarray _reconstruct": "array",
    "numpy multiarray scalar": "scalar",
    "numpy numeric _frombuffer": "buffer",
    "numpy ndarray": "class",
    "numpy dtype": "dtype",
    "_codecs encode": "bytes",
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
#: Tuples of a known length.
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
        if _is_value(operation):
            machine.stack.append(argument)
        else:
            machine.run(operation.name, argument)
    return machine.stack.pop()


def _is_value(operation: Any) -> bool:
    """Whether an operation only pushes its argument, a number, text or bytes."""
    pushes = operation.arg is not None and not operation.stack_before and operation.stack_after
    return bool(pushes) and operation.stack_after != [pickletools.anyobject]


class _Machine:
    """The stack, the marks in it and the memo of a pickle that is being read."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        """Replay one operation."""
        stack = self.stack
        match name:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "MARK":
                self.marks.append(len(stack))
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append(_CONSTANTS[name])
            case "EMPTY_TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._pop(_TUPLES[name])))
            case "TUPLE":
                stack.append(tuple(self._pop_marked()))
            case "EMPTY_LIST" | "LIST":
                stack.append(self._pop_marked() if name == "LIST" else [])
            case "APPEND" | "APPENDS":
                items = self._pop(1) if name == "APPEND" else self._pop_marked()
                stack[-1].extend(items)
            case _:
                self._run_dict_or_call(name, argument)

    def _run_dict_or_call(self, name: str, argument: Any) -> None:
        """Replay an operation on dicts, or record a name, a call or its state."""
        stack = self.stack
        match name:
            case "EMPTY_DICT" | "DICT":
                items = self._pop_marked() if name == "DICT" else []
                stack.append(_as_dict(items))
            case "SETITEM" | "SETITEMS":
                items = self._pop(2) if name == "SETITEM" else self._pop_marked()
                stack[-1].update(_as_dict(items))
            case "GLOBAL":
                stack.append(_known(argument))
            case "STACK_GLOBAL":
                stack.append(_known(" ".join(self._pop(2))))
            case "REDUCE":
                stack.append(Call(*self._pop(2)))
            case "BUILD":
                (state,) = self._pop(1)
                stack[-1].state = state
            case _:
                raise ValueError(f"plain data does not need the operation {name}")

    def _pop_marked(self) -> list[Any]:
        return self._pop(len(self.stack) - self.marks.pop())

    def _pop(self, count: int) -> list[Any]:
        if not 0 <= count <= len(self.stack):
            raise ValueError("its stack is empty")
        start = len(self.stack) - count
        found = self.stack[start:]
        del self.stack[start:]
        return found


def _as_dict(items: list[Any]) -> dict[str, Any]:
    """Only text is a key: the hash of a deeply nested tuple overflows the C stack."""
    if not all(isinstance(key, str) for key in items[::2]):
        raise ValueError("a key is not text")
    return dict(zip(items[::2], items[1::2], strict=True))


def _known(name: str) -> str:
    """Translate a name that the file refers to, if arrays need it."""
    for module in ("numpy.core.", "numpy._core."):
        if name.startswith(module):
            return _known(f"numpy {name.removeprefix(module)}")
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
