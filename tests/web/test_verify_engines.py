"""`webnorm verify --engine`: engines without a driver report, or their failure is one line.

The fake engines here are scripts that get the page's address, as a browser does.
"""

from __future__ import annotations

import http.client
import json
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from packages import Export
from test_verify import report, reporting, write
from test_verify_lab import REPORTING, RIGHT, result
from test_verify_lab import report as lab_report
from test_verify_lab import write as write_lab

import dawn
from commands import webnorm
from headless import needs_tint
from pages import ROOT
from patience import HANG_S, all_end
from webnorm.engines.catalog import PORTABLE, Engine, engine_fix, find_engine
from webnorm.engines.launch import start_engine
from webnorm.errors import WebnormError
from webnorm.op.registry import OPS
from webnorm.serving import POLICY
from webnorm.web import tint, verify
from webnorm.web.browser import engine_visits, report_site
from webnorm.web.browser.engine_visits import EngineVisitor
from webnorm.web.lab_site import ExportedLab, read_lab

# Everything that a fake engine needs. It also starts a child, which must not outlive it.
FAKE = """#!{python}
import json, os, signal, subprocess, sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import Request, urlopen

url = sys.argv[1]
if url == "--version":
    sys.exit(print("Fake 1.2.3"))
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
Path({pids!r}).write_text(f"{{os.getpid()}} {{child.pid}}")

def post(data):
    urlopen(Request(urljoin(url, "report"), json.dumps(data).encode(), method="POST"))

def say(report=None, failure=None, errors=()):
    post({{"report": report, "failure": failure, "errors": list(errors)}})

{script}
signal.pause()
"""


class Fakes:
    """Fake engines in a folder, and the ids of their processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, name: str, script: str) -> str:
        """Write an engine that runs a script, and return it as a value of --engine."""
        path = self.folder / name
        pids = str(self.folder / f"{name}.pids")
        path.write_text(FAKE.format(python=sys.executable, pids=pids, script=script))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return f"{path} {{url}}"

    def engine(self, name: str, script: str) -> Engine:
        return find_engine(self.command(name, script))

    @property
    def pids(self) -> list[int]:
        return [int(pid) for path in self.folder.glob("*.pids") for pid in path.read_text().split()]


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fakes]:
    """Fake engines that must leave no process and no temporary folder behind."""
    (tmp_path / "engines").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    made = Fakes(tmp_path / "engines")
    yield made
    all_end(made.pids)
    assert [*(tmp_path / "temporary").iterdir()] == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "package", reporting(report()))


def visit(engine: Engine, folder: Path, **options: Any) -> Any:
    return EngineVisitor(engine, HANG_S).visit(folder, **options)


# --- fake engines ------------------------------------------------------------------------------------


def test_an_engine_reports(fakes: Fakes, folder: Path) -> None:
    script = "say([url.rpartition('/')[2]], errors=['first\\nsecond', 'third'])"
    found = visit(fakes.engine("fake", script), folder, query="?quick")
    assert found.report == ["verify.html?quick"]
    assert found.remarks == ("first", "third")
    assert found.browser.endswith("fake 1.2.3")


def test_the_page_has_the_script_that_reports(fakes: Fakes, folder: Path) -> None:
    """The script comes before all others, and the folder does not contain it."""
    script = """
page = urlopen(url).read().decode()
source = page.partition('<script src="')[2].partition('"')[0]
say([page.replace(f'<script src="{source}"></script>', ""), urlopen(urljoin(url, source)).read().decode()])
"""
    page = folder / "verify.html"
    page.write_text(page.read_text().replace("<title>", "<head><title>"))
    shown, reporter = visit(fakes.engine("fake", script), folder).report
    assert shown == page.read_text()
    assert "webnormReport" in reporter
    assert not [path for path in folder.rglob("*") if path.is_file() and reporter == path.read_text()]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "child.kill(); sys.exit('Error: no display')",
            r"ended while it ran verify.html: exit status 1: Error: no display",
        ),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            r"ended while it ran verify.html: exit status \d+",
        ),
        (
            "urlopen(urljoin(url, 'gone.js'))",
            r"verify.html requests /gone.js, which is missing; export again",
        ),
        (
            "say(failure=f'TypeError: no ({urljoin(url, chr(112))}:1:7)')",
            r"verify.html failed: TypeError: no \(p:1:7\)",
        ),
    ],
)
def test_an_engine_that_does_not_report(script: str, message: str, fakes: Fakes, folder: Path) -> None:
    with pytest.raises(WebnormError, match=f"{message}$"):
        visit(fakes.engine("fake", script), folder)


def test_an_engine_that_hangs_is_ended(fakes: Fakes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over once the engine runs, however long that takes."""
    engine = fakes.engine("fake", "")
    monkeypatch.setattr(engine_visits, "monotonic", lambda: 9.0 if fakes.pids else 0.0)
    with pytest.raises(WebnormError, match=r"^verify.html did not report within 7 s in .*fake: stopped$"):
        EngineVisitor(engine, 7).visit(folder)


