"""The device of an engine, such as a browser, which this process starts."""

from __future__ import annotations

from typing import Any

from webnorm.engines.catalog import find_engine
from webnorm.engines.host import EngineHost, is_software
from webnorm.gpu.device import Device, open_device
from webnorm.gpu.remote import EngineFacts, remote_adapter


def open_engine(name: str) -> Device:
    """Start an engine and open a device on its adapter. The engine ends with this process.

    Raises WebnormError if the engine is missing, does not start, or has no adapter.
    """
    engine = find_engine(name)
    host = EngineHost(engine)
    return open_device(remote_adapter(host, _facts(host)))


def _facts(host: EngineHost) -> EngineFacts:
    said, adapter = host.facts, host.facts["adapter"]
    return EngineFacts(
        engine=str(host.engine),
        version=host.engine.version,
        name=_adapter_name(adapter),
        vendor=str(adapter.get("vendor") or ""),
        features=frozenset(said["features"]),
        language_features=frozenset(said["language_features"]),
        limits=said["limits"],
        software=is_software(adapter),
        subgroup_sizes=tuple(said["subgroup_sizes"]),
    )


def _adapter_name(adapter: Any) -> str:
    """Return the most specific name that an engine gives to its adapter."""
    parts = (adapter.get("vendor"), adapter.get("architecture"))
    known = (adapter.get("description"), adapter.get("device"), " ".join(filter(None, parts)))
    return str(next(filter(None, known), "an adapter without a name"))
