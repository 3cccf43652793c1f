"""``python -m spm.cli.remote``: the program ``spm``."""

from spm.cli.remote.commands import main

if __name__ == "__main__":
    main()
