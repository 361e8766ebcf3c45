"""Fixtures that many tests share."""

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

# Most of the suite's time is Mesa's. Without LLVM's passes it compiles in three quarters of it, and the code
# is little slower on inputs this small. `GALLIVM_PERF= make test` has the passes run.
os.environ.setdefault("GALLIVM_PERF", "nopt")
# An example may take as long as it likes, and so may drawing it.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups come first: one that begins last is waited for by the other processes."""
    tiers.mark_slow(items)
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests are no garbage: looking through them takes a tenth of Python's time."""
    # All processes collect the same tests.
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        tiers.meet_rooms({item.path for item in session.items})
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--snapshot-update", action="store_true", help="write the rendered shaders anew")
    parser.addoption("--pictures", action="store_true", help="take the pictures of docs/playground.md anew")
    parser.addoption("--adapter", help="the adapter to test on, as `webnorm --adapter` takes it")


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment, which the commands and scripts that tests start inherit."""
    # A shell's background jobs ignore Ctrl-C, and so would the commands that tests interrupt.
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
    """Take over what a process of pytest-xdist noted; one that died noted nothing."""
    notes = getattr(node, "workeroutput", {}).get("notes")
    if notes is not None:
        tiers.add(notes)


def pytest_deselected(items: list[pytest.Item]) -> None:
    tiers.leave(item.nodeid for item in items)


def whole_first_tier(config: pytest.Config) -> bool:
    """Return whether all of the first tier was asked for: no path, pattern or other marker."""
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
    """Hide the user's recorded data from the tests, and protect them."""
    os.environ["WEBNORM_TUNINGS"] = str(tmp_path_factory.mktemp("tunings"))
    os.environ["WEBNORM_BASELINES"] = str(tmp_path_factory.mktemp("baselines"))
    os.environ["WEBNORM_STORE"] = str(tmp_path_factory.mktemp("store") / "store.db")
    os.environ.pop("WEBNORM_AUTOTUNE", None)
    # A pipe is as wide as it is asked to be, and pytest-xdist asks for its terminal's width.
    os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session", autouse=True)
def limits_lifted() -> Iterator[None]:
    """webnorm gives up on what is silent for too long, and a busy machine must not come to that."""
    with pytest.MonkeyPatch.context() as patch:
        unhurried.lift_all(patch)
        yield


@pytest.fixture(autouse=True)
def ctrl_c_means_what_it_meant() -> Iterator[None]:
    """A process that a later test starts would ignore Ctrl-C, if this one did."""
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
    """The folder that `webnorm export --lab` writes, once per run, because that takes long. Read it only."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "lab"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            done = commands.webnorm(["export", "--lab", "--out", str(folder)], base)
            assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples as docs/apps.md has its reader make them; what uses them is of xdist's group npm."""
    from npm_tools import made_apps

    return made_apps(tmp_path_factory.mktemp("apps"))


@pytest.fixture(scope="module")
def fleet(device: Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A Dask scheduler, for which tests start workers; what uses it is of xdist's group fleet."""
    from clusters import Fleet

    found = Fleet(tmp_path_factory.mktemp("fleet"))
    yield found
    found.ended()


@pytest.fixture
def mistake(tmp_path: Path) -> Callable[[list[str]], str]:
    """Give the command arguments that it must refuse, in tmp_path; returns the line that it says."""

    def refused(arguments: list[str]) -> str:
        done = commands.webnorm(arguments, tmp_path)
        assert done.returncode == BAD_USAGE, done.stderr
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("webnorm: ")
        return done.stderr

    return refused


@pytest.fixture(autouse=True)
def no_users_ops_stay() -> Iterator[None]:
    """Ops of the user's that a test loads are there for that test alone."""
    before = {*registry.user_ops(), *registry.broken_ops()}
    yield
    for name in {*registry.user_ops(), *registry.broken_ops()} - before:
        registry.unregister(name)
