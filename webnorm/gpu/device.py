"""Adapters and devices: listing them, choosing one, and opening it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from webnorm.errors import WebnormError, one_line, sentence, shown, unknown
from webnorm.gpu import backend, compute_programs, wgpu_private
from webnorm.gpu.backend import IS_DAWN, wgpu
from webnorm.gpu.gate import Gate, forked, uses_wgpu
from webnorm.kernels.headers.traits import (
    DEVICE_FEATURES,
    IMMEDIATES,
    KNOWN_FEATURES,
    LANGUAGE_FEATURES,
    LARGEST_SUBGROUP,
    SMALLEST_SUBGROUP,
    SUBGROUP_SIZE_CONTROL,
    Traits,
    unknown_feature,
)

if TYPE_CHECKING:
    # Not imported at run time, because listing adapters need not wait for the template engine.
    from webnorm.kernels.rendering.render import Target

# wgpu-native's names for some features.
_NATIVE_NAME = {"subgroups": "subgroup"}
# wgpu-native's feature for immediates.
_IMMEDIATES = "immediates"
_TIMESTAMPS = "timestamp-query"
# wgpu's keys for an adapter's name, vendor, driver, backend and type.
_INFO = ("device", "vendor", "description", "backend_type", "adapter_type")
# wgpu's adapter types, the preferred ones first.
_TYPE_ORDER = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", "CPU")
_BACKEND_ORDER = ("Metal", "Vulkan", "D3D12", "OpenGL", "OpenGLES")
# Names the default adapter, for tests and for programs without an option for it.
ADAPTER_VARIABLE = "WEBNORM_ADAPTER"
_NO_ADAPTER = (
    "no adapter: Dawn accepts no GPU and no driver of this machine; install the driver of the GPU or a newer "
    "one, or use wgpu: --backend wgpu"
    if IS_DAWN
    else "no adapter: wgpu finds no GPU and no software driver; `webnorm doctor` shows what to install"
)
# The usage of buffers that shaders access and that can be copied from and to.
STORAGE_USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST

# The gate for listing adapters and opening devices, when there is no device yet.
opening = Gate(shuts=False)


def _known(handle: Any) -> frozenset[str]:
    """Return the features of an adapter or a device that shaders can use, by WebGPU's names."""
    return frozenset(name for name in DEVICE_FEATURES if _name_for(handle, name) in handle.features)


def _name_for(handle: Any, feature: str) -> str:
    """Return the name of a feature for an adapter or a device."""
    native = _NATIVE_NAME.get(feature, feature)
    return native if native in handle.features else feature


def _traits(
    features: frozenset[str], limits: Mapping[str, int], adapter_type: str, sizes: tuple[int, int]
) -> Traits:
    least, most = sizes
    return Traits(
        features=features & set(KNOWN_FEATURES),
        max_invocations=limits["max-compute-invocations-per-workgroup"],
        workgroup_storage=limits["max-compute-workgroup-storage-size"],
        software=adapter_type == "CPU",
        subgroup_min_size=least,
        subgroup_max_size=most,
    )


