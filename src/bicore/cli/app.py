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

        prepare_streams()
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *more, **named: tell(f"bicore: {message}")
            code, message = _outcome()
        if message is not None:
            tell(f"bicore: {message}")
        close_output()
    raise SystemExit(code)


def _outcome() -> tuple[int, object]:
    """Do what is asked for; the exit code, and words where it did not go well."""
    from bicore.cli.verbs import run
    from bicore.errors import BicoreError, InputError, MemoryLimitError

    try:
        return run()
    except (InputError, MemoryLimitError) as error:
        return 2, error
    except BicoreError as error:
        return 1, error
    except PermissionError as error:
        return 2, f"no permission for {error.filename}; change its mode, or choose another place."
    except BrokenPipeError:  # whoever reads has seen enough
        return 1, None
    except OSError as error:
        name = f" ({error.filename})" if error.filename else ""
        return 1, f"{error.strerror or error}{name}; what was there before is unchanged."
    except MemoryError:
        return 1, "there is not enough memory; give --limit, or --memory to see it before."
