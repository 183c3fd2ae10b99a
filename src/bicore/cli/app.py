"""The entry point of ``bicore``: what each kind of failure becomes.

Exit codes: 0 done, 1 a failure while working, 2 a request that cannot be right, 130 interrupted.
"""

from __future__ import annotations

from bicore.cli.starting import starting


def main() -> None:
    """The entry point."""
    with starting():
        import warnings

        from bicore.cli.telling import close_output, prepare_streams, tell
        from bicore.cli.verbs import run
        from bicore.errors import BicoreError, InputError, MemoryLimitError
    prepare_streams()
    warnings.showwarning = lambda message, *more, **named: tell(f"bicore: {message}")
    message: object = None
    try:
        code, message = run()
    except (InputError, MemoryLimitError) as error:
        code, message = 2, error
    except BicoreError as error:
        code, message = 1, error
    except PermissionError as error:
        code = 2
        message = f"no permission for {error.filename}; change its mode, or choose another place."
    except BrokenPipeError:  # whoever reads has seen enough
        code = 1
    except OSError as error:
        name = f" ({error.filename})" if error.filename else ""
        code = 1
        message = f"{error.strerror or error}{name}; what was there before is unchanged."
    except MemoryError:
        code = 1
        message = "there is not enough memory; give --limit, or --memory to see it before."
    if message is not None:
        tell(f"bicore: {message}")
    close_output()
    raise SystemExit(code)
