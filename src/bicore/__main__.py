"""``python -m bicore``: the command."""

from bicore.cli.app import main

if __name__ == "__main__":
    main()
