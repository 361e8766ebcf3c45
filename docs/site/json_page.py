"""The reference page of webnorm's JSON files, and their schemas, from the classes that read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from webnorm.lab.results import result_files
from webnorm.op.registry import problem_types
from webnorm.web.package.manifest import LabIndex, PackageManifest
from wording import code, paragraphs, plain, table

# name: (title, description, classes).
_FILES = {
    "results": (
        "Results",
        "The output of `webnorm check` and `webnorm bench` with `--json`: one object with the keys of `Head` "
        "and `Origin`, and a list of `Result`. The `problem` of a result has its op's type. Unknown values "
        'have no key. A number that is not finite is a string: "inf", "-inf" or "nan".',
        (*result_files.FORMS, *problem_types()),
    ),
    "manifest": (
        "An export's manifest.json",
        "The keys that webnorm reads from a package. The README of a package explains the others.",
        (PackageManifest,),
    ),
    "lab": ("A lab's index.json", "The keys that webnorm reads from a lab.", (LabIndex,)),
}


def files() -> dict[str, str]:
    """Return the page, and a schema for each kind of file."""
    parts, found = ["# JSON files"], {}
    for name, (title, what, forms) in _FILES.items():
        file = f"{name}.schema.json"
        _, definitions = msgspec.json.schema_components(forms)
        found[file] = json.dumps({"$defs": definitions}, indent=1) + "\n"
        parts += [f"## {title}", what, f"As JSON Schema: [{file}]({file})."]
        for form, definition in definitions.items():
            parts.append(f"### {form.strip('_')}")
            parts += _form(definition)
    return {"json.md": "\n\n".join(parts) + "\n", **found}


def _form(definition: Mapping[str, Any]) -> Iterator[str]:
    """Yield the description of a class and the table of its keys."""
    if "description" in definition:
        yield paragraphs(definition["description"])
    needed = definition.get("required", ())
    yield table(
        ("key", "type", "presence"),
        (
            (code(name), _type(one), "always" if name in needed else "may be absent")
            for name, one in definition["properties"].items()
        ),
    )


def _type(schema: Mapping[str, Any]) -> str:
    """Return a type in words, as a cell of a table."""
    if "$ref" in schema:
        return code(schema["$ref"].rpartition("/")[2].strip("_"))
    if "enum" in schema:
        return " or ".join(code(json.dumps(value)) for value in schema["enum"])
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "anyOf" in schema:
        # Absent, never null.
        return " or ".join(_type(one) for one in schema["anyOf"] if one != {"type": "null"})
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") == "object":
        return f"object of {_type(schema.get('additionalProperties', {}))}"
    return plain(schema.get("type", "anything"))
