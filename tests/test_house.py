"""Imports follow the layers in docs/architecture.md, and all code follows some other rules."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import unhurried
import webnorm

ROOT = Path(webnorm.__file__).parents[1]
# The floors, from the highest to the lowest. Rooms of one floor do not import each other.
FLOORS = (
    ("bench", "webnorm.__main__"),
    ("webnorm.cli",),
    ("webnorm.fleet", "webnorm.play", "webnorm"),
    ("webnorm.web", "webnorm.functions"),
    ("webnorm.ops",),
    ("webnorm.calls", "webnorm.lab"),
    ("webnorm.choice", "webnorm.gpu", "webnorm.engines", "webnorm.models"),
    ("webnorm.kernels",),
    ("webnorm.op", "webnorm.files", "webnorm.system", "webnorm.serving"),
    ("webnorm.errors", "webnorm.signals", "webnorm._version"),
)
MOST_FLOORS = 10
# The rooms inside large rooms, in the same order. "" stands for modules directly in a large room.
INNER_FLOORS = {
    "webnorm.lab": (("run",), ("report", "diagnose"), ("plot", "verify"), ("results", "process")),
    "webnorm.cli": (("",), ("verbs",), ("options",), ("work",), ("terminal",)),
    "webnorm.kernels": (("rendering",), ("source_map", "headers"), ("wgsl",)),
    "webnorm.web": (("verify",), ("lab_site",), ("package", "collection"), ("browser",), ("",)),
    "bench": (("sweep", "web", "meanings", "family"), ("record",), ("contenders", "")),
}
# These files record the time of the wall clock. No code compares it, because it may be set, even backwards,
# while a program runs. Waits and timings use monotonic clocks.
DATED = {
    "webnorm/choice/tuning.py",
    "webnorm/web/browser/lan.py",
    "webnorm/lab/results/result.py",
    "webnorm/play/attempt_runner.py",
    "webnorm/web/collection/visit_store.py",
    "webnorm/lab/report/history/store.py",
    "webnorm/web/assets/page/play_times.js",
}
WALL_CLOCK = re.compile(
    r"\btime\.time\b|\btime_ns\(|\b(local|gm|c|strf)time\(|\.(now|today|utcnow)\(|\bnew Date\b"
)
MOST_ARROWS = 130
MOST_IN_A_BODY = 40
FILES = sorted(
    path.relative_to(ROOT) for house in ("webnorm", "bench") for path in (ROOT / house).rglob("*.py")
)
# A function, a method or an arrow with a body of its own.
BEGINS = re.compile(r"\s*(?!(if|for|while|switch|catch)\b)(.*\bfunction\b.*|.*=> |(\w+ )*[\w#]+\(.*\) )\{$")
# People also read the modules of pages and examples.
SCRIPTS = (*(ROOT / "webnorm").rglob("*.js"), *(ROOT / "examples" / "train").glob("*.js"))
READ = (*FILES, *(path.relative_to(ROOT) for path in sorted(SCRIPTS)))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def room_of(name: str) -> str:
    """Return the room of a module, or of an imported name: a package, or a module next to the packages."""
    house, *inside = name.split(".")
    if house == "bench" or not inside:
        return house
    room = f"{house}.{inside[0]}"
    return room if any(room in floor for floor in FLOORS) else house


def module_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> Iterator[str]:
    """Yield the imports of a file from these packages, including those in functions and for types."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: webnorm imports by whole names"
            names = [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in ("webnorm", "bench"))


def arrows() -> dict[tuple[str, str], list[str]]:
    """Return the imports between rooms, with the lines that contain them."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in FILES:
        here = room_of(module_of(path))
        for name in imported(path):
            if (there := room_of(name)) != here:
                found.setdefault((here, there), []).append(f"{path}: {name}")
    return found


def floor_of(room: str) -> int:
    """Return the floor of a room, which is 0 for the highest."""
    return next(index for index, floor in enumerate(FLOORS) if room in floor)


def javascript_bodies(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield the first line of each function, and the number of lines in its body, from its indentation."""
    for begin, line in enumerate(lines):
        if BEGINS.match(line):
            depth = len(line) - len(line.lstrip())
            ends = (
                at for at, other in enumerate(lines) if at > begin and other.startswith(" " * depth + "}")
            )
            yield begin + 1, next(ends) - begin - 1


