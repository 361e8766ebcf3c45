"""Write docs/meanings.md's table: torch's and ONNX's public cases, computed by webnorm.

python -m bench.meanings [--adapter ADAPTER]            compute the cases and print the table
python -m bench.meanings [--adapter ADAPTER] --write    write the table between the page's markers

It needs the package onnx, but not torch.
"""

from __future__ import annotations

import os

from bench.arguments import bare_parser
from bench.meanings.table import PAGE, page_with, table_of
from bench.meanings.table import results as computed
from webnorm.files.atomic import write_text


def main() -> None:
    """Print or write the table."""
    parser = bare_parser(__doc__, "python -m bench.meanings")
    parser.add_argument("--adapter", help="index or part of the name of the adapter")
    parser.add_argument("--write", action="store_true", help="write the table into docs/meanings.md")
    given = parser.parse_args()
    if given.adapter:
        os.environ["WEBNORM_ADAPTER"] = given.adapter
    table = table_of(computed())
    if given.write:
        write_text(PAGE, page_with(table))
    else:
        print(table)


if __name__ == "__main__":
    main()