@dataclass(frozen=True)
class AdapterInfo:
    """An adapter, as wgpu lists it.

    Attributes
    ----------
    index : int
        The position in `webnorm.adapters()`.
    handle : object
        The wgpu adapter.
    name : str
        The name of the GPU or the software driver.
    vendor : str
        The vendor.
    driver : str
        The driver and its version.
    backend : str
        The API, such as "Vulkan"; on Dawn with its name, such as "Dawn Vulkan".
    type : str
        The type, such as "DiscreteGPU" or "CPU".
    """

    index: int
    handle: Any
    name: str
    vendor: str
    driver: str
    backend: str
    type: str

    def description(self) -> dict[str, str]:
        """Return the description of the adapter and its driver that files contain."""
        return {
            "adapter": self.name,
            "vendor": self.vendor,
            "driver": self.driver,
            "backend": self.backend,
            "type": self.type,
            "wgpu": getattr(self.handle, "implementation", backend.version()),
        }

    @property
    def features(self) -> frozenset[str]:
        """The features that webnorm uses, by WebGPU's names."""
        return _known(self.handle) | ({_TIMESTAMPS} & set(self.handle.features))

    @property
    def language_features(self) -> frozenset[str]:
        """The language extensions of WGSL that shaders can use, by their names in `requires` directives.

        wgpu needs no directive for immediate_address_space, and rejects it.
        """
        own: frozenset[str] | None = getattr(self.handle, "language_features", None)
        if own is not None:
            return own
        added = {IMMEDIATES} if _IMMEDIATES in self.handle.features else set()
        return backend.LANGUAGE_FEATURES | added

    @property
    def subgroup_sizes(self) -> tuple[int, int]:
        """The smallest and the largest size of subgroups; WebGPU's bounds if the adapter has no own."""
        reported: tuple[int, int] | None = getattr(self.handle, "subgroup_sizes", None)
        if reported is not None:
            return reported
        if SUBGROUP_SIZE_CONTROL not in self.features:
            return SMALLEST_SUBGROUP, LARGEST_SUBGROUP
        return _probed_subgroup_sizes(self.handle)

    @property
    def limits(self) -> Mapping[str, int]:
        """The limits of the adapter by WebGPU's names with dashes, such as "max-buffer-size"."""
        return dict(self.handle.limits)

    @property
    def target(self) -> Target:
        """The target of `webnorm.render_shader` whose text the compiler of the backend accepts."""
        target: Target = getattr(self.handle, "target", backend.TARGET)
        return target

    @property
    def traits(self) -> Traits:
        """The traits of a device with all features and limits of the adapter."""
        features = self.features | self.language_features
        return _traits(features, self.limits, self.type, self.subgroup_sizes)

    def __str__(self) -> str:
        return adapter_text(self.description())


def adapter_text(description: Mapping[str, Any]) -> str:
    """Return an adapter in words, from its description."""
    said = description
    return f"{said['adapter']} ({said['backend']}, {said['type']}, {said['driver']})"


def is_meant(choice: str, index: int, text: str) -> bool:
    """Return whether a choice is this adapter's index, or part of its text."""
    if choice.isascii() and choice.isdecimal():
        # `int` raises an error for thousands of digits.
        return len(choice) <= 9 and int(choice) == index
    return bool(choice.strip()) and choice.lower() in text.lower()


@cache
def _handles() -> Sequence[Any]:
    """Return wgpu's adapters, the same objects on every call.

    All OpenGL adapters of a process share one EGL context, and each listing guards it with a separate lock
    (wgpu-hal 29). wgpu-py polls each device in its own thread. So devices of two listings would use the
    context at once, and wgpu would abort the process. Devices of one listing wait for each other.
    """
    uses_wgpu()
    if IS_DAWN:
        return tuple(wgpu.gpu.enumerate_adapters_sync())
    with wgpu_private.cached_declarations():
        # Imported here because it takes 0.2 s, which `webnorm --help` need not spend.
        from wgpu.backends.wgpu_native import ffi

        wgpu_private.predeclare_types(ffi)
    return tuple(wgpu.gpu.enumerate_adapters_sync())


@cache
def _probed_subgroup_sizes(handle: Any) -> tuple[int, int]:
    """Return the sizes that pipelines accept: Dawn's Python interface does not report an adapter's own."""
    with opening:
        device = _request_device(handle, ["subgroups", SUBGROUP_SIZE_CONTROL], handle.limits)
        return compute_programs.probe_subgroup_sizes(device)


