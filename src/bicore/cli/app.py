"""The entry point of ``bicore``: what each kind of failure becomes.

Exit codes: 0 done, 1 a failure while working, 2 a request that cannot be right, 130 interrupted.
"""

from __future__ import annotations

import sys

from bicore.cli.starting import starting


def main() -> None:
    """The entry point."""
    with starting():
        from bicore.cli.verbs import app
        from bicore.errors import BicoreError, InputError, MemoryLimitError
    try:
        app()
    except (InputError, MemoryLimitError) as error:
        _stop(error, 2)
    except BicoreError as error:
        _stop(error, 1)
    except PermissionError as error:
        _stop(f"no permission for {error.filename}; change its mode, or choose another place.", 2)
    except OSError as error:
        name = f" ({error.filename})" if error.filename else ""
        _stop(f"{error.strerror or error}{name}; what was there before is unchanged.", 1)


def _stop(message: object, code: int) -> None:
    print(f"bicore: {message}", file=sys.stderr)
    raise SystemExit(code)
