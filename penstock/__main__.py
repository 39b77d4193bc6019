"""``python -m penstock``: the command."""

from penstock.command import main

if __name__ == "__main__":
    main()
