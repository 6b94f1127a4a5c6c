"""``python -m locigraph COMMAND``, which the ``locigraph`` command runs too."""

import sys


def main() -> None:
    """Run a command; an interrupt is one line and exit code 2, also while the program is still being loaded."""
    try:
        from locigraph.scripts import cli
    except KeyboardInterrupt:
        print("locigraph: interrupted before it began", file=sys.stderr)
        raise SystemExit(2) from None
    cli.main()


if __name__ == "__main__":
    main()
