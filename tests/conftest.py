"""Fixtures and hooks that many tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

import commands
import tiers
import unhurried
from webnorm.cli.work.jobs import BAD_USAGE
from webnorm.errors import WebnormError
from webnorm.gpu.device import ADAPTER_VARIABLE, Device, adapters, find_adapter, open_device
from webnorm.op import registry

if TYPE_CHECKING:
    from clusters import Fleet

# Mesa takes most of the suite's time. Without LLVM's optimizations it compiles in three quarters of the time.
# The code is only a little slower on inputs this small. `GALLIVM_PERF= make test` runs the optimizations.
os.environ.setdefault("GALLIVM_PERF", "nopt")
# Neither an example nor its drawing has a time limit, because a machine may be busy.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of engines if the environment takes their driver away: they have no OpenGL."""
    files = os.environ.get("VK_DRIVER_FILES")
    gone = files is not None and not any(map(os.path.exists, files.split(os.pathsep)))
    if gone and item.get_closest_marker("vulkan"):
        reason = f"No Vulkan driver: VK_DRIVER_FILES is {files}, which does not exist."
        tiers.excuse("browser", "firefox", reason=reason)
        pytest.skip(reason)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run groups first, because the other processes wait for a group that starts last."""
    tiers.mark_slow(items)
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude the collected tests from garbage collection. Scanning them takes a tenth of Python's time."""
    # All processes collect the same tests, so one of them notes the rooms.
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        tiers.meet_rooms({item.path for item in session.items})
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--snapshot-update", action="store_true", help="write the rendered shaders anew")
    parser.addoption("--pictures", action="store_true", help="take the pictures of docs/playground.md anew")
    parser.addoption("--adapter", help="the adapter to test on, as `webnorm --adapter` takes it")


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment, which the commands and scripts of tests inherit."""
    # A shell's background jobs ignore Ctrl-C, and commands that tests interrupt would inherit this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chosen = config.getoption("--adapter")
    if chosen is None:
        return
    os.environ[ADAPTER_VARIABLE] = chosen
    try:
        find_adapter()
    except WebnormError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_sessionfinish(session: pytest.Session) -> None:
    commands.end()
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["notes"] = tiers.noted()
    elif whole_first_tier(session.config) and session.exitstatus == pytest.ExitCode.OK and tiers.missing():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_testnodedown(node: Any) -> None:
    """Add the notes of a process of pytest-xdist. A process that died has none."""
    notes = getattr(node, "workeroutput", {}).get("notes")
    if notes is not None:
        tiers.add(notes)


def pytest_deselected(items: list[pytest.Item]) -> None:
    tiers.leave(item.nodeid for item in items)


def whole_first_tier(config: pytest.Config) -> bool:
    """Return True if the run includes the whole first tier, without a path, pattern or other marker."""
    narrowed = (
        config.option.keyword or config.option.ignore or config.option.ignore_glob or config.option.deselect
    )
    everywhere = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return config.option.markexpr == tiers.FIRST and everywhere and not narrowed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print which tests the first tier leaves to the second one, and which coverage it lacks."""
    if config.option.markexpr != tiers.FIRST:
        return
    terminalreporter.section("what make test leaves to make test-all")
    terminalreporter.write_line(tiers.left())
    if whole_first_tier(config):
        for line in tiers.excuses():
            terminalreporter.write_line(f"cannot be met on this machine: {line}", yellow=True)
        for line in tiers.missing():
            terminalreporter.write_line(f"met by no test of this tier: {line}", red=True)


def pytest_report_header() -> str:
    return f"adapter: {find_adapter() if adapters() else 'none'}"


@pytest.fixture(scope="session", autouse=True)
def nothing_of_the_users(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Hide the user's recorded data from the tests, and protect it from changes."""
    os.environ["WEBNORM_TUNINGS"] = str(tmp_path_factory.mktemp("tunings"))
    os.environ["WEBNORM_BASELINES"] = str(tmp_path_factory.mktemp("baselines"))
    os.environ["WEBNORM_STORE"] = str(tmp_path_factory.mktemp("store") / "store.db")
    os.environ.pop("WEBNORM_AUTOTUNE", None)
    # COLUMNS sets the width of output to a pipe, and pytest-xdist sets it to its terminal's width.
    os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session", autouse=True)
def limits_lifted() -> Iterator[None]:
    """Lift webnorm's time limits, which a busy machine could exceed."""
    with pytest.MonkeyPatch.context() as patch:
        unhurried.lift_all(patch)
        yield


@pytest.fixture(autouse=True)
def ctrl_c_means_what_it_meant() -> Iterator[None]:
    """Check that a test restores the handler of Ctrl-C.

    Otherwise processes of later tests could ignore Ctrl-C.
    """
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    if not adapters():
        pytest.skip("wgpu finds no adapter; `webnorm doctor --fix` installs one")
    yield open_device()


@pytest.fixture(scope="session")
def lab_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the output folder of `webnorm export --lab`. Tests only read it.

    Each run of the suite writes it once, because this takes long.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "lab"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            done = commands.webnorm(["export", "--lab", "--out", str(folder)], base)
            assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the examples as docs/apps.md describes. Tests that use them belong to xdist's group npm."""
    from npm_tools import made_apps

    return made_apps(tmp_path_factory.mktemp("apps"))


@pytest.fixture(scope="module")
def fleet(device: Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start a Dask scheduler, for which tests start workers. These tests belong to xdist's group fleet."""
    from clusters import Fleet

    found = Fleet(tmp_path_factory.mktemp("fleet"))
    yield found
    found.ended()


@pytest.fixture
def mistake(tmp_path: Path) -> Callable[[list[str]], str]:
    """Return a function that runs arguments that the command must refuse, and returns the one-line error."""

    def refused(arguments: list[str]) -> str:
        done = commands.webnorm(arguments, tmp_path)
        assert done.returncode == BAD_USAGE, done.stderr
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("webnorm: ")
        return done.stderr

    return refused


@pytest.fixture(autouse=True)
def no_users_ops_stay() -> Iterator[None]:
    """Unregister the user's ops that a test has loaded."""
    before = {*registry.user_ops(), *registry.broken_ops()}
    yield
    for name in {*registry.user_ops(), *registry.broken_ops()} - before:
        registry.unregister(name)


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let scans of models find an option that no op has, in place of rounding before the weight."""
    monkeypatch.setattr("webnorm.models.epilogues.ROUNDING", "round_sideways")