def _request_device(handle: Any, features: Sequence[str], limits: Mapping[str, int]) -> Any:
    """Request a device from an adapter of `_handles`. Raises RuntimeError on failure.

    In Dawn, as in the WebGPU specification, an adapter makes one device only. So this function lists the
    adapters again; they keep their order.
    """
    if not IS_DAWN or not any(handle is one for one in _handles()):
        return handle.request_device_sync(required_features=features, required_limits=limits)
    position = next(at for at, one in enumerate(_handles()) if one is handle)
    listed = wgpu.gpu.enumerate_adapters_sync()
    if position >= len(listed) or listed[position].info != handle.info:
        raise RuntimeError("the adapters have changed since they were listed; start a new process")
    return backend.request_dawn_device(listed[position], features, limits)


def adapters() -> list[AdapterInfo]:
    """List the adapters that wgpu finds, the preferred one first.

    GPUs precede software drivers, and Vulkan precedes OpenGL.

    Returns
    -------
    list of AdapterInfo
        The adapters; empty if there are none.

    Examples
    --------
    >>> import webnorm
    >>> [adapter.index for adapter in webnorm.adapters()][:1]
    [0]
    """
    with opening:
        found = sorted(((handle, handle.info) for handle in _handles()), key=lambda entry: _rank(entry[1]))
    return [_described(index, handle, info) for index, (handle, info) in enumerate(found)]


def _described(index: int, handle: Any, info: Mapping[str, str]) -> AdapterInfo:
    name, vendor, driver, api, kind = (info[key] for key in _INFO)
    # The API contains Dawn's name, so that results and tunings of the two backends differ.
    return AdapterInfo(index, handle, name, vendor, driver, f"Dawn {api}" if IS_DAWN else api, kind)


def _rank(info: Mapping[str, str]) -> tuple[int, int]:
    def place(name: str, order: tuple[str, ...]) -> int:
        return order.index(name) if name in order else len(order)

    return place(info["adapter_type"], _TYPE_ORDER), place(info["backend_type"], _BACKEND_ORDER)


