"""Templates of the user's: limits on time and memory, and the effects on the process that renders."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handmade import SIMPLE, shader_of
from patience import HANG_S, all_end, at_least, write_later
from testbed import GPU, KERNELS, kernel_named, suited
from webnorm.choice.defaults import default_variant
from webnorm.errors import LimitReached, WebnormError
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.sources import revision, wgsl_root
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering import render, sandbox, templates
from webnorm.kernels.rendering.render import Target, render_shader
from webnorm.ops.norms.problem import NormOptions, NormProblem


@contextmanager
def within(**limits: Any) -> Iterator[None]:
    """Replace some limits of renderings during the block; the other limits stay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "limits", replace(sandbox.limits, **limits))
        yield


def refusal(folder: Path, body: str, lib: dict[str, str] | None = None) -> str:
    with pytest.raises(WebnormError) as caught:
        shader_of(folder, body, lib)
    message = str(caught.value)
    assert "\n" not in message and message.isprintable()
    assert len(message) < 700
    return message


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of webnorm's own kernels in a folder of the user's."""
    return Path(shutil.copytree(wgsl_root(), tmp_path_factory.mktemp("copy") / "wgsl"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_the_other_process_renders_the_same(kernel: Kernel, copies: Path) -> None:
    copy = load(copies / kernel.path.relative_to(wgsl_root()), kernel.op.name)
    targets: tuple[Target, ...] = ("native", "browser")
    for target in targets:
        problem = suited(
            kernel, NormProblem(rows=4, cols=199, options=NormOptions(weight=target == "native"))
        )
        variant = default_variant(kernel, problem, GPU)
        there = render_shader(Variant(copy, variant.constants), problem, target, GPU)
        here = templates.render(there.request)
        assert (there.text, there.origins, there.workgroup_bytes) == (
            here.text,
            here.origins,
            here.workgroup_bytes,
        )
        placed = replace(there.request, runs=True)
        assert sandbox.render(placed) == templates.render(placed)


TOO_LONG = "rendering was stopped after 0.5 s of processor time; use loops and macros that end sooner"
ENDLESS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "power": "{{ (9 ** (9 ** 9)) > 1 }}",
    "sum": "{{ range(99999) | map('string') | list | length }}" + "{% for a in range(99999) %}"
    "{% if range(99999) | sum < 0 %}{% endif %}{% endfor %}",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_slow_rendering_is_stopped(tmp_path: Path, name: str) -> None:
    shader_of(tmp_path, "fine\n")
    with within(time_s=0.5):
        message = refusal(tmp_path, ENDLESS[name])
    assert message.endswith(f"mine.wgsl: {TOO_LONG}")
    # The next rendering works.
    assert shader_of(tmp_path, "fine\n").text == "fine\n"


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped on this system")
def test_time_that_others_have_the_processor_is_not_the_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shader_of(tmp_path, "fine\n")
    # The child stops for many times the processor time of a rendering.
    limit_s = 1.0
    pid, send = current().process.pid, sandbox._send

    def later() -> None:
        at_least(1.1 * limit_s)
        os.kill(pid, signal.SIGCONT)

    def stopped(*given: Any) -> None:
        os.kill(pid, signal.SIGSTOP)
        send(*given)
        threading.Thread(target=later).start()

    with within(time_s=limit_s), monkeypatch.context() as patch:
        patch.setattr(sandbox, "_send", stopped)
        assert shader_of(tmp_path, "fine\n").text == "fine\n"
    # The wait has a limit.
    os.kill(pid, signal.SIGSTOP)
    late = r"mine.wgsl: rendering was stopped after 0.3 s, .* less busy"
    with within(wait_s=0.3), pytest.raises(LimitReached, match=late):
        shader_of(tmp_path, "fine\n")
    assert shader_of(tmp_path, "fine\n").text == "fine\n"


BOMBS = {
    "times": '{{ "x" * 10 ** 10 }}',
    "centre": '{{ "x" | center(10 ** 10) }}',
    "format": '{{ "%10000000000d" | format(1) }}',
    "format method": '{{ "{:>10000000000}".format(1) }}',
    "join": '{{ (["x" * 1000] * 10 ** 8) | join(",") }}',
    "list": "{{ [0] * 10 ** 10 }}",
    "doubling": '{% set n = namespace(s="x") %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}',
    "indent": '{{ ("x\n" * 10 ** 6) | indent(10 ** 6) }}',
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BOMBS)
def test_a_rendering_with_too_much_memory_is_stopped(tmp_path: Path, name: str) -> None:
    message = refusal(tmp_path, BOMBS[name])
    assert "memory" in message or "too large" in message or "Too many" in message or "too long" in message
    assert re.search(r"mine\.wgsl:\d+: ", message)
    assert shader_of(tmp_path, "fine\n").text == "fine\n"


@pytest.mark.slow
def test_a_snippet_that_fills_the_memory_takes_nothing_from_the_next_kernel(tmp_path: Path) -> None:
    # The template environment keeps a module that is imported without context.
    shader_of(
        tmp_path, '{% import "lib/much.wgsl" as m %}{{ m.s[0] }}', {"much.wgsl": '{% set s = "x" * 10**8 %}'}
    )
    other = tmp_path / "other"
    other.mkdir()
    assert shader_of(other, '{{ ("y" * 4 * 10 ** 8)[0] }}').text == "y\n"


@pytest.mark.parametrize(
    "body",
    [
        "{% for a in range(90) %}{% for b in range(99999) %}\n{% endfor %}{% endfor %}{{ 1 }}",
        "{% for a in range(1000) %}" + "x" * 9000 + "{% endfor %}",
        "{% for a in range(99999) %}x\ny\n{% endfor %}",
        '{{ "x" * 5000000 }}',
    ],
)
def test_a_text_that_is_too_large_is_refused_with_its_bounds(tmp_path: Path, body: str) -> None:
    message = refusal(tmp_path, body)
    assert "exceeds 4194304 characters or 100000 lines" in message
    assert "mine.wgsl: " in message


def test_callers_can_tighten_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "limits", sandbox.RenderLimits(time_s=2.0, memory=256 << 20, text=1000))
    assert "exceeds 1000 characters" in refusal(tmp_path, "x" * 1001)
    assert refusal(tmp_path, '{{ "a" * 3000000000 }}').endswith("too much memory; the limit is 256 MiB")
    monkeypatch.undo()
    assert shader_of(tmp_path, "x" * 1001).text == "x" * 1001 + "\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{% include "' + "a" * 5000 + '" %}', "mine.wgsl:9: cannot include 'aaaa"),
        ('{% include "' + "a/" * 100 + '" %}', "mine.wgsl:9: includes 'a/a/"),
        ('{% include "a\\u0000b" %}', "mine.wgsl:9: cannot include"),
        ("{% include 3 %}", "mine.wgsl:9: "),
        ("{% include [] %}", "mine.wgsl:9: "),
        ("{% include cols %}", "mine.wgsl:9: "),
        ("{% include none %}", "mine.wgsl:9: "),
        ('{% include "lib" %}', "mine.wgsl:9: cannot include 'lib': Is a directory"),
        ("a\n  /* b /* c */", "mine.wgsl:10: the comment is not closed"),
        ("/*/", "mine.wgsl:9: the comment is not closed"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "maximum recursion depth"),
        ("{{ " + "not " * 5000 + "1 }}", "maximum recursion depth"),
        ("{{ " + "1 + " * 5000 + "1 }}", "recursion"),
        ("{% for a in [1] %}" * 30 + "{% endfor %}" * 30, "too many statically nested blocks"),
        ("{% if 1 %}" * 300 + "{% endif %}" * 300, ""),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "maximum recursion depth exceeded"),
        ("{{ {}[[]] }}", ""),
        ("{{ [1, 'a'] | sort }}", "mine.wgsl:9: '<' not supported"),
        ("{{ '%c' | format(10 ** 9) }}", "mine.wgsl:9: "),
        ("{{ 10 ** 5000 }}", "mine.wgsl: Exceeds the limit"),
        ("{{ cols.append(1) }}", "mine.wgsl:9: "),
        ("{{ 'a\\nb'.nothing() }}", "mine.wgsl:9: "),
        ("{{ {}['\\u001b\\n\\u202e'] }}", "mine.wgsl:9: "),
        ("{% nonsense %}", "mine.wgsl:9: Encountered unknown tag"),
        ("{{ 1 | nonsense }}", "mine.wgsl:9: No filter named"),
        ("{% import 'lib/part.wgsl' as p %}{{ p.q.r }}", "mine.wgsl:9: "),
        ("{{ self }}{{ self.x() }}", "mine.wgsl:9: "),
        ("{{ '\\ud800' }}", "mine.wgsl:9: the rendered text contains the character U+D800"),
        ("{{ '\\u001b[31m' }}", "mine.wgsl:9: the rendered text contains the character U+001B"),
        ("a\nb {{ '\\u202e' }}", "mine.wgsl:10: the rendered text contains the character U+202E"),
        (
            "{{ '\\ufdd0/etc/passwd:1\\ufdd1' }}\nx{{ '\\ufdd0' }}",
            "the rendered text contains the character U+FDD0",
        ),
        ("{% set x %}a\nb{% endset %}{{ x[3:] }}", "the rendered text contains the character U+FDD"),
    ],
)
def test_every_mistake_is_one_line(tmp_path: Path, body: str, message: str) -> None:
    try:
        shader_of(tmp_path, body, {"part.wgsl": "x"})
    except WebnormError as error:
        assert message in str(error)
        assert "\n" not in str(error) and str(error).isprintable()
        assert len(str(error)) < 700
    else:
        assert message == ""


@pytest.mark.parametrize("tag", ["include", "import", "from", "extends"])
def test_a_circle_of_includes_is_named_at_the_tag_that_closes_it(tag: str, tmp_path: Path) -> None:
    """Otherwise the circle fills the stack, which takes ten seconds and blames a line of webnorm's own."""
    back = {"import": " as a", "from": " import a"}.get(tag, "")
    lib = {"a.wgsl": 'x\n{% include "lib/b.wgsl" %}', "b.wgsl": f'{{% {tag} "lib/a.wgsl"{back} %}}'}
    way = "circular: lib/b.wgsl -> lib/a.wgsl -> lib/b.wgsl"
    for named in ('"lib/a.wgsl"', '["lib/none.wgsl", "lib/a.wgsl"] ignore missing'):
        body = f"{{% include {named} %}}"
        message = refusal(tmp_path, body, lib)
        assert message == f"{tmp_path.resolve()}/lib/b.wgsl:1: cannot include 'lib/a.wgsl': {way}"


