"""Broken kernels must fail: each mutant changes one thing in a real template, and a check must find it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jinja2.bccache import Bucket, BytecodeCache

from testbed import (
    KERNELS,
    answers,
    compute,
    needs,
    option_problems,
    problem_of,
    rows_of,
    spoil_workgroup_memory,
    suited,
)
from webnorm.choice.defaults import default_variant
from webnorm.gpu.device import Device
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering import render, templates
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.lab.diagnose.hints import WrongResult, hints
from webnorm.lab.verify.accuracy import assess, tolerance
from webnorm.lab.verify.races import RaceOrLoopFault, find_fault
from webnorm.op.dtypes import Array
from webnorm.op.op import Task, make_inputs
from webnorm.ops.copy.problem import draw_x
from webnorm.ops.norms.corpus import CASES
from webnorm.ops.norms.op import complete_inputs
from webnorm.ops.norms.problem import NormOptions, NormProblem


@dataclass(frozen=True)
class Mutant:
    """A change of `old` to `new` in a file of wgsl/. The test tries `kernels` until a check fails.

    `equivalent` is the reason why a survivor is no fault of the harness. `hard` names the problems that must
    reveal the mutant: see `hard_problems`. For a `race`, the check also watches for races, because it shows
    only now and then. `most_lanes` is for mutants that change nothing if a workgroup has too few subgroups.
    """

    name: str
    file: str
    old: str
    new: str
    kernels: tuple[str, ...] = ("registers",)
    equivalent: str | None = None
    hard: str = "plain"
    race: bool = False
    most_lanes: int | None = None


REDUCE, ROW, MOMENTS = "lib/reduce.wgsl", "lib/row.wgsl", "lib/moments.wgsl"
TWO_PASS, WELFORD, SHUFFLED, HELD_ROW = (
    f"layer_norm/{name}.wgsl" for name in ("two_pass", "welford", "welford_subgroup", "row_in_registers")
)
GEOMETRY, LOADS, STORES = "lib/geometry.wgsl", "lib/loads.wgsl", "lib/stores.wgsl"
OUTPUT, WRITE, ENCODE, DTYPE = "lib/output.wgsl", "lib/write.wgsl", "lib/encode.wgsl", "lib/dtype.wgsl"
GRADIENT, COLUMNS, COLUMN_SUMS = "lib/gradient.wgsl", "lib/columns.wgsl", "lib/column_sums.wgsl"
GRADIENT_REGISTERS, GRADIENT_ROW = "lib/gradient_registers.wgsl", "lib/gradient_row.wgsl"
HELD = ("layer_norm_backward/registers",)
ONE_DISPATCH, IN_ONE = "lib/one_dispatch.wgsl", ("layer_norm_backward/one_dispatch",)
TWO_DISPATCH, IN_TWO = "lib/two_dispatch.wgsl", ("layer_norm_backward/two_dispatch",)
BACKWARD = ("layer_norm_backward/registers", "layer_norm_backward/tiles", "layer_norm_backward/naive")
MUTANTS = (
    Mutant("N - 1 for N in the mean", MOMENTS, 'sum_x({{ total("column_sum") }} * PER_COLUMN', 'sum_x({{ total("column_sum") }} / f32(COLS - 1u)', equivalent="the second word gives back whatever the mean is off by, and the pivot keeps that small"),
    Mutant("N - 1 for N in naive", "layer_norm/naive.wgsl", "total(sum) * PER_COLUMN", "total(sum) / f32(COLS - 1u)", ("naive",)),
    Mutant("N - 1 for N in the variance", "lib/interface.wgsl", "1.0 / f32(COLS)", "1.0 / f32(COLS - 1u)"),
    Mutant("eps outside the root", "lib/statistics.wgsl", "inverseSqrt(variance + params.eps)", "1.0 / (sqrt(variance) + params.eps)"),
    Mutant("no eps", "lib/statistics.wgsl", "variance + params.eps", "variance"),
    Mutant("rstd without the root", "lib/statistics.wgsl", "inverseSqrt(variance + params.eps)", "1.0 / (variance + params.eps)"),
    Mutant("the low word added to the variance", "lib/statistics.wgsl", "spread - low * low", "spread + 100.0 * low * low", ("registers", "naive")),
    Mutant("the low word forgotten", MOMENTS, '"-low * rstd" if twice', '"0.0 * rstd" if twice'),
    Mutant("the low word forgotten after one sweep", MOMENTS, '" - mean - low) * rstd"', '" - mean) * rstd"', ("streaming",)),
    Mutant("the low word with the wrong sign", TWO_PASS, '" - low"', '" + low"', ("two_pass",)),
    Mutant("no tail mask", GEOMETRY, 'select(otherwise, value, live(j, thread))', "value", ("registers", "two_pass", "welford")),
    Mutant("a tail one short", GEOMETRY, "return access(j, thread) < ACCESSES;", "return access(j, thread) + 1u < ACCESSES;", ("two_pass",)),
    Mutant("a tail one short, shifted", GEOMETRY, "columns(j, thread) < vec{{ lanes }}(COLS);", "columns(j, thread) < vec{{ lanes }}(COLS - 1u);"),
    Mutant("stores not guarded by the tail", STORES, '"row_exists && live(j, thread)"', '"row_exists"', ("two_pass", "registers")),
    Mutant("a row stride off by one", "lib/dtype.wgsl", "_start + row * COLS) / {{ elements }}u", "_start + row * (COLS - 4u)) / {{ elements }}u"),
    Mutant("the slice's start ignored", "lib/dtype.wgsl", "(params.{{ tensor.buffer }}_start + row * COLS) / {{ elements }}u", "(row * COLS) / {{ elements }}u", equivalent="a problem of one slice starts at 0; test_plan's small devices catch it"),
    Mutant("weight for bias", OUTPUT, "load_bias", "load_weight"),
    Mutant("bias for weight", OUTPUT, "load_weight", "load_bias"),
    Mutant("no weight", WRITE, '{{ " * " ~ weight if has_weight }}', ""),
    Mutant("no bias", WRITE, '{{ " + " ~ bias if has_bias }}', ""),
    Mutant("a butterfly that skips a distance", REDUCE, "for power in range(7) if", "for power in range(1, 7) if"),
    Mutant("a butterfly of the wrong distance", REDUCE, "subgroupShuffleXor(value, {{ offset }}u)", "subgroupShuffleXor(value, {{ 2 * offset }}u)"),
    Mutant("the wrong row's partials", REDUCE, "let first = place / {{ count }} * count;", "let first = 0u;"),
    Mutant("one partial too few", REDUCE, "let count = {{ count }} / subgroup_size;", "let count = max({{ count }} / subgroup_size / 2u, 1u);"),
    Mutant("partials beyond a subgroup forgotten", REDUCE, "i < count; i += subgroup_size", "i < subgroup_size; i += subgroup_size", most_lanes=16),
    Mutant("no barrier across subgroups", REDUCE, "        workgroupBarrier();\n        let count", "        let count", race=True),
    Mutant("two invocations that park in one place", "lib/park.wgsl", "workgroup_size }}u + place]", "workgroup_size }}u + place / 2u]"),
    Mutant("parked steps left out of the variance", MOMENTS, "squares += {{ d }} * {{ d }};", 'squares += {{ d }} * {{ d if j < kept else "0.0" }};'),
    Mutant("parked steps written as they are", MOMENTS, '{{ distance(again(j), "scaled_mean") }} * gain', "{{ again(j) }} * gain"),
    Mutant("sums that stay about the pivot", MOMENTS, "let squares = sums.y + by * (sums.x + sum);", "let squares = sums.y;", ("streaming",)),
    Mutant("a mean that leaves the pivots out", MOMENTS, 'let about_row = moved(count, own, {{ scaled_distance("pivot", "row_pivot") }}).x;', "let about_row = own.x;", ("streaming",), equivalent="the second word gives back whatever the mean is off by, and a pivot is no farther from it than a value is"),
    Mutant("sums that stay behind when the pivot moves", MOMENTS, "= sums.x;\n", "= own.x;\n", ("streaming_plain", "streaming")),
    Mutant("columns before the row's first counted", GEOMETRY, "f32(columns - before - select", "f32(columns - select", ("streaming",)),
    Mutant("columns past the row's last counted", GEOMETRY, " - row_shift - COLS, thread == last % THREADS)", " - row_shift - COLS, false)", ("streaming",)),
    Mutant("the first partial alone of an uneven row", REDUCE, "i < (THREADS - 1u) / subgroup_size + 1u;", "i < 1u;"),
    Mutant("no barrier across the subgroups of an uneven row", REDUCE, "        workgroupBarrier();\n        value = {{ type }}();", "        value = {{ type }}();", race=True),
    Mutant("an uneven row's partials not joined across lanes", REDUCE, "        }\n        value = {{ across }}(value);", "        }"),
    Mutant("no barrier in the tree", REDUCE, "[{{ set }}place] = value;\n    workgroupBarrier();\n{% for level", "[{{ set }}place] = value;\n{% for level", ("registers_plain", "streaming_plain"), race=True),
    Mutant("no barrier between levels", REDUCE, "[{{ set }}place] = value;\n    }\n    workgroupBarrier();", "[{{ set }}place] = value;\n    }", ("registers_plain", "streaming_plain"), race=True),
    Mutant("no barrier in a lesson's tree", TWO_PASS, "        workgroupBarrier();\n        if (thread < left)", "        if (thread < left)", ("two_pass",), race=True),
    Mutant("no barrier before a lesson's next sums", TWO_PASS, "    workgroupBarrier();  // before the next ones are written\n", "", ("two_pass",), race=True),
    Mutant("no barrier before Welford's moments are read", WELFORD, "    workgroupBarrier();\n    let moments", "    let moments", ("welford",), race=True),
    Mutant("no barrier before the subgroups' moments are read", SHUFFLED, "        workgroupBarrier();\n        let count", "        let count", ("welford_subgroup",), race=True),
    Mutant("no barrier before the subgroups' sums are read", HELD_ROW, "    workgroupBarrier();\n    var others", "    var others", ("row_in_registers",), race=True),
    Mutant("no barrier before the subgroups' next sums", HELD_ROW, "    workgroupBarrier();  // before the next ones are written\n", "", ("row_in_registers",), race=True),
    Mutant("the first subgroup's sum alone", HELD_ROW, "i < (THREADS - 1u) / subgroup_size + 1u;", "i < 1u;", ("row_in_registers",)),
    Mutant("the subgroups' sums not added across lanes", HELD_ROW, "return subgroupAdd(others);", "return others;", ("row_in_registers",)),
    Mutant("the variance of columns that do not exist", HELD_ROW, "where_live(h{{ j }} - mean, Vec(), {{ j }}u, thread)", "h{{ j }} - mean", ("row_in_registers",)),
    Mutant("the low word added", HELD_ROW, "affine((d{{ j }} - low)", "affine((d{{ j }} + low)", ("row_in_registers",)),
    Mutant("the tree's last level one short", REDUCE, "for k in range(1, levels", "for k in range(2, levels", ("registers_plain",)),
    Mutant("the tree reads one partial twice", REDUCE, "for k in range(1, 8)", "for k in range(0, 7)", ("streaming_plain", "registers_plain")),
    Mutant("Chan without the count", WELFORD, "let share = b.z / max(count, 1.0);", "let share = 0.5;", ("welford",)),
    Mutant("Chan without the count, in subgroups", SHUFFLED, "let share = b.z / max(count, 1.0);", "let share = 0.5;", ("welford_subgroup",)),
    Mutant("Chan without the distance", WELFORD, "a.y + b.y + delta * (delta * PER_COLUMN * (a.z * share))", "a.y + b.y", ("welford",)),
    Mutant("Chan without the distance, in subgroups", SHUFFLED, "a.y + b.y + delta * (delta * PER_COLUMN * (a.z * share))", "a.y + b.y", ("welford_subgroup",)),
    Mutant("Welford counts tail columns", WELFORD, "count += where_live(Vec(1.0), Vec(), j, thread);", "count += Vec(1.0);", ("welford",)),
    Mutant("Welford counts tail columns, in subgroups", SHUFFLED, "count += where_live(Vec(1.0), Vec(), j, thread);", "count += Vec(1.0);", ("welford_subgroup",)),
    Mutant("Welford divides by j", WELFORD, "delta / (count + Vec(1.0))", "delta / (count + Vec(2.0))", ("welford",)),
    Mutant("the same lane again and again", SHUFFLED, "subgroupShuffleXor(value, distance)", "subgroupShuffleXor(value, 1u)", ("welford_subgroup",)),
    Mutant("the sum of the sums instead of the columns", "lib/pivot.wgsl", "(value.x + value.y) + (value.z + value.w)", "(value.x + value.y) + (value.z + value.z)"),
    Mutant("rows not clamped", "lib/locate.wgsl", "let row = min(row_index, {{ row_count }} - 1u);", "let row = row_index;", equivalent="bounds checks and the guarded store make reads past the end harmless; browsers have both"),
    Mutant("stores not guarded by the row", "lib/locate.wgsl", "let row_exists = row_index < {{ row_count }};", "let row_exists = true;"),
    Mutant("threads of a row counted wrong", "lib/place.wgsl", "let thread = place % THREADS;", "let thread = place;"),
    Mutant("a pivot from the first row", "lib/pivot.wgsl", "let first = {{ load_input }}(row, 0u, 0u);", "let first = {{ load_input }}(0u, 0u, 0u);", ("two_pass", "streaming")),
    Mutant("no pivot in registers", MOMENTS, "let row_pivot = {{ row_pivot }};\n    var column_sum", "let row_pivot = 0.0;\n    var column_sum"),
    Mutant("no pivot of the invocation's own", MOMENTS, "var pivot = {{ own_pivot(loaded) }};", "var pivot = 0.0;", ("streaming",)),
    Mutant("no pivot in one sweep over registers", MOMENTS, "let pivot = {{ own_pivot(held) }};", "let pivot = 0.0;"),
    Mutant("no pivot in the gradient's registers", MOMENTS, "let pivot = {{ own_pivot(held) }};", "let pivot = 0.0;", HELD, hard="backward"),
    Mutant("no pivot of early sums", MOMENTS, "let pivot = {{ own_pivot(held) }};", "let pivot = 0.0;", HELD, hard="early"),
    Mutant("early sums that stay about the pivot", MOMENTS, 'fma(apart, own_g, {{ total("along") }})', '{{ total("along") }}', HELD, hard="early"),
    Mutant("early sums about the mean's first word", GRADIENT_ROW, "(low * rstd * means.y - sums.z * gain)", "(-sums.z * gain)", HELD, hard="early"),
    Mutant("the early sum of g lost", GRADIENT_ROW, "let level = -means.y * rstd;", "let level = 0.0;", HELD, hard="early"),
    Mutant("early sums of dy", GRADIENT_REGISTERS, "    across += {{ g }};", '    across += {{ held_step("dy", j) }};', HELD, hard="early"),
    Mutant("early sums without the weight", GRADIENT_REGISTERS, "    along += {{ g }} * {{ d }};", '    along += {{ held_step("dy", j) }} * {{ d }};', HELD, hard="early"),
    Mutant("no pivot in the parts of a row", "lib/split.wgsl", "let pivot = pivot_of(row);", "let pivot = 0.0;", ("split_row",)),
    Mutant("the next row's pivot", GRADIENT_REGISTERS, "let pivot_ahead = next_pivot;", "let pivot_ahead = pivot_of(next);", HELD, hard="backward"),
    Mutant("lanes beyond the partials joined in", REDUCE, "let lanes = min(count, subgroup_size);", "let lanes = subgroup_size;"),
    Mutant("every row reads the first one's tree", REDUCE, "let first = place - place % {{ count }};", "let first = 0u;", ("registers_plain",)),
    Mutant("a long loop that repeats a step", "lib/sweep.wgsl", "let j = first + {{ k }}u;", "let j = first;", ("streaming",)),
    Mutant("the copy leaves its last elements", "copy/copy.wgsl", "< end)", "< end - 1u)", ("copy",)),
    *(replace(Mutant(*mutant), hard="options") for mutant in (
        ("weight without its offset", LOADS, 'if tensor.name == "weight" and weight_offset else ""', 'if false else ""'),
        ("the wrong residual slot", ROW, 'load_residual(row, j, thread)" ~', 'load_x(row, j, thread)" ~'),
        ("no bias of the projection", ROW, '" + load_residual_bias(j, thread)" if', '"" if'),
        ("h not rounded before it is normalized", ROW, '{{ rounded_to(input_dtype, "h") }}', "h"),
        ("ties of h away from 0", DTYPE, "(bits + 0xfffu + ((bits >> {{ vec }}(13u)) & {{ vec }}(1u)))", "(bits + 0x1000u)"),
        ("h cut off instead of rounded", ROW, '{{ rounded_to(input_dtype, "h") }}', "bitcast<Vec>(bitcast<vec4<u32>>(h) & vec4(0xffffe000u))"),
        ("small h rounded as if it were large", DTYPE, "select(bitcast<{{ floats }}>(normal), small", "select(bitcast<{{ floats }}>(normal), bitcast<{{ floats }}>(normal)"),
        ("h given back without the residual", WRITE, "thread, {{ name ~ (j + 1 - count) ~ factor }}", 'thread, {{ "load_x(row, " ~ step(j + 1 - count) ~ ", thread)" if name == "h" else name ~ (j + 1 - count) ~ factor }}'),
        ("h never given back by sweeps", WRITE, "        store_h(row, row_exists, {{ j }}, thread, {{ h }});", "", ("naive",)),
        ("the words of the mean the other way round", WRITE, "row] = mean;\n        stats[params.stats_start + 3u * row + 1u] = {{ low }};", "row] = low;\n        stats[params.stats_start + 3u * row + 1u] = mean;"),
        ("amax after scaling", WRITE, "greatest(y{{ j }}, {{ step(j) }}", "greatest(y{{ j }}{{ scaling if tracks_amax }}, {{ step(j) }}"),
        ("amax after scaling, by sweeps", WRITE, "greatest({{ y_value }}, {{ j }}", "greatest({{ y_value ~ scaling }}, {{ j }}", ("naive",)),
        ("the largest y of columns that do not exist", OUTPUT, '{{ where_live("abs(y)", "Vec()", "j") }}', "abs(y)", ("naive",)),
        ("amax of the largest y instead of |y|", OUTPUT, 'where_live("abs(y)"', 'where_live("y"', ("rms_norm/naive",)),
        ("float8_e5m2 with e4m3fn's denormals", ENCODE, '"0.00006103515625", "65536.0"', '"0.00006103515625", "512.0"'),
        ("int8 without a smallest maximum", WRITE, "max(greatest_of_row(largest, place, lane, subgroup_size), 0x0d800000u)", "greatest_of_row(largest, place, lane, subgroup_size)", ("registers",), "a row of zeros is 0 times infinity then: llvmpipe makes the integer 0 of that NaN, which WGSL does not promise"),
        ("int8 with too large a smallest maximum", WRITE, "0x0d800000u", "0x3a83126fu"),
        ("amax not cleared", OUTPUT, "    atomicStore(&amax[0], 0u);\n", ""),
        ("scale for its inverse", OUTPUT, "1.0 / params.scale", "params.scale"),
        ("float8 not scaled", WRITE, '" * params.scale" if tracks_amax', '"" if tracks_amax'),
        ("float8 cut off instead of rounded", ENCODE, "let even = exact + vec4({{ 2 ** (shift - 1) - 1 }}u) + ((exact >> vec4({{ shift }}u)) & vec4(1u));", "let even = exact;"),
        ("float8 that does not saturate", ENCODE, "min(abs(value), vec4({{ largest }}))", "abs(value)"),
        ("float8 without denormals", ENCODE, "select(normal, small, size < vec4({{ normal }}))", "normal"),
        ("float8 without signs", ENCODE, "code | ((bits >> vec4(24u)) & vec4(0x80u))", "code"),
        ("int8 of another row's scale", WRITE, "y_scale[params.y_scale_start + row]", "y_scale[params.y_scale_start]"),
        ("int8 up to 128", WRITE, "127.0 / row_largest", "128.0 / row_largest"),
        ("int8 cut off instead of rounded", ENCODE, "clamp(round(value)", "clamp(trunc(value)"),
        ("bfloat16 cut off instead of rounded", ENCODE, " + 0x7fffu + ((bits >> {{ vec }}(16u)) & {{ vec }}(1u));", ";"),
        ("halves in the wrong order", ENCODE, "vec2(0.0, value.y)", "vec2(0.0, value.x)"),
        ("the saved mean's second word lost", WRITE, "+ 1u] = {{ low }};", "+ 1u] = 0.0;"),
        ("the saved rstd in the wrong place", WRITE, "+ 2u] = rstd;", "+ 1u] = rstd;"),
        ("bits of a shared word not cleared", STORES, "        atomicAnd(&{{ tensor.buffer }}[at], ~mask);\n", ""),
        ("a shared word written whole", STORES, "bits & mask);", "bits);", ("naive",)),
        ("rows that are not shifted", "lib/locate.wgsl", "row_shift = (params.x_start + row_index * COLS) % {{ lanes }}u;", "row_shift = 0u;"),
        ("capped workgroups that skip rows", "lib/locate.wgsl", "group += workgroup_count", "group += workgroup_count + 1u"),
        ("the first of the parameters for all", LOADS, 'tensor.base // size ~ "u + " if tensor.base else ""', '""'),
        ("the first of the parameters for all, by words", LOADS, '{{ at ~ "u + " if at }}', ""),
        ("the wrong half of a word", LOADS, "column % 2u == 1u", "column % 2u == 0u"),
    )),
    *(replace(Mutant(*mutant), hard="backward") for mutant in (
        ("dbias for dweight", GRADIENT_REGISTERS, '("dweight", "dy" ~ j ~ " * xhat" ~ j)', '("dweight", "dy" ~ j)', BACKWARD[:1]),
        ("dweight for dbias", COLUMNS, '("dbias", "dy" ~ k)', '("dbias", "dy" ~ k ~ " * xhat")', BACKWARD[1:2]),
        ("the sums in each other's place", GRADIENT, "if (at / CHUNKS == {{ loop.index0 }}u)", "if (at / CHUNKS == {{ loop.length - 1 - loop.index0 }}u)", BACKWARD[:1]),
        ("no mean of g * xhat", GRADIENT_ROW, "xhat{{ j }} * slope", "xhat{{ j }} * 0.0", BACKWARD[:1]),
        ("no mean of g * xhat in columns", COLUMNS, "- xhat * mean_gx{{ k }}", "", BACKWARD[2:]),
        ("no mean of g", GRADIENT_ROW, '{{ " + level" if has_mean }}', "", BACKWARD[:1]),
        ("no mean of g in columns", COLUMNS, '{{ " - mean_g" ~ k if has_mean }}', "", BACKWARD[2:]),
        ("dx without rstd", GRADIENT_ROW, "g{{ j }} * rstd + (", "g{{ j }} + (", BACKWARD[:1]),
        ("weight without its offset in a gradient", LOADS, 'if tensor.name == "weight" and weight_offset else ""', 'if false else ""', BACKWARD[:1]),
        ("dh forgotten", GRADIENT_ROW, '" + dh" ~ j if has_dh', '"" if has_dh', BACKWARD[:1]),
        ("dh forgotten in columns", COLUMNS, '" + dh" ~ k if has_dh', '"" if has_dh', BACKWARD[1:2]),
        ("the saved mean's second word not used", GRADIENT_ROW, '" - mean) * rstd - low_rstd"', '" - mean) * rstd"', BACKWARD[:1]),
        ("the projection's gradient without dh", GRADIENT_REGISTERS, '("dresidual_bias", "dx" ~ j)', '("dresidual_bias", "g" ~ j)', BACKWARD[:1]),
        ("a record of sums left out", GRADIENT, "record < params.partials_count", "record + 1u < params.partials_count", BACKWARD),
        ("the last level of the finish", GRADIENT, "range(7, -1, -1)", "range(7, 0, -1)", BACKWARD),
        ("rows of a workgroup that overwrite each other's sums", GRADIENT_REGISTERS, '"+=" if stream else "="', '"="', BACKWARD[:1]),
        ("x for dy where a row stays in words", GRADIENT_REGISTERS, '"fetch_" ~ name ~ "(row, "', '"fetch_x(row, "', BACKWARD[:1]),
        ("two invocations that park x in one place", "lib/park.wgsl", "parked[{{ (j - first_parked) // fetched * workgroup_size }}u + place]", "parked[{{ (j - first_parked) // fetched * workgroup_size }}u + place / 2u]", BACKWARD[:1]),
        ("another row read again", GRADIENT_REGISTERS, '"load_x(row + hidden, "', '"load_x(row + 1u, "', BACKWARD[:1]),
        ("sums of rows that do not exist", GRADIENT_REGISTERS, 'term if rows_per_workgroup == 1 else "select(Vec(), " ~ term ~ ", row_exists)"', "term", BACKWARD[:1]),
        ("columns of rows that are not shifted", COLUMNS, "row_shift = (params.x_start + group * COLS) % 4u;", "row_shift = 0u;", BACKWARD[1:2]),
        ("rows skipped by the columns", COLUMNS, "params.partials_count) {\n{% for k", "params.partials_count + 4u) {\n{% for k", BACKWARD[1:2]),
        ("rows of a batch that do not exist", COLUMNS, '"if (first + " ~ k ~ "u * params.partials_count < params.rows) " if k', '""', BACKWARD[1:2]),
        ("g without the weight", GRADIENT_ROW, '{{ " * " ~ (weight_again', '{{ " + 0.0 * " ~ (weight_again', BACKWARD[:1]),
        ("two invocations that park the weight in one place", "lib/park.wgsl", "workgroup_size }}u + place]", "workgroup_size }}u + place / 2u]", BACKWARD[:1]),
        ("the last row added again and again", ONE_DISPATCH, '"if (first + " ~ k ~ "u * DOWN < params.rows) " if k', '""', IN_ONE),
        ("one row for all of a batch", ONE_DISPATCH, '"min(first + " ~ k ~ "u * DOWN, params.rows - 1u)" if k', '"first" if k', IN_ONE),
        ("a tile's invocations not all added up", COLUMN_SUMS, "range(10, -1, -1)", "range(10, 0, -1)", IN_ONE),
        ("rows counted from the first tile", ONE_DISPATCH, 'locate_row("(item - TILES)")', 'locate_row("item")', IN_ONE),
        ("the saved mean's second word not used in columns", "lib/saved.wgsl", '" - mean) * rstd - low * rstd"', '" - mean) * rstd"', IN_ONE),
        ("rows that do not exist in a tile", TWO_DISPATCH, "exists && index{{ k }} < params.rows", "exists", IN_TWO),
        ("the last chunk counted again in a tile", TWO_DISPATCH, "if (exists && index", "if (index", IN_TWO),
        ("a tile's rows not all added up", COLUMN_SUMS, "range(10, -1, -1)", "range(10, 0, -1)", IN_TWO),
        ("two tiles' shares in one place", TWO_DISPATCH, "(row{{ k }} * TILES + tile)", "(row{{ k }} * TILES + tile / 2u)", IN_TWO),
        ("half of a row's shares", TWO_DISPATCH, "tile = place; tile < TILES;", "tile = place; tile < (TILES + 1u) / 2u;", IN_TWO),
        ("the first share alone", TWO_DISPATCH, "other < TOGETHER; other++", "other < 1u; other++", IN_TWO),
        ("the saved mean's second word not used in either", "lib/saved.wgsl", '" - mean) * rstd - low * rstd"', '" - mean) * rstd"', IN_TWO),
        ("rstd and the mean of g * xhat swapped", "lib/row_sums.wgsl", "row_sums[at + 1u] = means.x;", "row_sums[at + 1u] = rstd;", BACKWARD[2:]),
    )),
    Mutant("N - 1 for N in RMSNorm", "lib/interface.wgsl", "1.0 / f32(COLS)", "1.0 / f32(COLS - 1u)", ("rms_norm/registers",)),
    Mutant("RMSNorm without the root", MOMENTS, "inverseSqrt(sum_squares", "1.0 / (sum_squares", ("rms_norm/streaming",)),
    Mutant("RMSNorm without eps", "rms_norm/naive.wgsl", "total(squares) + params.eps", "total(squares)", ("rms_norm/naive",)),
    Mutant("slices that overwrite each other's sums", GRADIENT, "if (params.partials_kept != 0u)", "if (false)", BACKWARD[:1], equivalent="one slice has nothing to add to; test_plan's narrow devices catch it", hard="backward"),
)  # fmt: skip

# The text in the first hint about a mutant's output, on the problem that reveals it. The table has all
# mutants whose mistake is one of the formulas.
HINTS = {
    "N - 1 for N in naive": "divides the mean by N - 1",
    "N - 1 for N in the variance": "divides the variance by N - 1",
    "eps outside the root": "adds eps outside of the root",
    "no eps": "leaves eps out",
    "rstd without the root": "leaves the root out of rstd",
    "weight for bias": "takes weight for bias",
    "bias for weight": "takes bias for weight",
    "no weight": "leaves weight out",
    "no bias": "leaves bias out",
    "N - 1 for N in RMSNorm": "divides the mean of squares by N - 1",
    "RMSNorm without the root": "leaves the root out of rstd",
    "RMSNorm without eps": "leaves eps out",
    "weight without its offset": "does not add",
    "the wrong residual slot": "adds x twice in h, and no residual",
    "no bias of the projection": "leaves residual_bias out of h",
    "h not rounded before it is normalized": "normalizes h before it is rounded",
    "h cut off instead of rounded": "h fits values that are cut off instead of rounded to float16",
    "h given back without the residual": "leaves the residual out of h",
    "amax after scaling": "takes amax after scaling",
    "scale for its inverse": "gives scale for its inverse",
    "float8 not scaled": "does not scale y",
    "float8 without signs": "y is wrong only where the answer is negative",
    "int8 up to 128": "scales rows to 128",
    "a tail one short": "column 60 of 61 of y was never written",
    "stores not guarded by the tail": "memory after the end of y has changed",
}

LAYOUTS = (
    {"threads_per_row": 4, "rows_per_workgroup": 4},
    {"threads_per_row": 16, "rows_per_workgroup": 2},
    {"threads_per_row": 16, "rows_per_workgroup": 2, "parked_weight": 1, "sweeps": 1},
    {"threads_per_row": 128, "rows_per_workgroup": 1, "row_batch": 2},
    {"threads_per_row": 128, "rows_per_workgroup": 2, "row_batch": 4},
)
Hard = tuple[NormProblem, dict[str, Array], dict[str, int]]


UNBROKEN = {kernel.label: kernel for kernel in KERNELS}


@cache
def hard_problems(label: str, which: str) -> tuple[Hard, ...]:
    """Return the problems of `draw_hard_problems` for a kernel, drawn once."""
    return tuple(draw_hard_problems(UNBROKEN[label], which))


def draw_hard_problems(kernel: Kernel, which: str) -> Iterator[Hard]:
    """Yield problems that reveal broken kernels, with their arrays and constants.

    "plain" has aligned and odd columns, tails, several rows per workgroup and rows over several subgroups. It
    also has means far from 0, a small variance, and layouts for each path of the reductions. "options" has
    the corpus's cases of options. "backward" has gradients with all options that add to them. "early" has
    float16 without saved statistics, where kernels compute the sums together with the moments.
    """
    op = kernel.op
    if which == "options":
        for case, problem in option_problems(op):
            yield problem, case.draw(Task(op, problem)), {}
        return
    if which == "early":
        yield from draw_early_problems(kernel)
        return
    everything = (
        op.defaults.changed(["saved_stats", "residual_bias", "dh", "zero_centered_weight"])
        if which == "backward"
        else op.defaults
    )
    for layout in LAYOUTS:
        for cols in (61, 132, 520):
            problem = suited(kernel, problem_of(op, rows=7, cols=cols, options=everything))
            arrays = make_inputs(op, problem)
            spread, means = np.float32(0.02), np.arange(-3, 4, dtype=np.float32)[:, None] * 50
            arrays = complete_inputs(
                Task(op, problem), {"x": arrays["x"] * spread + means}, np.random.default_rng(0)
            )
            yield problem, arrays, layout
    plain = op.defaults.plain()
    small = suited(kernel, problem_of(op, rows=3, cols=96, options=plain))
    yield (
        small,
        complete_inputs(Task(op, small), {"x": draw_x(small) * np.float32(1e-3)}, np.random.default_rng(0)),
        {},
    )
    for rows, cols, distribution in ((3, 4096, "mean1e4"), (2, 20003, "normal"), (2, 80003, "normal")):
        problem = problem_of(op, rows=rows, cols=cols, options=plain, distribution=distribution)
        yield problem, make_inputs(op, problem), {"threads_per_row": 64} if cols == 4096 else {}
    flat = [case for case in CASES if case.name in ("one-value", "neighbours")]
    whole = problem_of(op, rows=sum(case.shape[0] for case in flat), cols=flat[0].shape[1], options=plain)
    yield whole, rows_of(flat, op, whole), {"prefetch": 1}
    uneven = problem_of(op, rows=2, cols=768, options=plain)
    yield uneven, make_inputs(op, uneven), {"threads_per_row": 96, "rows_per_workgroup": 1, "parked": 2}
    if which == "backward":
        for dtype, kept in (("float16", "words"), ("float32", "parked")):
            held = problem_of(op, rows=5, cols=520, dtype=dtype, options=everything)
            yield (
                held,
                make_inputs(op, held),
                {"threads_per_row": 32, "rows_per_workgroup": 1, kept: 1 + (kept == "parked")},
            )


def draw_early_problems(kernel: Kernel) -> Iterator[Hard]:
    """Yield each way of keeping a row with a dy of large mean, and rows that need the mean's second word."""
    op, rng = kernel.op, np.random.default_rng(0)
    everything = op.defaults.changed(["saved_stats=false", "residual_bias", "dh", "zero_centered_weight"])
    alone = {"threads_per_row": 32, "rows_per_workgroup": 1}
    for layout in (*LAYOUTS, {**alone, "words": 1}, {**alone, "parked": 2}):
        problem = NormProblem(rows=7, cols=520, dtype="float16", options=everything)
        x = draw_x(problem) + np.arange(-3, 4, dtype=np.float16)[:, None]
        dy = (rng.standard_normal(x.shape) + 1).astype(np.float16)
        yield problem, complete_inputs(Task(op, problem), {"x": x, "dy": dy}, rng), layout
    # The mean is halfway between two float32 numbers.
    near = NormProblem(rows=3, cols=5460, dtype="float16", options=NormOptions(weight=False, bias=False))
    x = np.full((3, 5460), 1000, np.float16)
    x[range(3), [0, 777, 5459]] = 1000.5
    dy = (rng.standard_normal(x.shape) + 8).astype(np.float16)
    yield near, {"x": x, "dy": dy}, {"threads_per_row": 256, "rows_per_workgroup": 1}