def test_ctrl_c_ends_the_engine(fakes: Fakes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> float:
        if fakes.pids:
            raise KeyboardInterrupt
        return 0.0

    monkeypatch.setattr(engine_visits, "monotonic", interrupted)
    with pytest.raises(KeyboardInterrupt):
        visit(fakes.engine("fake", ""), folder)


# Opens one page after the other, as a browser does with the answers to its reports. Each reports its address.
FOLLOWING = """
Path("STARTS").open("a").write("started\\n")
while True:
    data = {"report": [url.rpartition("/")[2]], "failure": None, "errors": []}
    THEN
    answer = urlopen(Request(urljoin(url, "report"), json.dumps(data).encode(), method="POST"))
    if answer.status != 200:
        break
    url = urljoin(url, answer.read().decode())
"""


def following(fakes: Fakes, then: str = "") -> tuple[Engine, Path]:
    """Return a fake engine that opens one page after the other, and the file of its starts."""
    starts = fakes.folder / "starts"
    script = FOLLOWING.replace("STARTS", str(starts)).replace("THEN", then)
    return fakes.engine("fake", script), starts


def test_an_engine_starts_once_for_all_queries(fakes: Fakes, folder: Path) -> None:
    engine, starts = following(fakes)
    found = [*EngineVisitor(engine, HANG_S).visits(folder, ["?a", "?b", "?c"])]
    assert [one.report for one in found] == [["verify.html?a"], ["verify.html?b"], ["verify.html?c"]]
    assert starts.read_text() == "started\n"


def test_the_engine_ends_with_the_visits(fakes: Fakes, folder: Path) -> None:
    engine, _ = following(fakes)
    with closing(EngineVisitor(engine, HANG_S).visits(folder, ["?a", "?b"])) as visits:
        assert next(visits).report == ["verify.html?a"]
    all_end(fakes.pids)


@pytest.mark.parametrize(
    ("then", "message"),
    [
        ("child.kill(); sys.exit('gone')", "ended while it ran verify.html: exit status 1: gone"),
        ("data['failure'] = 'no'", "verify.html failed: no"),
        ("signal.pause()", "verify.html did not report within 7 s in .*fake: stopped"),
    ],
)
def test_a_later_page_that_does_not_report(
    then: str, message: str, fakes: Fakes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each report has a time limit of its own: the first limit is over when the second begins."""
    monkeypatch.setattr(engine_visits, "monotonic", lambda: 0.0)
    engine, _ = following(fakes, f"if url.endswith('?b'): {then}")
    visits = EngineVisitor(engine, 7).visits(folder, ["?a", "?b"])
    assert next(visits).report == ["verify.html?a"]
    times = chain([8.0], repeat(16.0 if "pause" in then else 14.0))
    monkeypatch.setattr(engine_visits, "monotonic", lambda: next(times))
    with pytest.raises(WebnormError, match=f"{message}$"):
        next(visits)


def test_an_engine_takes_no_picture(fakes: Fakes, folder: Path) -> None:
    with pytest.raises(WebnormError, match="gives no picture of its page; leave --screenshot out"):
        visit(fakes.engine("fake", ""), folder, screenshot=True)


def test_a_package_of_an_older_version_has_no_check_for_a_script(folder: Path) -> None:
    engine = Engine("deno", "Deno", Path(sys.executable), is_browser=False)
    expected = r"page/verify_package.js: the file is missing, which Deno runs; export again"
    with pytest.raises(WebnormError, match=expected):
        visit(engine, folder)


# --- the command -------------------------------------------------------------------------------------


@needs_tint
def test_one_status_for_all_engines(fakes: Fakes, folder: Path, tmp_path: Path) -> None:
    right = fakes.command("right", f"say(json.loads({json.dumps(report())!r}))")
    vectors = [{"name": "mixed", "verdict": "fail", "max_abs_error": 1.0, "reason": "y[0] is 1"}]
    wrong = fakes.command("wrong", f"say(json.loads({json.dumps(report(vectors=vectors))!r}))")
    refused = fakes.command("refused", "say({'error': 'No WebGPU here.'})")
    crashed = fakes.command("crashed", "child.kill(); sys.exit('gone')")

    def run(*engines: str) -> Any:
        words = [word for engine in engines for word in ("--engine", engine)]
        return webnorm(["verify", str(folder), *words, "--time-limit", str(HANG_S)], tmp_path)

    done = run(right)
    assert (done.returncode, done.stderr) == (0, "")
    assert "pass  right: 2 of 2 shaders run here, 2 of them right" in done.stdout
    done = run(crashed, refused, right)
    assert done.returncode == 3
    assert "skip  refused: verify.html could not check: No WebGPU here." in done.stdout
    assert "crashed ended while it ran verify.html: exit status 1: gone" in done.stdout
    assert "pass  right: " in done.stdout
    assert done.stderr == "webnorm: skipped: crashed, refused\n"
    done = run(wrong, crashed, right)
    assert done.returncode == 1
    assert "FAIL  wrong: 2 of 2 shaders run here, 1 of them right" in done.stdout


@needs_tint
def test_a_shader_must_run_in_one_of_the_engines(fakes: Fakes, folder: Path, tmp_path: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    for shader in manifest["shaders"]:
        shader["native"] = {"verdict": "skip", "reason": "no adapter"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    here = report()
    here["shaders"][1] = here["shaders"][1] | {"skipped": "needs subgroups", "vectors": []}
    some = fakes.command("some", f"say(json.loads({json.dumps(here)!r}))")
    every = fakes.command("every", f"say(json.loads({json.dumps(report())!r}))")
    done = webnorm(["verify", str(folder), "--engine", some], tmp_path)
    text = "skip  answers: second: not run, neither natively at the export nor in any of these engines"
    assert done.returncode == 3 and text in done.stdout
    done = webnorm(["verify", str(folder), "--engine", some, "--engine", every], tmp_path)
    assert done.returncode == 0 and "answers" not in done.stdout


def test_all_engines_name_the_missing_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Engine:
        raise WebnormError(f"--engine {name}: No {name}; `webnorm doctor --fix --engine {name}` installs it")

    monkeypatch.setattr(verify, "installed_engines", list)
    monkeypatch.setattr(verify, "find_engine", missing)
    steps = {one.step: one for one in verify.verify(folder, engines=["all"], update=lambda *_: None)}
    for name in ("chromium", "firefox", "node", "deno"):
        assert steps[name].passed is None
        assert steps[name].text == f"No {name}; `webnorm doctor --fix --engine {name}` installs it"
    assert {"edge", "safari", "browser"}.isdisjoint(steps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--engine", "opera"), "engine"),
        (("--engine", "not-there {url}"), "no program not-there"),
        (("--engine", "node", "--screenshot", "page.png"), "--screenshot and --engine cannot be combined"),
        (("--engine", "node", "--browser", "chromium"), "--browser and --engine cannot be combined"),
    ],
)
def test_a_wrong_command(options: tuple[str, ...], message: str, folder: Path, tmp_path: Path) -> None:
    done = webnorm(["verify", str(folder), *options], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_scripts_open_no_lab(tmp_path: Path) -> None:
    lab = ExportedLab(tmp_path, {"schema": 1, "files": {}, "bundles": []}, {})
    engine = Engine("node", "node", Path(sys.executable), is_browser=False)
    (step,) = verify._in_engines(lab, [engine], HANG_S, verify.PLAIN, lambda *_: None)
    assert (step.step, step.passed) == ("node", None)
    assert step.text == "a lab is a page, and node opens no pages"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_a_browser_starts_once_for_a_lab(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, starts = installed(name), list[str]()

    def start(engine: Engine, url: str, *words: Any) -> Any:
        starts.append(url)
        return start_engine(engine, url, *words)

    monkeypatch.setattr(engine_visits, "start_engine", start)
    reports = {"8": lab_report(*RIGHT), "16": lab_report(result("rms_norm", "one"))}
    lab = read_lab(write_lab(tmp_path / "lab", REPORTING % json.dumps(reports)))
    steps = [*verify._in_engines(lab, [engine], HANG_S, verify.PLAIN, lambda *_: None)]
    assert [(step.passed, step.text) for step in steps] == [
        (True, "8 columns of float32: 3 of 3 kernels run here, 3 right"),
        (True, "16 columns of float32: 1 of 1 kernels run here, 1 right"),
    ]
    assert len(starts) == 1


# --- the server --------------------------------------------------------------------------------------

POSTED = json.dumps({"report": 1, "failure": None, "errors": []})


@pytest.fixture
def site(folder: Path) -> Iterator[report_site.ReportSite]:
    with report_site.report_site(folder, "verify.html", POLICY) as served:
        yield served


def ask(
    site: report_site.ReportSite, method: str, path: str, body: str = "", **headers: str
) -> tuple[int, bytes]:
    """Send a request to the server, and return the status and the body of its answer."""
    with closing(http.client.HTTPConnection(urlsplit(site.url).netloc, timeout=HANG_S)) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_only_the_page_can_report(site: report_site.ReportSite) -> None:
    own, path = urlsplit(site.url).netloc, urlsplit(site.url).path
    assert ask(site, "POST", "/report", POSTED)[0] == 404
    assert ask(site, "POST", "/wrong/report", POSTED)[0] == 404
    assert ask(site, "GET", "/verify.html")[0] == 404
    assert ask(site, "GET", f"{path}/report")[0] == 405
    assert ask(site, "POST", f"{path}/report", POSTED, Host="example.com")[0] == 403
    assert ask(site, "GET", f"{path}/verify.html", Host="example.com")[0] == 403
    assert ask(site, "POST", f"{path}/report", POSTED, Origin="https://example.com")[0] == 403
    assert ask(site, "POST", f"{path}/report", POSTED, Origin="null")[0] == 403
    assert ask(site, "POST", f"{path}/report", "[")[0] == 400
    assert ask(site, "POST", f"{path}/report", "[" * 10**5)[0] == 400
    assert ask(site, "POST", f"{path}/report", '{"report": 1}')[0] == 400
    assert not site.received.is_set()
    site.check_missing()
    assert ask(site, "POST", f"{path}/report", POSTED, Origin=f"http://{own}")[0] == 204
    assert ask(site, "POST", f"{path}/report", POSTED.replace("1", "2"))[0] == 409
    assert site.posted == [json.loads(POSTED)]


def test_the_answer_to_a_report_is_the_next_page(folder: Path) -> None:
    with report_site.report_site(folder, "verify.html", POLICY, ["?a", "?b", "?c"]) as site:
        path = f"{urlsplit(site.url).path}/report"
        assert ask(site, "POST", path, POSTED) == (200, b"verify.html?b")
        assert ask(site, "POST", path, POSTED.replace("1", "2")) == (200, b"verify.html?c")
        assert ask(site, "POST", path, POSTED) == (204, b"")
        assert ask(site, "POST", path, POSTED)[0] == 409
        assert [one["report"] for one in site.posted] == [1, 2, 1]


def test_no_page_follows_a_page_that_failed(folder: Path) -> None:
    with report_site.report_site(folder, "verify.html", POLICY, ["?a", "?b"]) as site:
        failed = json.dumps({"report": None, "failure": "no", "errors": []})
        assert ask(site, "POST", f"{urlsplit(site.url).path}/report", failed) == (204, b"")


def test_a_report_is_bounded(site: report_site.ReportSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_site, "_MOST_BYTES", len(POSTED) - 1)
    path = f"{urlsplit(site.url).path}/report"
    status, text = ask(site, "POST", path, POSTED)
    assert status == 413 and b"bytes" in text
    assert not site.received.is_set()
    monkeypatch.setattr(report_site, "_MOST_BYTES", len(POSTED))
    assert ask(site, "POST", path, POSTED)[0] == 204


# --- real engines ------------------------------------------------------------------------------------


def installed(name: str) -> Engine:
    """Return a real engine, or skip the test with the reason."""
    fix = engine_fix(name)
    reason = fix.missing if fix else dawn.missing() if name == "node" else None
    if reason is not None:
        pytest.skip(reason)
    return find_engine(name)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give node a software driver that Dawn accepts; the others have one or find Mesa's."""
    for name, value in dawn.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Export("layer_norm", (64,), "float16").write(tmp_path_factory.mktemp("package") / "ln")


@pytest.mark.vulkan
@needs_tint
@pytest.mark.parametrize("name", ["chromium", "firefox", "node", "deno"])
def test_a_package_in_a_real_engine(
    name: str, package: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    engine = installed(name)
    if name == "node":
        request.getfixturevalue("driver")
    done = webnorm(["verify", str(package), "--engine", name, "--time-limit", str(HANG_S)], tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"pass  {name}: " in done.stdout
    assert f"\n{engine} {engine.version}, " in done.stdout
    assert "console" not in done.stdout


GALLERY = ROOT / "examples" / "ops"
# Small sizes for an export of each op; odd ones where the op admits them.
SIZES = {
    "layer_norm": "--cols 77",
    "layer_norm_backward": "--cols 320",
    "rms_norm": "--cols 1000",
    "rms_norm_backward": "--cols 257",
    "argmax": "--cols 512",
    "cross_entropy": "--size classes=1000",
    "cross_entropy_backward": "--size classes=1000",
    "cumulative_sum": "--cols 1000",
    "depthwise_conv1d": "--size channels=64 --size length=128 --size taps=4",
    "gelu": "--cols 1000",
    "matvec_int4": "--size k=512",
    "matvec_int8": "--size k=512",
    "rope": "--size heads=4 --size head_dim=64",
    "swiglu": "--cols 1000",
}


def test_each_op_has_a_size() -> None:
    gallery = {path.parent.name for path in GALLERY.glob("*/op.py")}
    assert {*SIZES} == gallery | {name for name, op in OPS.items() if not op.is_copy and op.source is None}


@pytest.mark.slow
@needs_tint
@pytest.mark.parametrize("op", SIZES)
def test_an_export_is_right_in_every_engine(op: str, tmp_path: Path) -> None:
    names = [name for name in PORTABLE if engine_fix(name) is None]
    if len(names) < len(PORTABLE):
        pytest.skip(f"only {', '.join(names)} are installed, of {', '.join(PORTABLE)}")
    own = str(GALLERY / op) if (GALLERY / op).exists() else op
    exported = webnorm(["export", own, *SIZES[op].split(), "--out", "dist"], tmp_path)
    assert exported.returncode == 0, exported.stderr
    words = ("verify", "dist", "--engine", "all", "--quick", "--time-limit", str(HANG_S))
    done = webnorm([*words], tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for name in names:
        assert f"pass  {name}: " in done.stdout


@pytest.mark.slow
def test_a_wrong_answer_in_node(package: Path, tmp_path: Path, driver: None) -> None:
    """The script compares outputs, rather than only running the shaders."""
    engine = installed("node")
    changed = Path(shutil.copytree(package, tmp_path / "changed"))
    index = (package / "index.js").read_text().replace("inverseSqrt(", "1.1 * inverseSqrt(")
    (changed / "index.js").write_text(index)
    found = visit(engine, changed, query="?quick").report
    assert "differs from the exported file" in found["error"]
    manifest = json.loads((package / "manifest.json").read_text())
    texts = tint.run_node("texts.mjs", changed / "index.js")
    for shader in manifest["shaders"]:
        shader["embedded_sha256"] = sha256(texts[shader["name"]].encode()).hexdigest()
    (changed / "manifest.json").write_text(json.dumps(manifest))
    found = visit(engine, changed, query="?quick").report
    assert found["error"] is None
    assert {one["verdict"] for one in found["shaders"] if one["skipped"] is None} == {"fail"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_a_page_in_a_real_browser(name: str, tmp_path: Path) -> None:
    engine = installed(name)
    script = """
console.error("oh\\nno", 1);
window.webnormReport = undefined;
window.webnormReport = { found: [Infinity, NaN, 1, location.search] };
"""
    found = visit(engine, write(tmp_path / "right", script), query="?quick")
    assert found.report == {"found": ["Infinity", "NaN", 1, "?quick"]}
    assert found.remarks == ("oh",)
    for wrong, message in (
        ("throw new TypeError('no\\nway');", r"TypeError: no \(page.js:1:\d+\)"),
        ("Promise.reject(new Error('late'));", r"Error: late \(page.js:1:\d+\)"),
        ("let = = 3;", r"SyntaxError: .*\(page.js:1:\d+\)"),
        ("import './gone.js';", None),
    ):
        expected = f"failed: {message}" if message else "requests /gone.js, which is missing; export again"
        with pytest.raises(WebnormError, match=rf"^verify.html {expected}$"):
            visit(engine, write(tmp_path / f"wrong-{len(wrong)}", wrong))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_a_page_that_does_not_start_says_so(name: str, package: Path, tmp_path: Path) -> None:
    """boot.js reports it, and its sentence is more helpful than the browser's."""
    engine = installed(name)
    changed = Path(shutil.copytree(package, tmp_path / "changed"))
    (changed / "page" / "verify.js").write_text("let = = 3;")
    found = visit(engine, changed)
    assert "verify.js did not load: " in found.report["error"]
