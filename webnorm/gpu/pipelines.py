"""Compilation of shaders on a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from webnorm.errors import WebnormError
from webnorm.gpu.backend import wgpu
from webnorm.gpu.compute_programs import bind_group_layout
from webnorm.gpu.device import Device
from webnorm.kernels.rendering.render import RenderedPass, Shader

_KINDS = {"read": "read-only-storage", "read_write": "storage"}


@dataclass(frozen=True)
class Pipeline:
    """A compiled pass with its bind group layout."""

    rendered: RenderedPass
    handle: Any
    layout: Any


def compile_shader(device: Device, shader: Shader, extra_bindings: int = 0) -> list[Pipeline]:
    """Compile a shader, and create one compute pipeline per pass with an explicit layout.

    Parameters
    ----------
    device : Device
        The device.
    shader : Shader
        A shader from `webnorm.render_shader`.
    extra_bindings : int, default 0
        The number of storage buffers that are bound after the shader's own.

    Returns
    -------
    list of Pipeline
        The pipelines, in the order of `shader.passes`.

    Raises
    ------
    WebnormError
        The compiler rejects the text (the message names the template's file and line), or the shader needs
        more workgroup memory than the device has, which wgpu does not check.

    Examples
    --------
    >>> import webnorm
    >>> device = webnorm.open_device()
    >>> kernel = webnorm.select(webnorm.discover(), "naive")
    >>> problem = webnorm.Problem(rows=4, cols=8)
    >>> variant = webnorm.default_variant(kernel, problem, device.traits)
    >>> shader = webnorm.render_shader(variant, problem, device.target, device.traits)
    >>> len(webnorm.compile_shader(device, shader))
    1
    """
    return create_pipelines(device, shader, create_module(device, shader), extra_bindings)


def create_module(device: Device, shader: Shader) -> Any:
    """Create wgpu's shader module, which parses and checks the text: the first half of `compile_shader`."""
    if shader.workgroup_bytes > device.traits.workgroup_storage:
        raise WebnormError(
            f"{shader.variant} uses {shader.workgroup_bytes} bytes of workgroup memory; "
            f"the limit is {device.traits.workgroup_storage}"
        )
    with _located(shader):
        return device.handle.create_shader_module(code=shader.text)


def refusal(device: Device, text: str) -> str | None:
    """Return the compiler's message for a text that it rejects; None for a valid text."""
    try:
        device.handle.create_shader_module(code=text)
    except wgpu.GPUError as error:
        return str(error)
    return None


def create_pipelines(device: Device, shader: Shader, module: Any, extra_bindings: int) -> list[Pipeline]:
    """Create a pipeline per pass, for which the driver compiles: the second half of `compile_shader`."""
    handle = device.handle
    pipelines = []
    behind = range(len(shader.bindings) + 1, len(shader.bindings) + 1 + extra_bindings)
    with _located(shader):
        for each in shader.passes:
            types = {} if shader.immediates else {0: "uniform"}
            types |= {binding.index: _KINDS[binding.access] for binding in each.bindings}
            layout = bind_group_layout(handle, {**types, **dict.fromkeys(behind, "storage")})
            pipeline = handle.create_compute_pipeline(
                layout=handle.create_pipeline_layout(
                    bind_group_layouts=[layout], immediate_size=shader.immediate_size
                ),
                compute={"module": module, "entry_point": each.entry_point},
            )
            pipelines.append(Pipeline(each, pipeline, layout))
    return pipelines


@contextmanager
def _located(shader: Shader) -> Iterator[None]:
    """Turn a compiler's message into a WebnormError with the template's file and line."""
    try:
        yield
    except wgpu.GPUError as error:
        raise shader.located_error(str(error)) from error