def variant_of(
    kernel: Kernel, problem: NormProblem, device: Device, chosen: dict[str, int]
) -> Variant | None:
    """Return the kernel's defaults with some chosen constants, or None if the device cannot run that.

    It always uses the defaults of a software adapter, because a GPU's defaults skip paths that need a test.
    """
    traits = replace(device.traits, software=True)
    constants = dict(default_variant(kernel, problem, traits).constants)
    constants.update({axis: value for axis, value in chosen.items() if axis in kernel.tune})
    # The kernels support powers of two that are not on the axis.
    threads = constants.get("threads_per_row", 1)
    if 1024 % threads and threads not in kernel.tune["threads_per_row"]:
        return None
    variant = Variant(kernel, constants)
    return variant if variant.refusal(problem, device.traits) is None else None


class Compiled(BytecodeCache):
    """A cache of the snippets that Jinja has compiled.

    Each mutant has its own tree, with one changed file.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], bytes] = {}

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the name: snippets have the same name in every tree, and kernels have their path."""
        return name

    def load_bytecode(self, bucket: Bucket) -> None:
        code = self._kept.get((bucket.key, bucket.checksum))
        if code is not None:
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._kept[bucket.key, bucket.checksum] = bucket.bytecode_to_string()


COMPILED = Compiled()


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy webnorm's kernels into a tree like a mutant's, so that the renderer treats both alike."""
    return Path(shutil.copytree(wgsl_root(), tmp_path_factory.mktemp("untouched") / "wgsl"))


@pytest.fixture(autouse=True)
def shared_snippets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, untouched: Path) -> None:
    made = templates.TemplateEnvironment

    def environment(**named: Any) -> templates.TemplateEnvironment:
        return made(**{**named, "bytecode_cache": COMPILED})

    monkeypatch.setattr(templates, "TemplateEnvironment", environment)
    monkeypatch.setattr(render, "trusted_roots", [tmp_path.resolve(), untouched.resolve()])


@cache
def unbroken_text(
    label: str, constants: tuple[tuple[str, int], ...], problem: NormProblem, traits: Traits, tree: Path
) -> str:
    """Return the original of a mutant's text. The mutants of a kernel need the same texts repeatedly."""
    return render_shader(Variant(read_in(tree, label), dict(constants)), problem, "native", traits).text