def machine_memory() -> int | None:
    """Return the bytes of memory of this machine; None if unknown."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def chosen_name(choice: str | None) -> str | None:
    """Return the requested adapter, from `choice` or the environment; None for the preferred one."""
    return choice or os.environ.get(ADAPTER_VARIABLE) or None


def find_adapter(choice: str | None = None) -> AdapterInfo:
    """Find an adapter by its index or by part of its text.

    Parameters
    ----------
    choice : str, optional
        The index, or a part of the name, backend, type or driver; case does not matter. Default:
        $WEBNORM_ADAPTER, or else the first adapter.

    Returns
    -------
    AdapterInfo
        The first adapter that matches.

    Raises
    ------
    WebnormError
        No adapter matches, or there is none.

    Examples
    --------
    >>> import webnorm
    >>> webnorm.find_adapter("0").index
    0
    """
    if not isinstance(choice, str | None):
        raise WebnormError(f"adapter is {shown(choice)}; expected its index or part of its name, as text")
    source = "" if choice else f" (from {ADAPTER_VARIABLE})"
    choice = chosen_name(choice)
    found = adapters()
    if not found:
        raise WebnormError(_NO_ADAPTER)
    if choice is None:
        return found[0]
    for adapter in found:
        if is_meant(choice, adapter.index, str(adapter)):
            return adapter
    listing = "; ".join(f"{adapter.index}: {adapter}" for adapter in found)
    raise WebnormError(f"no adapter {shown(choice)}{source}; available: {listing}")


_devices: WeakSet[Device] = WeakSet()


class Device:
    """An open device, from `webnorm.open_device`.

    Attributes
    ----------
    adapter : AdapterInfo
        The adapter of the device.
    handle : object
        The wgpu device.
    limits : mapping of str to int
        The limits in force, by WebGPU's names with dashes.
    traits : Traits
        The limits and features that decide which kernels can run.
    target : {"native", "browser"}
        The target of `webnorm.render_shader` whose text the device's compiler accepts.
    gate : Gate
        The lock that calls take while they use wgpu.
    session : object
        The caches that calls on this device share.
    """

    session: Any = None

    def __init__(self, adapter: AdapterInfo, handle: Any, without: Collection[str] = ()) -> None:
        self.adapter = adapter
        self.handle = handle
        self.gate = Gate()
        _devices.add(self)
        self.limits: Mapping[str, int] = dict(handle.limits)
        features = _known(handle) | (adapter.language_features - set(without))
        self.traits = _traits(features, self.limits, adapter.type, adapter.subgroup_sizes)
        self.target: Target = adapter.target

    def __repr__(self) -> str:
        return f"<Device {one_line(str(self.adapter))}>"

    def __copy__(self) -> Device:
        """Return the device itself: it cannot be copied."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Device:
        """Return the device itself: it cannot be copied."""
        return self

    def __reduce__(self) -> Any:
        raise WebnormError(
            "a device belongs to its process and cannot be pickled; "
            "call webnorm.open_device in the other process"
        )

    @cached_property
    def timestamps(self) -> bool:
        """True if timestamp queries work, so that two timestamps differ."""
        with self.gate:
            known = _TIMESTAMPS in self.handle.features and self.timestamp_period > 0
            return known and compute_programs.probe_timestamps(self.handle)

    @cached_property
    def timestamp_period(self) -> float:
        """Nanoseconds per tick of a timestamp; 0.0 if unknown."""
        # WebGPU's timestamps are nanoseconds.
        return wgpu_private.timestamp_period(self.handle) if self.target == "native" else 1.0

    @cached_property
    def subgroup_size(self) -> int | None:
        """Invocations per subgroup, as a shader on the device reports it; None without subgroups."""
        with self.gate:
            if "subgroups" not in self.traits.features:
                return None
            return compute_programs.probe_subgroup_size(self.handle, self.target)

    @property
    def memory(self) -> int | None:
        """The machine's memory in bytes for a software adapter; None for others."""
        return machine_memory() if self.traits.software else None

    @property
    def lost(self) -> bool:
        """True if the device is lost, such as after a driver reset. The check takes about 13 µs."""
        with suppress(WebnormError):
            self.create_buffer(16)
        return self.gate.refusal is not None

    def run_pass(self, encode: Callable[[Any], None]) -> None:
        """Submit one compute pass. `encode` receives the pass, and adds dispatches to it."""
        compute_programs.run_pass(self.handle, encode)

    def create_buffer(self, size: int, usage: int = STORAGE_USAGE) -> Any:
        """Create a buffer.

        Parameters
        ----------
        size : int
            The size in bytes.
        usage : int, optional
            wgpu's usage flags. Default: a storage buffer that can be copied from and to.

        Returns
        -------
        object
            The wgpu buffer.

        Raises
        ------
        WebnormError
            The device has no room for it.
        """
        with self.gate:
            try:
                return self.handle.create_buffer(size=size, usage=usage)
            except wgpu.GPUOutOfMemoryError as error:
                raise WebnormError(
                    f"{self.adapter.name} has not enough memory for a buffer of {size} bytes"
                ) from error

    def description(self) -> dict[str, Any]:
        """Return the description of the device that results files contain."""
        return {
            **self.adapter.description(),
            "features": sorted(_known(self.handle) | ({_TIMESTAMPS} if self.timestamps else set())),
            "language_features": sorted(self.traits.features & {*LANGUAGE_FEATURES}),
            "limits": {
                name: self.limits[name]
                for name in (
                    "max-buffer-size",
                    "max-storage-buffer-binding-size",
                    "max-compute-invocations-per-workgroup",
                    "max-compute-workgroup-storage-size",
                    "max-compute-workgroups-per-dimension",
                )
            },
            **({"subgroup_size": self.subgroup_size} if self.subgroup_size else {}),
        }


