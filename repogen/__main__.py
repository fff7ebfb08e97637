"""``python -m repogen``: the command, where its script is not on PATH."""

from repogen.cli.group import main

if __name__ == "__main__":
    main(prog_name="repogen")
