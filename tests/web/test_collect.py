"""The posts that the collector accepts, refuses and stores."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from commands import webnorm
from patience import HANG_S
from webnorm.choice import tuning
from webnorm.errors import WebnormError
from webnorm.lab.results import result_files
from webnorm.web.collection.collector import MOST_BYTES, AllowedOrigins, Collector, RateLimits
from webnorm.web.collection.visit_store import VisitStore, check_store, visits

PORT = 8377
ORIGIN = "https://lab.example"
ADDRESS = "203.0.113.77"
RESULT = {
    "op": "layer_norm",
    "kernel": "registers",
    "constants": {"threads_per_row": 64},
    "problem": {
        "rows": 4096,
        "cols": 1024,
        "dtype": "float32",
        "eps": 1e-5,
        "distribution": "normal",
        "seed": 0,
        "scale": 1,
        "options": {"weight": True, "bias": True},
    },
    "status": "pass",
    "max_abs_error": 9e-7,
    "median_ns": 400000,
    "p20_ns": 390000,
    "p80_ns": 410000.5,
    "samples_ns": [390000, 400000, 410000.5],
    "timing_method": "timestamp",
    "cache": "cold",
    "bytes": 33554432,
    "gbps": 83.9,
    "percent_of_copy": 97.5,
    "flags": ["few samples"],
}
SKIPPED = {name: RESULT[name] for name in ("op", "kernel", "constants", "problem")} | {"status": "skip"}
VISIT = {
    "schema": 1,
    "webnorm": "0.1.0",
    "device": {
        "adapter": "apple m2",
        "vendor": "apple",
        "driver": "Chrome 140",
        "backend": "WebGPU",
        "type": "GPU",
    },
    "results": [RESULT, {**RESULT, "kernel": "one_pass", "status": "fail", "max_abs_error": "nan"}],
}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def error(self) -> str:
        error: str = json.loads(self.text)["error"]
        return error


def asked(
    collector: Collector,
    body: bytes | list[bytes] | dict[str, Any],
    method: str = "POST",
    client: str = ADDRESS,
    **headers: str | None,
) -> Answer:
    """Return the collector's answer. A body in pieces has no length; pieces that were read are removed."""
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    pieces = [content] if isinstance(content, bytes) else content
    usual = {"host": f"127.0.0.1:{PORT}", "origin": ORIGIN, "content-type": "application/json"}
    if isinstance(content, bytes):
        usual["content-length"] = str(len(content))
    given = {**usual, **{name.replace("_", "-"): text for name, text in headers.items()}}
    scope = {
        "type": "http",
        "method": method,
        "path": "/",
        "query_string": b"",
        "headers": [
            (name.encode(), text.encode("latin-1")) for name, text in given.items() if text is not None
        ],
        "client": (client, 50000),
    }
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        said.append(message)

    asyncio.run(collector(scope, receive, send))
    head, *rest = said
    return Answer(
        head["status"],
        {name.decode(): text.decode() for name, text in head["headers"]},
        b"".join(one["body"] for one in rest).decode(),
    )


@pytest.fixture
def store(tmp_path: Path) -> VisitStore:
    return VisitStore(tmp_path / "visits.sqlite", 1 << 20)


def collector_of(store: VisitStore, each: int = 1000, every: int = 1000, *, proxy: bool = False) -> Collector:
    return Collector(store, AllowedOrigins([ORIGIN]), RateLimits(each, every), None if proxy else PORT)


@pytest.fixture
def collector(store: VisitStore) -> Collector:
    return collector_of(store)


def changed(change: Callable[[Any], object]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(VISIT))
    change(data)
    return data


# --- storing ----------------------------------------------------------------------------------------


def test_a_visit_is_stored_once_and_without_the_visitors_address(
    collector: Collector, store: VisitStore
) -> None:
    first = asked(collector, VISIT)
    assert (first.status, json.loads(first.text)) == (201, {"told": "stored, thank you"})
    assert first.headers["access-control-allow-origin"] == ORIGIN
    # The second post has the same content in another notation.
    again = asked(collector, json.dumps(VISIT, indent=3, sort_keys=True).encode(), client="198.51.100.2")
    assert (again.status, json.loads(again.text)["told"]) == (200, "these results are stored already")
    (kept,) = visits(store.path)
    assert json.loads(kept.content) == VISIT and kept.origin == "visitor"
    assert time.strftime("%Y-%m-%d", time.gmtime()) <= kept.received < "2100"
    raw = store.path.read_bytes()
    assert ADDRESS.encode() not in raw and b"198.51.100" not in raw and ORIGIN.encode() not in raw
    assert [one.name for one in store.path.parent.iterdir()] == [store.path.name]
    assert str(collector.tally) == "2 posts received: 1 stored, 1 stored before, 0 refused"


