"""`python -m soliton` is the command `soliton`."""

from soliton.cli import main

if __name__ == "__main__":
    main()
