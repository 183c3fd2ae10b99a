"""The command ``bicore``: one file for each subcommand."""
