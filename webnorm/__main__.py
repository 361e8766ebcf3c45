"""`python -m webnorm` is the `webnorm` command."""

from webnorm.cli.app import run

if __name__ == "__main__":
    run()