def too_long() -> Iterator[str]:
    """Yield functions whose body is too long, not counting the docstring."""
    for path in READ:
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        if path.suffix == ".js":
            for begin, count in javascript_bodies(lines):
                if count > MOST_IN_A_BODY:
                    yield f"{path}:{begin}: a body of {count} lines"
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[ast.get_docstring(node) is not None :] or node.body
                count = (node.end_lineno or 0) - body[0].lineno + 1
                if count > MOST_IN_A_BODY:
                    yield f"{path}:{node.lineno}: {node.name} has {count} lines"


def test_imports_run_down() -> None:
    climbing = {arrow: lines for arrow, lines in arrows().items() if floor_of(arrow[0]) >= floor_of(arrow[1])}
    assert not climbing


def inner_room(house: str, name: str) -> str:
    """Return the room inside a large room that a module is in, or "" if it is directly in the large room."""
    inside = name.removeprefix(f"{house}.").split(".")
    return inside[0] if any(inside[0] in floor for floor in INNER_FLOORS[house]) else ""


def test_imports_inside_large_rooms_run_down() -> None:
    climbing = []
    for house, floors in INNER_FLOORS.items():
        level = {room: index for index, floor in enumerate(floors) for room in floor}
        for path in FILES:
            if not (module := module_of(path)).startswith(f"{house}."):
                continue
            here = inner_room(house, module)
            for name in imported(path):
                there = inner_room(house, name) if name.startswith(f"{house}.") else here
                if there != here and level[here] >= level[there]:
                    climbing.append(f"{path}: {name}")
    assert climbing == []


def test_every_folder_of_a_large_room_is_drawn() -> None:
    for house, floors in INNER_FLOORS.items():
        folders = {path.parent.name for path in (ROOT / house.replace(".", "/")).glob("*/__init__.py")}
        assert folders <= {room for floor in floors for room in floor}, house
        text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
        drawn = re.split(rf"^{house.removeprefix('webnorm.')}$", text.split("```")[3], flags=re.M)[1]
        assert folders <= set(re.findall(r"\w+", drawn.split("\n\n")[0])), house


def test_public_class_names_are_unique() -> None:
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_no_module_is_called_by_a_question_word() -> None:
    questions = {"what", "when", "where", "which", "who", "whose", "why", "how", "whether", "asked"}
    assert [path for path in FILES if set(path.stem.split("_")) & questions] == []


def test_few_rooms_know_each_other() -> None:
    assert len(FLOORS) <= MOST_FLOORS and len(arrows()) <= MOST_ARROWS


def test_only_the_outermost_rooms_know_which_ops_there_are() -> None:
    """Other rooms ask `webnorm.op.registry`, which loads the folders of `webnorm/ops`."""
    knowing = {here for here, there in arrows() if there == "webnorm.ops"}
    assert knowing <= {"webnorm", "webnorm.functions", "bench"}


def test_the_wall_clock_decides_nothing() -> None:
    own = [path for path in READ if path.parts[0] == "webnorm" and "vendor" not in path.parts]
    texts = {path.as_posix(): (ROOT / path).read_text(encoding="utf-8") for path in own}
    asking = {
        path for path, text in texts.items() if WALL_CLOCK.search(text.replace("performance.now()", ""))
    }
    assert asking == DATED