def test_several_processes_write_one_store(store: VisitStore) -> None:
    """Each process adds its own and shared contents, and no write fails because of a lock."""
    script = (
        "import sys; from pathlib import Path; from webnorm.web.collection.visit_store import VisitStore\n"
        f"store = VisitStore(Path({str(store.path)!r}), 1 << 20)\n"
        "for at in range(20): store.add(f'{{}} {at} {sys.argv[1] if at % 2 else 0}', 'visitor')"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, str(number)]) for number in (1, 2)]
    assert [one.wait(HANG_S) for one in running] == [0, 0]
    assert len(list(visits(store.path))) == 10 + 2 * 10


def test_exported_visits_are_read_by_compare_but_never_choose_kernels(
    collector: Collector, store: VisitStore, tmp_path: Path, mistake: Callable[[list[str]], str]
) -> None:
    asked(collector, VISIT)
    done = webnorm(["collect", "--store", store.path.name, "--export", "out"], tmp_path)
    assert done.stdout == "out: 1 visit, one file each\n" and done.returncode == 0, done.stderr
    (file,) = (tmp_path / "out").iterdir()
    assert json.loads(file.read_text())["origin"] == "visitor"
    report = result_files.read(file)
    assert report.results[0].samples_ns == (390000, 400000, 410000.5)
    compared = webnorm(["compare", str(file), str(file)], tmp_path)
    assert compared.returncode == 0 and "SAME: the samples are identical" in compared.stdout
    for path in (file, store.path):
        with pytest.raises(WebnormError):
            tuning.read(path)
    assert "visits.sqlite" in mistake(["compare", store.path.name, store.path.name])
    assert "--export visits.sqlite: cannot create the folder: File exists" in mistake(
        ["collect", "--store", store.path.name, "--export", store.path.name]
    )
    assert "no such store" in mistake(["collect", "--store", "none", "--export", "more"])
    assert not (tmp_path / "more").exists()


# --- refusing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(address="1"), "address is unknown; expected schema, webnorm, device"),
        (lambda data: data["device"].update(limits={}), "device.limits is unknown; expected adapter, "),
        (lambda data: data["device"].update(adapter="a\x1b[2J"), "device.adapter is 'a\\x1b[2J'; expected "),
        (lambda data: data["device"].update(adapter="x" * 201), "device.adapter is 'xxx"),
        (lambda data: data["device"].pop("type"), "device.type is missing"),
        (lambda data: data["device"].update(type="TPU"), "device.type is 'TPU'; expected CPU, GPU"),
        (lambda data: data["results"].clear(), "results is []; expected "),
        (lambda data: data.update(results=[SKIPPED] * 501), "results is [{"),
        (lambda data: data["results"][0].update(gbps=-1), "results[0].gbps is -1; expected "),
        (lambda data: data["results"][0].update(median_ns=1e300), "results[0].median_ns is 1e+300; "),
        (lambda data: data["results"][0].update(samples_ns=[0]), "results[0].samples_ns[0] is 0; "),
        (
            lambda data: data["results"][0].update(op="mish"),
            "unknown op 'mish'; expected one of ",
        ),
        (lambda data: data["results"][0].update(reason="x"), "results[0].reason is unknown; expected op, "),
        (lambda data: data["results"][1]["problem"].update(rows="1"), "results[1].problem.rows is '1'; "),
        (
            lambda data: data["results"][1]["problem"]["options"].update(a=1),
            "results[1].problem: the problem ",
        ),
        (lambda data: data.update(schema=2), "schema is 2; expected 1"),
    ],
)
def test_a_post_of_another_form_is_refused_in_a_line(
    change: Callable[[Any], object], message: str, collector: Collector, store: VisitStore
) -> None:
    answer = asked(collector, changed(change))
    assert answer.status == 400 and answer.error.startswith(f"the body: {message}"), answer.error
    assert "\n" not in answer.error and len(answer.error) <= 2000
    assert list(visits(store.path)) == []


