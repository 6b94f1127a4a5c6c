"""Entry point of ``python -m locigraph COMMAND`` and of the ``locigraph`` command."""

import sys


def main() -> None:
    """Run a command. An interrupt prints one line and exits with code 2, even while modules are being imported."""
    try:
        from locigraph.scripts import cli
    except KeyboardInterrupt:
        print("locigraph: interrupted before the command started", file=sys.stderr)
        raise SystemExit(2) from None
    cli.main()


if __name__ == "__main__":
    main()