# The files that may catch every exception, with the reason. All other code names the exceptions it expects.
BROAD = {
    "webnorm/ops/norms/resolved.py": "attributes and hashes of a caller's arguments, and what is no dtype",
    "webnorm/cli/work/isolated.py": "a driver, in a process of its own",
    "webnorm/errors.py": "a __repr__ of the caller's",
    "webnorm/fleet/dispatcher.py": "a task on another machine, and a scheduler that has gone",
    "webnorm/fleet/worker.py": "what Dask raises at settings that it cannot use",
    "webnorm/gpu/wgpu_private.py": "private names of wgpu-py and cffi, and a pickle",
    "webnorm/kernels/headers/library.py": "a header of a user's",
    "webnorm/kernels/source_map/template_tags.py": "a template that is known to be broken",
    "webnorm/kernels/rendering/templates.py": "what a template does",
    "webnorm/op/built_op.py": "functions of a user's op.py",
    "webnorm/op/derived_tolerance.py": "a reference on arrays that it may not expect",
    "webnorm/lab/run/standby_worker.py": "a thread that keeps workers ready",
    "webnorm/lab/run/jobs.py": "a kernel's run",
    "webnorm/lab/verify/user_array.py": "a header that NumPy evaluates",
    "webnorm/lab/verify/trial.py": "a kernel's run",
    "webnorm/lab/process/worker.py": "pickles, and exceptions whose own code fails",
    "webnorm/play/attempt_runner.py": "a thread that everybody would wait for",
    "webnorm/play/server.py": "a thread whose failure is raised by who waits",
    "webnorm/play/file_watch.py": "a thread, and a library of any kind",
    "webnorm/web/browser/visits.py": "Playwright, in a thread of its own",
    "webnorm/web/collection/collector.py": "a request to a server that goes on",
}
# Handlers of signals do not run in these files. They have their own threads and processes, or a value's name.
WITHOUT_HANDLERS = {
    "webnorm/cli/work/isolated.py",
    "webnorm/errors.py",
    "webnorm/web/browser/visits.py",
    "webnorm/play/attempt_runner.py",
    "webnorm/play/server.py",
    "webnorm/play/file_watch.py",
}


BROADLY_IGNORED = {f"{name}(Exception)" for name in ("suppress", "contextlib.suppress", "signals.ignored")}


def broad_handlers(path: Path) -> Iterator[ast.AST]:
    """Yield the nodes of a file that catch every Exception."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ExceptHandler):
            if node.type is None or ast.unparse(node.type) == "Exception":
                yield node
        elif isinstance(node, ast.Call) and ast.unparse(node) in BROADLY_IGNORED:
            yield node


def test_few_places_catch_everything() -> None:
    """Each place has a reason, and does not catch exceptions of a signal's handler."""
    found = {path.as_posix(): [*broad_handlers(path)] for path in FILES if path.parts[0] == "webnorm"}
    assert {path for path, nodes in found.items() if nodes} == {*BROAD}
    for path in {*BROAD} - WITHOUT_HANDLERS:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert "suppress(Exception)" not in text, path
        closed = [node for node in found[path] if isinstance(node, ast.ExceptHandler)]
        through = [node for node in closed if ast.unparse(node.body[0]).startswith("signals.let_through(")]
        # Two handlers ignore a broken text or traceback of an exception.
        assert len(closed) - len(through) == (2 if path == "webnorm/lab/process/worker.py" else 0), path