def open_device(
    adapter: AdapterInfo | None = None,
    *,
    limits: Mapping[str, int] | None = None,
    without: frozenset[str] = frozenset(),
) -> Device:
    """Open a device with every feature that webnorm uses and with the adapter's limits.

    Parameters
    ----------
    adapter : AdapterInfo, optional
        An adapter from `webnorm.find_adapter`. Default: the adapter that `find_adapter()` returns.
    limits : mapping of str to int, optional
        Lower limits by WebGPU's names with dashes, such as "max-buffer-size". Use them to imitate a weaker
        adapter.
    without : frozenset of str, optional
        WebGPU features and WGSL language features to leave out, such as "subgroups".

    Returns
    -------
    Device
        The device.

    Raises
    ------
    WebnormError
        adapter is not an AdapterInfo, a limit or a feature is unknown, a limit is above the adapter's, or
        there is no adapter.

    Examples
    --------
    >>> import webnorm
    >>> device = webnorm.open_device(limits={"max-compute-invocations-per-workgroup": 64})
    >>> device.traits.max_invocations
    64
    """
    adapter = find_adapter() if adapter is None else adapter
    if not isinstance(adapter, AdapterInfo):
        raise WebnormError(f"adapter is {shown(adapter)}; expected one from webnorm.find_adapter")
    given = _checked_limits(adapter, {} if limits is None else limits)
    if not isinstance(without, frozenset | set | tuple | list) or set(map(type, without)) - {str}:
        raise WebnormError(f"without is {shown(without)}; expected a set of feature names")
    known = (*KNOWN_FEATURES, _TIMESTAMPS)
    for name in sorted({*without} - {*known}):
        raise WebnormError(f"without: {unknown_feature(name, known)}")
    native = _requested_features(adapter, set(without))
    with opening:
        try:
            handle = _request_device(adapter.handle, native, {**adapter.limits, **given})
        except RuntimeError as error:
            raise WebnormError(f"{adapter}: cannot open the device: {sentence(str(error))}") from error
        missing = set(native) - set(handle.features)
        if missing:
            raise WebnormError(f"{adapter}: the opened device lacks {', '.join(sorted(missing))}")
        if not IS_DAWN:
            wgpu_private.poll_only_when_asked(handle)
    return Device(adapter, handle, without)


def _requested_features(adapter: AdapterInfo, without: set[str]) -> list[str]:
    """Return the features to request, by the backend's names, without some of WebGPU's and WGSL's."""
    # WebGPU grants subgroups to every device with subgroup-size-control.
    left_out = without | ({SUBGROUP_SIZE_CONTROL} if "subgroups" in without else set())
    native = [_name_for(adapter.handle, name) for name in sorted(adapter.features - left_out)]
    immediates = _IMMEDIATES in adapter.handle.features and IMMEDIATES not in without
    return [*native, *([_IMMEDIATES] if immediates else [])]


def _checked_limits(adapter: AdapterInfo, limits: Mapping[str, int]) -> Mapping[str, int]:
    if not isinstance(limits, Mapping):
        raise WebnormError(f"limits is {shown(limits)}; expected a mapping of limit names to numbers")
    own = adapter.limits
    for name, value in limits.items():
        if name not in own:
            raise unknown("limit", name, own)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 1 << 63:
            raise WebnormError(f"limit {name} is {shown(value)}; expected an int of 0 or more")
    return {name: int(value) for name, value in limits.items()}


class _Forked:
    """The handle, after a fork, of a device that the parent process opened: every use raises an error."""

    def __getattr__(self, name: str) -> Any:
        opening.check()
        raise AttributeError(name)


def _after_fork() -> None:
    """Disable the parent's devices in a child process without releasing them.

    A release would wait for threads that do not exist in the child.
    """
    if not forked():
        return
    opened = list(_devices)
    wgpu_private.release_nothing([device.handle for device in opened])
    for device in opened:
        device.handle = _Forked()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):
        # Mesa's exit handler also waits for its threads. Handlers run in reverse order of registration, so
        # these two end the process before Mesa's runs.
        libc.on_exit(libc._exit, None)
        libc.on_exit(libc.fcloseall, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
