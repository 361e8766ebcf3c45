"""What a visitor of a lab's page sends, and nothing beside it: a results file that says little of the device.

The page makes it in web/assets/page/lab_submit.js. It has no address, no user agent, no features and limits
of the device, and no text that a driver wrote.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from webnorm.errors import WebnormError
from webnorm.files import forms
from webnorm.files.atomic import parse_json
from webnorm.files.forms import Size, at
from webnorm.gpu.timing import Method
from webnorm.lab.results import result_files
from webnorm.lab.results.result import MOST_GBPS, Cache, Status
from webnorm.op.registry import op_named

# Every op with all of its kernels, and 50 samples of each, takes half of it.
MOST_BYTES = 256 << 10
# Who measured: never webnorm's own machines, and nothing that a choice is made by.
ORIGIN = "visitor"

# A line, without what a terminal would obey.
_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*\Z"
_Line = Annotated[str, Meta(max_length=200, pattern=_LINE)]
_Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.+-]{1,100}\Z")]
_Flag = Annotated[str, Meta(pattern=r"^[a-z ]{1,40}\Z")]
_Time = Annotated[float, Meta(gt=0, le=1e15)]
# The largest difference of two float32 is 7e38; "inf" and "nan" are how JSON has them here.
_Error = Annotated[float, Meta(ge=0, le=1e39)] | Literal["inf", "nan"]
_Value = bool | Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)] | Annotated[str, Meta(max_length=40)]


class _Device(Struct, forbid_unknown_fields=True):
    adapter: _Line
    vendor: _Line
    driver: _Line
    backend: Literal["WebGPU"]
    type: Literal["CPU", "GPU"]
    subgroup_size: Annotated[int, Meta(ge=1, le=1024)] | None = None


class _Problem(Struct, forbid_unknown_fields=True):
    rows: Size
    cols: Size
    dtype: _Word
    eps: Annotated[float, Meta(ge=0, le=1e38)]
    distribution: _Word
    seed: Size
    scale: Annotated[float, Meta(gt=0, le=1e38)]
    options: Annotated[dict[_Word, _Value], Meta(max_length=50)]


class _Result(Struct, forbid_unknown_fields=True):
    op: _Word
    kernel: _Word
    constants: Annotated[dict[_Word, Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]], Meta(max_length=50)]
    problem: _Problem
    status: Status
    expected: bool | None = None
    max_abs_error: _Error | None = None
    max_rel_error: _Error | None = None
    median_ns: _Time | None = None
    p20_ns: _Time | None = None
    p80_ns: _Time | None = None
    samples_ns: Annotated[list[_Time], Meta(min_length=1, max_length=200)] | None = None
    dispatches_per_sample: Size | None = None
    timing_method: Method | None = None
    cache: Cache | None = None
    bytes: Size | None = None
    gbps: Annotated[float, Meta(ge=0, le=MOST_GBPS)] | None = None
    percent_of_copy: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    flags: Annotated[list[_Flag], Meta(max_length=10)] | None = None


class VisitForm(Struct, forbid_unknown_fields=True):
    """The declared form of a post."""

    schema: Literal[1]
    webnorm: _Word
    device: _Device
    results: Annotated[list[_Result], Meta(min_length=1, max_length=500)]


def parse_visit(body: bytes) -> str:
    """A post's body as the one text that says the same, in which it is kept; WebnormError for what is no
    visit, or what `webnorm compare` would not read.
    """
    try:
        data: Any = parse_json(body)
    except ValueError as error:
        raise WebnormError(f"the body is not JSON: {error}") from None
    with at("the body"):
        visit = forms.read(data, VisitForm)
        result_files.report_from_json(data)
        for result in visit.results:
            op_named(result.op)
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