# Private names of other libraries, by file. One file has all names of wgpu-py and cffi, and works without
# them.
PRIVATE = {
    "bench/backend_jobs.py": {"_api"},
    "bench/contenders/family_ops.py": {"_dynamo"},
    "bench/contenders/installed.py": {"_inductor"},
    "bench/contenders/torch_ops.py": {"_dynamo", "_fused_rms_norm_backward"},
    "bench/meanings/torch_samples.py": {"_internal"},
    "bench/record/preparing.py": {"_inductor"},
    "webnorm/ops/norms/dask_arrays.py": {"_meta"},
    "webnorm/gpu/wgpu_private.py": {
        "_api",
        "_get_parser",
        "_internal",
        "_parsed_types",
        "_parser_cache",
        "_poll_func",
        "_poller",
        "_token_ids",
    },
    "webnorm/lab/process/worker.py": {"_args_from_interpreter_flags", "_inheriting"},
}
# These names are documented: methods of a NamedTuple, and functions of Python's and C's libraries.
DOCUMENTED = {"_exit", "_getframe", "_make", "_replace"}
PRIVATE_NAME = re.compile(r"_[a-z]\w*")
PRIVATE_MODULE = re.compile(r"(?:\w+\.)+(_[a-z]\w*)(?:\.\w+)*")
ASKS_FOR_A_NAME = {"getattr", "hasattr", "setattr", "delattr"}


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that a file uses and does not define itself."""
    own = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own |= {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            own.add(node.target.id)
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".")
            if parts[0] not in ("webnorm", "bench"):
                names = [*parts, *(one.name for one in node.names)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ASKS_FOR_A_NAME:
            names = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            module = PRIVATE_MODULE.fullmatch(node.value)
            names = [module[1]] if module and not node.value.startswith("webnorm.") else []
        yield from (name for name in names if PRIVATE_NAME.fullmatch(name) and name not in own | DOCUMENTED)


def test_private_names_of_other_libraries_are_in_few_places() -> None:
    found = {path.as_posix(): {*private_names(parsed(path))} for path in FILES}
    assert {path: names for path, names in found.items() if names} == PRIVATE


def test_private_names_are_found_however_they_are_asked_for() -> None:
    for text in (
        "device.handle._poller = None",
        "queue._internal",
        "from wgpu.backends.wgpu_native import _api",
        "import wgpu\nwgpu.backends.wgpu_native._api.libf",
        "getattr(ffi, '_parsed_types', None)",
        "sys.modules.get('wgpu.backends.wgpu_native._api')",
    ):
        assert len({*private_names(ast.parse(text))}) == 1, text
    own = "def _b():\n    pass\nclass One:\n    def __init__(self):\n        self._a = other._a, two._b()"
    assert not {*private_names(ast.parse(own))}


def test_every_package_says_what_it_is_for() -> None:
    for path in FILES:
        if path.name == "__init__.py":
            said = ast.get_docstring(parsed(path))
            assert said and said.endswith("."), path


def unpacked_literals(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that unpack one literal into another, as in `(*("a", "b"), "c")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple | ast.List):
            yield node.lineno
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield from (value.lineno for key, value in pairs if key is None and isinstance(value, ast.Dict))


def test_literals_are_written_plainly() -> None:
    """If the formatter would spread a table over many lines, the table has `# fmt: skip`."""
    tests = [path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob("*.py"))]
    found = {path.as_posix(): [*unpacked_literals(parsed(path))] for path in (*FILES, *tests)}
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert {*unpacked_literals(ast.parse('(*("a", "b"), "c")\n{**{"a": 1}}'))} == {1, 2}


def test_functions_are_read_at_once() -> None:
    assert list(too_long()) == []


def test_the_drawing_is_the_house() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = text.split("```")[1].strip().splitlines()
    for line, floor in zip(drawn, FLOORS, strict=True):
        rooms = {room.removeprefix("webnorm.") for room in floor} - {"__main__"}
        assert rooms <= set(re.findall(r"\w+", line)), line


# --- no test depends on the speed of the machine

# Tests wait for what they need, and HANG_S is their only limit. Only tests/patience.py has a clock and a
# sleep.
PATIENT = "patience.py"
CLOCKS = re.compile(
    r"\btime\.((monotonic|perf_counter|process_time|thread_time|time)(_ns)?|sleep)\b"
    r"|\bfrom time import|\basyncio\.sleep\b|\bwait_for_timeout\b|\bsetTimeout\("
)
# Seconds or milliseconds. A test may wait shortly for work without an end. Other limits assume a fast
# machine.
LIMITS = re.compile(r"timeout\w*|\w*(limit|patience|wait|silence)_s")
CONSTANTS = re.compile(r"\w*_(S|MS|SECONDS)")
# The names of limits after which webnorm gives up.
GIVES_UP = re.compile(r"\w*(LIMIT|PATIENCE|SILENCE|WAITS?|FETCH|GRACE)_S")
WAITING = ("wait", "join", "result", "communicate", "idle", "set_default_timeout")
SHORT_S = 1.0
# Files that match but do not depend on time, with the reason.
TIMELESS = {
    "calls/interrupted.py": "the duration of a turn chooses moments for interrupts, and any moment is fine",
    "play/test_page.py": "a page's timers come in their order",
    "web/test_collect.py": "it replaces the clock of the rates by its own",
    "web/test_examples_train.py": "a page looks again until its training is done",
    "web/test_export_browser.py": "a page loses its device after what runs now, however long that takes",
    "web/test_verify.py": "a page hangs after its report, which comes first",
}


def number(node: ast.expr) -> float:
    """Return the value of a numeric expression; 0 for any other."""
    try:
        found = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})
    except Exception:
        return 0.0
    return float(found) if isinstance(found, int | float) else 0.0


def assigned(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a statement binds, each with its value."""
    for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = [*zip(target.elts, node.value.elts, strict=True)]
        yield from ((one.id, value) for one, value in pairs if isinstance(one, ast.Name))