def read_in(tree: Path, label: str) -> Kernel:
    """Load a kernel of webnorm's from a copy of its tree."""
    own = UNBROKEN[label]
    return load(tree / own.path.relative_to(wgsl_root()), own.op.name)


def caught(
    kernel: Kernel,
    device: Device,
    chosen: dict[str, int],
    which: str,
    watch: bool,
    untouched: Path,
) -> WrongResult | RaceOrLoopFault | None:
    """Return the first fault that the harness finds on the hard problems, or a race.

    The kernel's text must differ from the original.
    """
    changed = False
    for problem, arrays, layout in hard_problems(kernel.label, which):
        variant = variant_of(kernel, problem, device, {**layout, **chosen})
        if variant is None:
            continue
        shader = render_shader(variant, problem, "native", device.traits)
        constants = tuple(variant.constants.items())
        if shader.text == unbroken_text(kernel.label, constants, problem, device.traits, untouched):
            continue
        changed = True
        found: WrongResult | RaceOrLoopFault | None
        if watch:
            found = find_fault(device, variant, problem, arrays, ())
        else:
            found = failure_of(device, shader, arrays)
            found = None if assess(found.outputs, found.answers, shader, found.allowed).ok else found
        if found is not None:
            return found
    if not changed:
        # The mutant may change only the text for subgroups.
        needs(device, ["subgroups"])
    assert changed, "the mutant does not change the text of any rendering"
    return None