def test_garbage_is_refused_and_never_fails(collector: Collector, store: VisitStore) -> None:
    seen = random.Random(7)
    whole = json.dumps(VISIT).encode()
    bodies = [b"", b"null", b"[]", b"[" * 5000, b'{"schema": 1e999}', b'"\\ud800"', b"\xff\xfe", b"9" * 5000]
    for _ in range(150):
        at = seen.randrange(len(whole))
        bodies.append(whole[:at] + bytes([seen.randrange(256)]) + whole[at + seen.randrange(1, 30) :])
    for body in bodies:
        answer = asked(collector, body)
        # A digit may become another one.
        assert answer.status in (400, 200, 201), (body, answer)
        assert answer.status != 400 or ("\n" not in answer.error and answer.error)
    assert collector.tally.refused > 100


def test_a_body_is_bounded_before_it_is_read(collector: Collector, store: VisitStore) -> None:
    error = f"the body is larger than {MOST_BYTES} bytes"
    for length in (str(MOST_BYTES + 1), "9" * 30, "-1", "1e3", "²".encode().decode("latin-1")):
        answer = asked(collector, b"", content_length=length)
        assert (answer.status, answer.error) == (413, error)
    pieces = [b" " * (64 << 10)] * 100
    answer = asked(collector, pieces)
    assert (answer.status, answer.error) == (413, error) and len(pieces) == 95
    assert list(visits(store.path)) == []


def test_rates_are_of_a_client_and_of_all(store: VisitStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("webnorm.web.collection.collector.time.monotonic", lambda: now)
    collector = collector_of(store, each=2, every=3)
    assert [asked(collector, VISIT).status for _ in range(3)] == [201, 200, 429]
    assert asked(collector, VISIT, client="2001:db8::1").status == 200
    late = asked(collector, VISIT, client="198.51.100.9")
    assert late.status == 429 and late.error == "too many posts; try again in 3600 s"
    assert late.headers["retry-after"] == "3600"
    # Refused posts are not counted, so a client cannot block others by asking.
    now = 3600.0
    assert asked(collector, VISIT).status == 200


def test_a_client_is_a_network_and_only_its_hash_is_stored() -> None:
    known = RateLimits(1, 10)
    assert known.wait_s("2001:db8::1") == 0 and known.wait_s("2001:db8::2") > 0
    assert known.wait_s("::ffff:203.0.113.77") == 0 and known.wait_s(ADDRESS) > 0
    held = repr(vars(known))
    assert ADDRESS not in held and "2001" not in held
    assert RateLimits(1, 1)._client(ADDRESS) != known._client(ADDRESS)


def test_behind_a_proxy_the_proxy_names_the_client(store: VisitStore) -> None:
    behind, direct = collector_of(store, each=1, proxy=True), collector_of(store, each=1)
    for collector, second in ((behind, 200), (direct, 429)):
        assert asked(collector, VISIT, x_forwarded_for="10.0.0.1, 198.51.100.1").status in (200, 201)
        # Only the address that the proxy added counts; without a proxy the header is ignored.
        assert asked(collector, VISIT, x_forwarded_for="10.0.0.1, 198.51.100.2").status == second
    assert asked(behind, VISIT, x_forwarded_for="10.9.9.9, 198.51.100.2").status == 429
    assert asked(behind, VISIT, host="lab.example", x_forwarded_for="198.51.100.3").status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": None}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": f"{ORIGIN}.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": None}, 403),
        # A form of another site can be sent without a preflight.
        ({"content_type": "text/plain"}, 415),
        ({"content_type": None}, 415),
        ({"content_type": "application/json; charset=utf-8"}, 201),
        ({"host": f"localhost:{PORT}"}, 201),
    ],
)
def test_allowed_hosts_origins_and_types(headers: dict[str, Any], status: int, collector: Collector) -> None:
    answer = asked(collector, VISIT, **headers)
    assert answer.status == status
    # The page needs this header to read the reason.
    admitted = headers.get("origin", ORIGIN) == ORIGIN
    assert ("access-control-allow-origin" in answer.headers) == admitted


def test_a_preflight_is_answered_for_the_lab_alone(collector: Collector) -> None:
    answer = asked(collector, b"", "OPTIONS", access_control_request_method="POST")
    assert answer.status == 204 and answer.headers["access-control-allow-methods"] == "POST"
    assert answer.headers["access-control-allow-headers"] == "Content-Type"
    assert "access-control-allow-credentials" not in answer.headers
    other = asked(collector, b"", "OPTIONS", origin="https://evil.example")
    assert other.status == 403 and "access-control-allow-origin" not in other.headers
    assert asked(collector, b"", "GET").status == 405


