"""`webnorm verify --lan`: the address of the page, as text and as a QR code, for a person with a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.text import Text

from webnorm.cli.terminal.screen import Screen, escaped_line

if TYPE_CHECKING:
    from webnorm.web.browser.lan_visits import Invitation, LanVisitor

# Two modules of a code, one above the other, by whether they are dark.
_HALVES = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
# Cameras expect dark modules on a light ground, whatever the terminal's colours.
_INK = "black on bright_white"
_WARNING = (
    "The browser warns about the certificate, which this run made for itself. Continue: in Safari Show "
    "Details and visit this website, in Chrome Advanced and Proceed, in Firefox Advanced and Accept the Risk."
)


@contextmanager
def lan_visitor(
    host: str | None,
    port: int,
    time_limit_s: float | None,
    update: Callable[[str | None, float | None], None],
) -> Iterator[LanVisitor]:
    """Open a visitor that prints its invitation once it listens. Raises WebnormError if it cannot listen."""
    from webnorm.web.browser import lan
    from webnorm.web.browser.lan_visits import LanVisitor

    console = Screen()
    segno = lan.qr_codes() if shows_codes(console) else None

    def invite(invitation: Invitation) -> None:
        update(None, None)
        show_invitation(console, invitation, segno)

    with LanVisitor(invite, update, host=host, port=port, time_limit_s=time_limit_s) as visitor:
        yield visitor


def show_invitation(console: Screen, invitation: Invitation, segno: Any) -> None:
    """Print the addresses, the certificate's fingerprint, and a code of the first address, given segno."""
    first, *others = invitation.urls
    console.print("Open this page in the phone's browser. The phone must be in the same network:")
    for line in (f"  {first}", *(f"  or {url}" for url in others)):
        console.print(escaped_line(line), soft_wrap=True)
    if segno is not None:
        code = Text("\n").join(_code_lines(segno.make_qr(first, error="l").matrix_iter()))
        if len(code.plain.partition("\n")[0]) <= console.width:
            console.print(code)
    console.print(_WARNING, soft_wrap=True)
    console.print("The certificate's SHA-256 fingerprint:")
    console.print(f"  {invitation.fingerprint}", soft_wrap=True)
    limit = f"{invitation.time_limit_s:g} s"
    console.print(f"Waiting for the page's report, at most {limit}. Press Ctrl-C to stop.", soft_wrap=True)
    # The reader of a pipe needs the address now.
    console.file.flush()


def shows_codes(console: Screen) -> bool:
    """Return whether the console can show dark on light, in blocks of half a character's height."""
    try:
        "".join(_HALVES.values()).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return console.is_terminal and console.color_system is not None and not console.no_color


def _code_lines(rows: Iterator[Sequence[int]]) -> Iterator[Text]:
    upper: Sequence[int]
    for upper in rows:
        lower = next(rows, [0] * len(upper))
        blocks = (_HALVES[bool(above), bool(below)] for above, below in zip(upper, lower, strict=True))
        yield Text("".join(blocks), _INK)