def failure_of(device: Device, shader: Shader, arrays: dict[str, Array]) -> WrongResult:
    """Return the data for hints, computed once, for wrong and correct results."""
    got, task = compute(device, shader, arrays), Task(shader.variant.kernel.op, shader.problem)
    return WrongResult(task, arrays, got, answers(shader, arrays, got), tolerance(shader))


@pytest.mark.sampled(ids=["N - 1 for N in the mean", "a mean that leaves the pivots out"])
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant(mutant: Mutant, device: Device, tmp_path: Path, untouched: Path) -> None:
    tree = tmp_path / "wgsl"
    shutil.copytree(wgsl_root(), tree)
    text = (tree / mutant.file).read_text()
    assert mutant.old in text
    (tree / mutant.file).write_text(text.replace(mutant.old, mutant.new))
    if mutant.most_lanes is not None and (device.subgroup_size or 1) > mutant.most_lanes:
        pytest.skip(f"subgroups of {device.subgroup_size} lanes are too few in a workgroup for it to matter")
    outcomes = []
    for kernel in mutant.kernels:
        spoil_workgroup_memory(device)
        constants = {"subgroups": 0} if kernel.endswith("_plain") else {}
        broken = read_in(tree, label_of(kernel))
        outcomes.append(caught(broken, device, constants, mutant.hard, mutant.race, untouched))
        if outcomes[-1]:
            break
    assert any(outcomes) == (mutant.equivalent is None), mutant.equivalent or "survived"
    if mutant.name in HINTS:
        found = outcomes[-1]
        assert isinstance(found, WrongResult) and HINTS[mutant.name] in hints(found)[0].text


def test_hints_are_those_of_mutants() -> None:
    assert HINTS.keys() <= {mutant.name for mutant in MUTANTS}


def label_of(name: str) -> str:
    """Return the label of a kernel that a mutant names. "registers_plain" is registers without subgroups."""
    name = name.removesuffix("_plain")
    return name if "/" in name or name == "copy" else f"layer_norm/{name}"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("label", sorted({label_of(name) for mutant in MUTANTS for name in mutant.kernels}))
def test_the_unbroken_kernels_pass_the_hard_problems(label: str, device: Device) -> None:
    """test_corpus covers the options, so this test leaves them out."""
    kernel = UNBROKEN[label]
    for problem, arrays, layout in hard_problems(kernel.label, "backward" if kernel.op.gradient else "plain"):
        variant = variant_of(kernel, problem, device, layout)
        if variant is not None:
            shader = render_shader(variant, problem, "native", device.traits)
            found = failure_of(device, shader, arrays)
            accuracy = assess(found.outputs, found.answers, shader, found.allowed)
            assert accuracy.ok, f"{variant} {problem}: {accuracy.reason}"
            # Hints are only for wrong results, but small problems may produce some.
            assert problem.rows * problem.cols > 4096 or not hints(found)