def test_a_file_that_includes_itself(tmp_path: Path) -> None:
    message = refusal(tmp_path, '{% include "layer_norm/mine.wgsl" %}')
    assert "mine.wgsl:9: cannot include 'layer_norm/mine.wgsl': circular: layer_norm/mine.wgsl" in message


def test_a_second_include_is_not_circular(tmp_path: Path) -> None:
    lib = {"a.wgsl": '{% include "lib/c.wgsl" %}', "b.wgsl": '{% include "lib/c.wgsl" %}', "c.wgsl": "// c"}
    body = "".join(f'{{% include "lib/{name}.wgsl" %}}' for name in "abccab")
    assert shader_of(tmp_path, body, lib).text.count("// c") == 6


def test_output_of_pythons_start_is_not_a_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('collecting\\nstatistics' * 1000, flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sandbox.stop()
    assert shader_of(tmp_path, "// one\n").text == "// one\n"
    sandbox.stop()


def test_marks_that_a_filter_changed_are_taken_out(tmp_path: Path) -> None:
    shader = shader_of(tmp_path, "{% set x %}one\ntwo{% endset %}{{ x | upper }}\nthree\n")
    assert shader.text == "ONE\nTWO\nthree\n"
    assert shader.origins[-1][1] == 11


def test_a_carriage_return_ends_a_line(tmp_path: Path) -> None:
    shader = shader_of(tmp_path, "// a {{ '\\r' }}b {{ '\\r\\n' }}c\n")
    assert shader.text == "// a\nb\nc\n"
    assert len(shader.origins) == 3


def test_many_functions_that_call_each_other_are_counted(tmp_path: Path) -> None:
    chain = "".join(f"fn f{k}() {{ f{k + 1}(); }}\n" for k in range(3000))
    body = (
        "var<workgroup> much: array<f32, 64>;\n"
        + chain
        + "fn f3000() { much[0] = 1.0; }\nfn main() { f0(); }\n"
    )
    assert shader_of(tmp_path, body).workgroup_bytes == 256


def test_a_count_of_many_digits_is_not_one_of_memory(tmp_path: Path) -> None:
    body = f"var<workgroup> much: array<f32, {'9' * 5000}>;\nfn main() {{ much[0] = 1.0; }}\n"
    assert shader_of(tmp_path, body).workgroup_bytes == 0


DEEP = {
    "brackets": (
        "const deep = " + "(" * 3000 + "1" + ")" * 3000 + ";",
        "brackets are nested more than 200 deep",
    ),
    "blocks": ("fn main() {" + " {" * 3000 + " }" * 3000 + "}", "brackets are nested more than 200 deep"),
    "operators": ("const deep = 1" + "+1" * 20000 + ";", "more than 2000 operators in a row"),
    "others between": ("const deep = 1" + "+(1)" * 20000 + ";", "more than 2000 operators in a row"),
    "sums in brackets": (
        "const deep = " + "(" * 100 + "1" + ("+1" * 100 + ")") * 100 + ";",
        "more than 2000 operators in a row",
    ),
    "brackets in sums": (
        "const deep = " + ("1+" * 12 + "(") * 180 + "1" + ")" * 180 + ";",
        "more than 2000 operators in a row",
    ),
    "sums in arguments": (
        "const deep = " + "max(" * 100 + "1" + ("+1" * 30 + ", 1)") * 100 + ";",
        "more than 2000 operators in a row",
    ),
    "signs": ("const deep = " + "-" * 20000 + "1;", "more than 2000 operators in a row"),
    "members": ("fn main() { let a = b" + ".x" * 20000 + "; }", "more than 2000 operators in a row"),
    "templates": (
        "alias Deep = " + "array<" * 20000 + "f32" + ">" * 20000 + ";",
        "more than 2000 operators in a row",
    ),
    "alternatives": (
        "fn main() { if (true) {} " + "else if (true) {} " * 20000 + "}",
        "more than 2000 operators in a row",
    ),
    "alternatives after comments": (
        "fn main() { if (true) {} " + "/* */else if (true) {} " * 20000 + "}",
        "more than 2000 operators in a row",
    ),
}


@pytest.mark.parametrize(("body", "message"), DEEP.values(), ids=DEEP)
def test_nesting_that_crashes_compilers_is_refused(body: str, message: str, tmp_path: Path) -> None:
    """naga recurses at each level, and a stack overflow would end the process."""
    with pytest.raises(WebnormError, match=message):
        shader_of(tmp_path, body)


@pytest.mark.parametrize(
    ("before", "more", "after", "most"), [("", "(", ")", 199), ("[", "(", ")", 198), ("", "+1", "", 1999)]
)
def test_one_more_than_the_bound_is_refused(
    before: str, more: str, after: str, most: int, tmp_path: Path
) -> None:
    def deep(count: int) -> str:
        return f"const deep = {before}{more * count}1{after * count};"

    assert shader_of(tmp_path, deep(most)).text
    with pytest.raises(WebnormError, match="more than 2"):
        shader_of(tmp_path, deep(most + 1))


def test_a_long_text_is_not_a_deep_one(tmp_path: Path) -> None:
    body = "".join(
        f"fn f{at}(a: u32) -> u32 {{ if (a > {at}u) {{ return a - 1u; }} return a; }}\n" for at in range(3000)
    )
    table = ", ".join(f"{at} + 1" for at in range(3000))
    rule = "//" + "-" * 3000
    assert shader_of(tmp_path, f"{rule}\n/* {'-' * 3000} */\n{body}const table = array({table});\n").text


# --- the process ---------------------------------------------------------------------------------


def current() -> sandbox._Child:
    assert sandbox._child is not None
    return sandbox._child


def test_one_process_serves_all_renderings(tmp_path: Path) -> None:
    shader_of(tmp_path, "a\n")
    first = current()
    refusal(tmp_path, "{{ nothing }}")
    shader_of(tmp_path, "b\n")
    assert current() is first


def test_a_process_that_was_killed_is_replaced(tmp_path: Path) -> None:
    shader_of(tmp_path, "a\n")
    current().process.kill()
    current().process.wait()
    assert shader_of(tmp_path, "b\n").text == "b\n"


def test_a_process_that_dies_at_work_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shader_of(tmp_path, "a\n")
    process, send = current().process, sandbox._send

    def killed(*given: Any) -> None:
        send(*given)
        process.kill()

    with monkeypatch.context() as patch:
        patch.setattr(sandbox, "_send", killed)
        message = refusal(tmp_path, ENDLESS["loops"])
    assert message.endswith("mine.wgsl: the rendering process ended with SIGKILL")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    message = refusal(tmp_path, "a\n")
    assert message.endswith("mine.wgsl: cannot start the rendering process: No such file or directory")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files in /proc")
def test_no_resources_of_a_process_are_left(tmp_path: Path) -> None:
    shader_of(tmp_path, "a\n")
    sandbox.stop()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        shader_of(tmp_path, "a\n")
        process = current().process
        sandbox.stop()
        assert process.returncode is not None
    assert len(os.listdir("/proc/self/fd")) == before


def test_threads_take_turns(tmp_path: Path) -> None:
    found: list[str] = []

    def work(name: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        for _ in range(5):
            found.append(shader_of(folder, f"{name}\n").text)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(f"{name}\n" for name in "abcd" for _ in range(5))


SCRIPT = """
import os, sys
from pathlib import Path
from webnorm.kernels.rendering import sandbox
from webnorm import render_shader
from webnorm.kernels.headers.traits import BROWSER
from webnorm.kernels.headers.header import load
from webnorm.choice.defaults import default_variant
from webnorm.ops.norms.problem import NormProblem
problem = NormProblem(rows=2, cols=8)
variant = default_variant(load(Path(sys.argv[1])), problem, BROWSER)
def text():
    return render_shader(variant, problem, "native", BROWSER).text
"""


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", SCRIPT + script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_one_of_its_own(tmp_path: Path) -> None:
    shader_of(tmp_path, "a {{ cols }}\n")
    out = run(
        """
text()
mine = sandbox._child.process
sandbox._lock.acquire()
forked = os.fork()
if forked == 0:
    assert sandbox._child is None
    assert text() == "a 8\\n"
    assert sandbox._child.process.pid != mine.pid
    sandbox.stop()
    os._exit(7)
sandbox._lock.release()
assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 7
assert sandbox._child.process is mine and mine.poll() is None
assert text() == "a 8\\n"
print(mine.pid)
""",
        str(tmp_path / "layer_norm" / "mine.wgsl"),
    )
    all_end([int(out)])


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks processes up in /proc")
def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    shader_of(tmp_path, "a\n")
    path = str(tmp_path / "layer_norm" / "mine.wgsl")
    out = run("text(); print(sandbox._child.process.pid)", path)
    all_end([int(out)])
    out = run("text(); print(sandbox._child.process.pid, flush=True); os._exit(0)", path)
    all_end([int(out)])
    # The same happens while the child works.
    shader_of(tmp_path, "a\n")
    (tmp_path / "layer_norm" / "mine.wgsl").write_text(
        (tmp_path / "layer_norm" / "mine.wgsl").read_text() + ENDLESS["loops"]
    )
    out = run(
        """
send = sandbox._send
def leave(*given):
    send(*given)
    print(sandbox._child.process.pid, flush=True)
    os._exit(0)
sandbox.start()
sandbox._send = leave
text()
""",
        path,
    )
    all_end([int(out)])


def test_a_folder_full_of_modules_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "pickle", "jinja2", "struct", "webnorm", "signal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken over')\n")
    monkeypatch.chdir(tmp_path)
    sandbox.stop()
    assert shader_of(tmp_path, "a\n").text == "a\n"


# --- where renderings run --------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the kernels that the other process renders."""
    found: list[str] = []
    before = sandbox.render

    def noted(request: templates.RenderRequest) -> templates.Rendering:
        found.append(request.kernel)
        return before(request)

    monkeypatch.setattr(sandbox, "render", noted)
    return found


def test_only_webnorms_own_text_is_rendered_here(tmp_path: Path, asked: list[str]) -> None:
    kernel = kernel_named("naive")
    variant = default_variant(kernel, SIMPLE, GPU)
    own = render_shader(variant, SIMPLE, "native", GPU).text
    assert asked == []
    # A folder of the user's may have snippets, which override webnorm's.
    (tmp_path / "lib").mkdir()
    assert render_shader(variant, SIMPLE, "native", GPU, roots=[tmp_path]).text == own
    assert len(asked) == 1
    (tmp_path / "lib" / "interface.wgsl").write_text(
        "// the user's\n{% for i in range(9999999) %}{% endfor %}"
    )
    with pytest.raises(WebnormError, match="Range too big"):
        render_shader(variant, SIMPLE, "native", GPU, roots=[tmp_path])
    link = tmp_path / "layer_norm" / "naive.wgsl"
    link.parent.mkdir()
    shutil.copy(kernel.path, link)
    render_shader(default_variant(load(link), SIMPLE, GPU), SIMPLE, "native", GPU, roots=[wgsl_root()])
    assert len(asked) == 3


def test_a_program_may_trust_a_folder(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "trusted_roots", [tmp_path.resolve()])
    assert shader_of(tmp_path, "{{ cols }}\n").text == "8\n"
    assert asked == []


def test_show_says_it_in_one_line(tmp_path: Path, mistake: Callable[[list[str]], str]) -> None:
    shader_of(tmp_path, "fine\n")
    path = tmp_path / "layer_norm" / "mine.wgsl"
    path.write_text(path.read_text() + ENDLESS["loops"])
    with within(time_s=0.5):
        assert TOO_LONG in mistake(["show", "mine", "--wgsl", "."])
        message = mistake(["export", "layer_norm", "--cols", "64", "--kernel", str(path), "--out", "out"])
    assert TOO_LONG in message
    assert not (tmp_path / "out").exists()


# --- files that change ---------------------------------------------------------------------------


def test_an_edited_snippet_is_rendered_anew(tmp_path: Path) -> None:
    body = '{% from "lib/outer.wgsl" import outer %}{{ outer() }}{% include "lib/part.wgsl" %}'
    lib = {
        "outer.wgsl": '{% from "lib/inner.wgsl" import inner %}'
        "{% macro outer() %}{{ inner() }}{% endmacro %}",
        "inner.wgsl": "{% macro inner() %}one{% endmacro %}",
        "part.wgsl": "\npart",
    }
    assert shader_of(tmp_path, body, lib).text == "one\npart\n"
    # The changed file is imported by an imported file, and has the same length as before.
    lib["inner.wgsl"] = "{% macro inner() %}two{% endmacro %}"
    assert shader_of(tmp_path, body, lib).text == "two\npart\n"


def test_a_snippet_that_comes_before_webnorms_is_noticed(tmp_path: Path) -> None:
    body = '{% set vector_width = 1 %}{% set subgroups = 0 %}{% include "lib/params.wgsl" %}'
    assert "struct Params" in shader_of(tmp_path, body).text
    assert shader_of(tmp_path, body, {"params.wgsl": "mine"}).text == "mine\n"
    (tmp_path / "lib" / "params.wgsl").unlink()
    assert "struct Params" in shader_of(tmp_path, body).text


def test_the_revision_of_a_kernel_changes_with_its_files(tmp_path: Path) -> None:
    body = '{% include "lib/part.wgsl" %}{% include "lib/params.wgsl" %}'
    path = tmp_path / "layer_norm" / "mine.wgsl"
    shader_of(tmp_path, body, {"part.wgsl": "a"})
    first = revision(path)
    variant = default_variant(load(path), SIMPLE, GPU)

    def again() -> int:
        render_shader(variant, SIMPLE, "native", GPU)
        return revision(path)

    assert again() == first == revision(path)
    write_later(tmp_path / "lib" / "part.wgsl", "b")
    second = revision(path)
    assert second != first
    assert again() == second
    # A snippet that overrides webnorm's is new.
    (tmp_path / "lib" / "params.wgsl").write_text("mine")
    third = revision(path)
    assert third not in (first, second)
    # In `again`, a rendering sees the files before `revision` does.
    assert again() == third
    (tmp_path / "lib" / "part.wgsl").write_text("cc")
    assert again() != third
    path.write_text(path.read_text() + "more")
    assert revision(path) not in (first, second, third)
    assert revision(tmp_path / "layer_norm" / "other.wgsl") != revision(path)
