"""Parameters as in scikit-learn: read and changed by constructor argument."""

from __future__ import annotations

import inspect
from enum import StrEnum
from typing import Any, Self

from bicore.errors import unknown_option


class Parameters:
    """Gives a class ``get_params``, ``set_params``, ``sklearn.base.clone`` and a short repr.

    Every parameter of the constructor must be an attribute of the same name, and the constructor
    must accept the attribute.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        # A dataclass generates its own unless the class defines one.
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    @classmethod
    def _parameters(cls) -> dict[str, inspect.Parameter]:
        found = inspect.signature(cls).parameters
        return {name: one for name, one in found.items() if one.kind is not one.VAR_KEYWORD}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor.

        Parameters
        ----------
        deep : bool
            Whether to include the parameters of parameters, as ``selector__kernel``.

        Returns
        -------
        dict
            Values by name; names given to the constructor are resolved to objects.
        """
        found = {name: getattr(self, name) for name in self._parameters()}
        for name, value in list(found.items()) if deep else ():
            if hasattr(value, "get_params") and not isinstance(value, type):
                parts = value.get_params(deep=True)
                found |= {f"{name}__{part}": inner for part, inner in parts.items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Change parameters in place, as ``GridSearchCV`` does; all other state is reset.

        Parameters
        ----------
        **params
            New values, checked as the constructor checks them.

        Returns
        -------
        object
            The object itself.

        Raises
        ------
        InputError
            If a name or a value is invalid; nothing is changed then.
        """
        values = self.get_params(deep=False)
        nested: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            first, _, rest = name.partition("__")
            if first not in values:
                raise unknown_option(type(self).__name__, first, values)
            if rest:
                nested.setdefault(first, {})[rest] = value
            else:
                values[name] = value
        for name, inner in nested.items():
            values[name] = _copy_value(values[name]).set_params(**inner)
        changed = vars(type(self)(**values))
        vars(self).clear()
        vars(self).update(changed)
        return self

    def __sklearn_clone__(self) -> Self:
        values = self.get_params(deep=False)
        return type(self)(**{name: _copy_value(value) for name, value in values.items()})

    def __repr__(self) -> str:
        values = self.get_params(deep=False)
        needed = [name for name, one in self._parameters().items() if one.default is one.empty]
        usual = type(self)(**{name: values[name] for name in needed}).get_params(deep=False)
        own = (name for name in values if name in needed or not is_same(values[name], usual[name]))
        shown = [f"{name}={_shorten(values[name])}" for name in own]
        return f"{type(self).__name__}({', '.join(shown)})"


def _copy_value(value: Any) -> Any:
    """Return an independent copy of an object with parameters; other values unchanged."""
    return value.__sklearn_clone__() if isinstance(value, Parameters) else value


def is_same(value: Any, default: Any) -> bool:
    """Whether a value equals its default and has the same type."""
    try:
        return type(value) is type(default) and bool(value == default)
    except (TypeError, ValueError, RuntimeError):  # arrays
        return value is default


def _shorten(value: Any) -> str:
    if getattr(value, "unset", False) is True:  # chosen once the data are known
        return "'auto'"
    return repr(str(value)) if isinstance(value, StrEnum) else repr(value)