def test_without_an_origin_pages_of_this_machine_may_post() -> None:
    usual = AllowedOrigins([])
    for origin in ("http://localhost:8000", "http://127.0.0.1", "https://[::1]:3"):
        assert usual.admit(origin)
    for origin in ("https://lab.example", "http://localhost.evil.example", "http://127.0.0.1:8@evil", "null"):
        assert not usual.admit(origin)
    assert AllowedOrigins(["https://LAB.example:443/"]).admit(ORIGIN)


# --- a store that cannot be written -----------------------------------------------------------------


def test_a_store_that_is_full_busy_or_read_only_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: Callable[[list[str]], str]
) -> None:
    path = tmp_path / "visits.sqlite"
    collector = collector_of(VisitStore(path, 1 << 15))
    device = VISIT["device"]
    assert isinstance(device, dict)
    statuses = [
        asked(collector, {**VISIT, "device": {**device, "vendor": str(at)}}).status for at in range(30)
    ]
    assert statuses[0] == 201 and statuses[-1] == 507
    assert len(list(visits(path))) == statuses.count(201)
    full = asked(collector, VISIT)
    assert full.error == "nothing was stored: the store is full"
    before = path.read_bytes()
    monkeypatch.setattr("webnorm.web.collection.visit_store._PATIENCE_S", 0.01)
    with sqlite3.connect(path) as other:
        other.execute("BEGIN EXCLUSIVE")
        busy = asked(collector, VISIT)
        assert (busy.status, busy.error) == (503, "nothing was stored: the store cannot be written now")
        other.rollback()
    path.chmod(0o444)
    assert asked(collector, VISIT).status == 503
    assert "visits.sqlite cannot be written: it is read-only" in mistake(["collect", "--store", path.name])
    path.chmod(0o644)
    assert path.read_bytes() == before
    path.unlink()
    assert asked(collector, VISIT).status == 503 and not path.exists()


def test_a_file_that_is_not_a_store_stays_unchanged(
    tmp_path: Path, mistake: Callable[[list[str]], str]
) -> None:
    foreign, text, later = (tmp_path / name for name in ("foreign", "text", "later"))
    with sqlite3.connect(foreign) as other:
        other.execute("CREATE TABLE visits (id)")
    other.close()
    text.write_text("mine")
    VisitStore(later, 1 << 20)
    with sqlite3.connect(later) as other:
        other.execute("PRAGMA user_version = 2")
    other.close()
    for path, message in (
        (foreign, "is not a store of visits and was not changed"),
        (text, "is not a store of visits and was not changed"),
        (later, "is a store of version 2; this webnorm reads version 1"),
        (tmp_path, "is not a regular file"),
    ):
        before = None if path.is_dir() else path.read_bytes()
        assert message in mistake(["collect", "--store", str(path), "--port", "0"])
        assert path.is_dir() or path.read_bytes() == before
    (tmp_path / "empty").touch()
    assert check_store(tmp_path / "empty") and VisitStore(tmp_path / "empty", 1 << 20).add("{}", "visitor")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--store is missing; expected a file for the visits"),
        (
            ["--store", "v", "--host", "0.0.0.0"],
            "--host is '0.0.0.0'; expected 127.0.0.1 or ::1, or --behind",
        ),
        (["--store", "v", "--behind-proxy"], "--behind-proxy needs --origin"),
        (
            ["--store", "v", "--origin", "lab.example"],
            "--origin is 'lab.example'; expected the origin of a page",
        ),
        (
            ["--store", "v", "--origin", "https://a.b/c"],
            "--origin is 'https://a.b/c'; expected the origin of",
        ),
        (["--store", "none/v", "--port", "0"], "none/v cannot be written: unable to open database file"),
    ],
)
def test_mistakes_are_a_line(words: list[str], message: str, mistake: Callable[[list[str]], str]) -> None:
    assert message in mistake(["collect", *words])


# --- a process --------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_the_command_serves_until_ctrl_c_and_logs_no_visitor(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "webnorm", "collect", "--store", "visits.sqlite", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[3]
        assert (
            process.stdout.readline() == "Pages that may post: pages of this machine. Press Ctrl-C to stop.\n"
        )
        heads = {"Origin": "http://localhost:8000", "Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(VISIT).encode(), heads)
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            assert answer.status == 201 and "server" not in answer.headers
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(url, b"{}"), timeout=HANG_S)
        process.send_signal(signal.SIGINT)
        said, complaint = process.communicate(timeout=HANG_S)
    assert said == ""
    assert complaint == "webnorm: interrupted; 2 posts received: 1 stored, 0 stored before, 1 refused\n"
    assert process.returncode == 130