def timed_in(tree: ast.AST, text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a test that depend on time, with the matching text. Scripts in strings count."""
    for at, line in enumerate(text.splitlines(), 1):
        if found := CLOCKS.search(line):
            yield at, found[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and number(node.value) > SHORT_S:
            names = [one.id for one in node.targets if isinstance(one, ast.Name)]
            yield from ((node.lineno, name) for name in names if CONSTANTS.fullmatch(name))
        if not isinstance(node, ast.Call):
            continue
        method = isinstance(node.func, ast.Attribute)
        called = getattr(node.func, "attr" if method else "id", "")
        limits = [(one.arg, number(one.value)) for one in node.keywords if LIMITS.fullmatch(one.arg or "")]
        if method and called in WAITING:
            limits += [(called, number(one)) for one in node.args]
        if called == "Timer" and node.args:
            limits += [(called, 2 * SHORT_S if number(node.args[0]) else 0.0)]
        for name, limit in limits:
            own = name if isinstance(name, str) else ""
            if limit > (0.0 if own.startswith("timeout") else SHORT_S):
                yield node.lineno, f"{own} {limit:g}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("time.sleep(0.1)", 1),
        ("'import time; time.sleep(3)'", 1),
        ("began = time.monotonic()", 1),
        ("from time import sleep", 1),
        ("page.wait_for_timeout(400)", 1),
        ("subprocess.run(words, timeout=60)", 1),
        ("subprocess.run(words, timeout=2 * 60)", 1),
        ("subprocess.run(words, timeout=HANG_S)", 0),
        ("page.goto(url, timeout=5000)", 1),
        ("thread.join(20)", 1),
        ("', '.join(words)", 0),
        ("process.wait(20)", 1),
        ("state.wait(0, 0.0)", 0),
        ("Timer(0.5, kill).start()", 1),
        ("Timer(HANG_S, kill).start()", 0),
        ("PATIENCE_S = 60.0", 1),
        ("RENDER_S = 1.0", 0),
        ("Worker(time_limit_s=20.0)", 1),
        ("Worker(time_limit_s=0.5)", 0),
    ],
)
def test_dependence_on_the_machines_speed_is_detected(text: str, found: int) -> None:
    assert len(list(timed_in(ast.parse(text), text))) == found


def test_drawn_examples_take_their_time() -> None:
    usual = settings()
    assert usual.deadline is None and HealthCheck.too_slow in usual.suppress_health_check


def defaults_of(node: ast.AST) -> list[ast.expr | None]:
    """Return the defaults of a function's parameters, or of a class's fields."""
    if isinstance(node, ast.arguments):
        return [*node.defaults, *node.kw_defaults]
    if isinstance(node, ast.ClassDef):
        return [one.value for one in node.body if isinstance(one, ast.AnnAssign)]
    return []


def test_the_tests_lift_every_limit() -> None:
    """The other limits end nothing that a busy machine would have finished."""
    kept = {
        "webnorm.op.op_trial.CPU_LIMIT_S": "of processor time, which a busy machine does not take away",
        "webnorm.models.onnx_inference.CPU_LIMIT_S": "of processor time as well",
        "webnorm.files.atomic.PATIENCE_S": "then a line is written, and the wait goes on",
        "webnorm.web.browser.visits._GRACE_S": "it begins when another limit is over",
    }
    found = {
        f"{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}.{name}"
        for path in (ROOT / "webnorm").rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        for name, value in assigned(node)
        if GIVES_UP.fullmatch(name) and number(value) >= SHORT_S
    }
    assert found - {*unhurried.LIFTED} == kept.keys()
    # A default would keep its value from when Python created the function.
    names = {limit.rpartition(".")[2] for limit in found}
    bound = [
        f"{path.relative_to(ROOT)}:{default.lineno}"
        for path in (ROOT / "webnorm").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for default in defaults_of(node)
        if isinstance(default, ast.Name) and default.id in names
    ]
    assert bound == []


def test_no_test_depends_on_the_speed_of_the_machine() -> None:
    seen = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT / "tests").as_posix()
        text = path.read_text(encoding="utf-8")
        if name not in (PATIENT, "test_house.py") and (lines := list(timed_in(ast.parse(text), text))):
            seen[name] = lines
    assert {name: lines for name, lines in seen.items() if name not in TIMELESS} == {}
    # Every exception in the list must still occur.
    assert seen.keys() >= TIMELESS.keys()
