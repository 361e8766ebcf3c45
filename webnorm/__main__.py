"""`python -m webnorm` is the `webnorm` command."""

from webnorm.cli import run

if __name__ == "__main__":
    run()
