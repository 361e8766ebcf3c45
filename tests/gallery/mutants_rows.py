"""Mutants of the kernels of row ops. Each must fail its check."""

from __future__ import annotations

from mutants_elements import Mutant

# Mutants of every kernel that combines maximum and sum: cross-entropy and its gradient.
JOINING = (
    (
        "larger part scaled",
        "select(fma(a.y, scale, b.y), fma(b.y, scale, a.y)",
        "select(fma(b.y, scale, a.y), fma(a.y, scale, b.y)",
    ),
    ("parts not scaled", "let scale = exp(-abs(a.x - b.x));", "let scale = 1.0;"),
    ("difference halved", "exp(-abs(a.x - b.x))", "exp(-0.5 * abs(a.x - b.x))"),
    ("minimum of the parts", "vec2(max(a.x, b.x)", "vec2(min(a.x, b.x)"),
    ("maximum of parts left out", "vec2(max(a.x, b.x)", "vec2(a.x"),
    ("lane left out of the sum", "(v.x + v.y) + (v.z + v.w)", "(v.x + v.y) + v.z"),
    ("padded columns counted", '"select(Vec(), " ~ e ~ ", is_inside)"', "e"),
    ("padded columns as zeros", "select(Vec(LOWEST), ", "select(Vec(), "),
    ("columns masked by -inf are NaN", "max(greatest_of(most), LOWEST)", "greatest_of(most)"),
    ("last columns left out", ', is_inside)" }}', ', is_inside && thread == 0u)" }}'),
    (
        "one term too few",
        "{% for j in range(1, steps) %}\n    sum +=",
        "{% for j in range(2, steps) %}\n    sum +=",
    ),
    ("running sum not scaled", "fma(sums, exp(most - greater), exp(x - greater))", "sums + exp(x - greater)"),
    ("running sums of lanes not scaled", "total_of(sums * exp(most - largest))", "total_of(sums)"),
    ("maximum not moved on", "        most = greater;\n", ""),
)
IN_REGISTERS = (
    *JOINING,
    ("own maximum not replaced", "exp(largest - statistics.x) / statistics.y", "1.0 / statistics.y"),
    ("difference of maxima swapped", "exp(largest - statistics.x)", "exp(statistics.x - largest)"),
    ("not divided in long rows", "let scale = 1.0 / statistics.y", "let scale = 1.0"),
    ("column of the last step", "own + {{ j * stride }}u", "own + {{ [j, 6] | min * stride }}u"),
    ("stride counted in vec4", "own + {{ j * stride }}u", "own + {{ j * threads_per_row }}u"),
    ("first row of the workgroup for all", "place / THREADS;", "0u;"),
    ("every row the last", "min(row, params.rows - 1u)", "max(row, params.rows - 1u)"),
    (
        "workgroup count rounded down",
        "ceil_div(rows, rows_per_workgroup)",
        "max(1, rows // rows_per_workgroup)",
    ),
)


def _of(kernel: str, *mutants: tuple[str, str, str]) -> tuple[Mutant, ...]:
    """Return the mutants of a kernel."""
    return tuple(Mutant(kernel, *one) for one in mutants)


CROSS_ENTROPY = (
    *_of(
        "naive",
        ("maximum not subtracted", "load_logits(first + i) - largest", "load_logits(first + i)"),
        (
            "no maximum at all",
            "largest = max(largest, load_logits(first + i));",
            "largest = 0.0;",
        ),
        (
            "maximum not below 0",
            "var largest = load_logits(first);",
            "var largest = max(0.0, load_logits(first));",
        ),
        ("minimum in place of the maximum", "largest = max(", "largest = min("),
        (
            "large numbers added first",
            "log(sum) + (largest - load_logits(first + u32(load_targets(row))))",
            "(log(sum) + largest) - load_logits(first + u32(load_targets(row)))",
        ),
        ("next class", "u32(load_targets(row))", "min(u32(load_targets(row)) + 1u, classes - 1u)"),
        ("target of the first row", "load_targets(row)", "load_targets(0u)"),
        (
            "sign",
            "log(sum) + (largest - load_logits(first + u32(load_targets(row))))",
            "(load_logits(first + u32(load_targets(row))) - largest) - log(sum)",
        ),
        ("logarithm of base 2", "log(sum)", "log2(sum)"),
        ("sum without the last class", "var i = 0u; i < classes;", "var i = 0u; i + 1u < classes;"),
        ("mean of the exponentials", "log(sum)", "log(sum / f32(classes))"),
        (
            "loss divided by rows",
            "store_loss(row, log(sum) + ",
            "store_loss(row, 1.0 / f32(params.rows) * log(sum) + ",
        ),
        ("logit of the target left out", " - load_logits(first + u32(load_targets(row)))", " - largest"),
    ),
    *_of(
        "row_in_registers",
        *JOINING,
        (
            "logit of another row",
            "load_logits(first + u32(load_targets(existing)))",
            "load_logits(u32(load_targets(existing)))",
        ),
        (
            "large numbers added first",
            "log(statistics.y) + (statistics.x - class_logit)",
            "(log(statistics.y) + statistics.x) - class_logit",
        ),
        ("maximum of the invocation", "(statistics.x - class_logit)", "(largest - class_logit)"),
        ("one row too few", "thread == 0u && row <", "thread == 0u && row + 1u <"),
        ("written by none of most rows", "thread == 0u && row", "place == 0u && row"),
        ("stride counted in vec4", "own + {{ j * stride }}u", "own + {{ j * threads_per_row }}u"),
        (
            "workgroup count rounded down",
            "ceil_div(rows, rows_per_workgroup)",
            "max(1, rows // rows_per_workgroup)",
        ),
    ),
)
CROSS_ENTROPY_BACKWARD = (
    *_of(
        "naive",
        ("maximum not subtracted", "- largest", "- 0.0 * largest"),
        (
            "maximum not below 0",
            "var largest = load_logits(first);",
            "var largest = max(0.0, load_logits(first));",
        ),
        ("target left out", "(probability - select(0.0, 1.0, i == correct))", "probability"),
        ("target added", "(probability - select", "(probability + select"),
        ("next class", "i == correct", "i == correct + 1u"),
        (
            "target not scaled",
            "(probability - select(0.0, 1.0, i == correct)) * dloss",
            "probability * dloss - select(0.0, 1.0, i == correct)",
        ),
        ("gradient of the loss left out", ") * dloss", ")"),
        ("gradient of the next row", "load_dloss(row)", "load_dloss(min(row + 1u, params.rows - 1u))"),
        ("target of the first row", "load_targets(row)", "load_targets(0u)"),
        ("not divided by the sum", "- largest) / sum", "- largest)"),
        (
            "sum without the last class",
            "var i = 0u; i < classes; i++) {\n        sum",
            "var i = 0u; i + 1u < classes; i++) {\n        sum",
        ),
        ("divided by rows", ") * dloss", ") * dloss / f32(params.rows)"),
        (
            "sign",
            "(probability - select(0.0, 1.0, i == correct))",
            "(select(0.0, 1.0, i == correct) - probability)",
        ),
    ),
    *_of(
        "row_in_registers",
        *IN_REGISTERS,
        (
            "target of the vec4 alone",
            "at + vec4(0u, 1u, 2u, 3u) == vec4(correct)",
            "vec4(at) == vec4(correct / 4u * 4u)",
        ),
        ("lanes of the target reversed", "at + vec4(0u, 1u, 2u, 3u)", "at + vec4(3u, 2u, 1u, 0u)"),
        ("target left out in long rows", "(probability - one_hot(at, correct))", "probability"),
        (
            "gradient of another row",
            "load_dloss(existing)",
            "load_dloss(existing / {{ rows_per_workgroup + 1 }}u)",
        ),
    ),
)
CUMULATIVE_SUM = (
    *_of(
        "naive",
        (
            "exclusive",
            "        sum += load_x(first + i);\n        store_y(first + i, sum);",
            "        store_y(first + i, sum);\n        sum += load_x(first + i);",
        ),
        (
            "starts again after 1000 columns",
            "sum += load_x(first + i);",
            "sum = select(sum, 0.0, i == 1000u) + load_x(first + i);",
        ),
        (
            "starts again after 4 columns",
            "sum += load_x(first + i);",
            "sum = select(sum, 0.0, i % 4u == 0u) + load_x(first + i);",
        ),
        ("sum of magnitudes", "sum += load_x(first + i)", "sum += abs(load_x(first + i))"),
        ("running maximum", "sum += load_x(first + i)", "sum = max(sum, load_x(first + i))"),
        ("first column twice", "var sum = 0.0;", "var sum = load_x(first);"),
        ("last column not written", "i < cols", "i + 1u < cols"),
        (
            "carried between rows",
            "var sum = 0.0;",
            "var sum = select(0.0, load_x(max(first, 1u) - 1u), row > 0u);",
        ),
        ("along columns", "row * cols;", "row;"),
        (
            "sum rounded to float16",
            "store_y(first + i, sum)",
            "sum = quantizeToF16(sum); store_y(first + i, sum)",
        ),
        (
            "sum rounded to 16 bits",
            "store_y(first + i, sum)",
            "sum = bitcast<f32>(bitcast<u32>(sum) & 0xffffff00u); store_y(first + i, sum)",
        ),
    ),
    *_of(
        "scan",
        (
            "third lane without the first two",
            "vec4(0.0, 0.0, pairs.y, pairs.y)",
            "vec4(0.0, 0.0, 0.0, pairs.y)",
        ),
        ("fourth lane without the third", "vec4(0.0, v.x, 0.0, v.z)", "vec4(0.0, v.x, 0.0, 0.0)"),
        ("lanes off by one", "lane_of_segment >= {{ 2 ** power }}u", "lane_of_segment > {{ 2 ** power }}u"),
        ("sum across rows of a subgroup", "lane_of_segment >= {{ 2 ** power }}u", "true"),
        (
            "one round of lanes too few",
            "range(7) if 2 ** power < threads_per_row",
            "range(1, 7) if 2 ** power < threads_per_row",
        ),
        ("lane's own sum counted twice", "subgroupShuffleUp(inclusive{{ j }}, 1u)", "inclusive{{ j }}"),
        ("sum of a segment from its first lane", "lane | (lanes - 1u)", "lane / lanes * lanes"),
        ("sum of a segment from the last lane of the subgroup", "lane | (lanes - 1u)", "subgroup_size - 1u"),
        ("segment's own sum counted twice", "i < segment)", "i <= segment)"),
        ("one segment too few", "i < segment)", "i + 1u < segment)"),
        ("Vecs not added up", "    sum += subgroupShuffle(", "    sum = subgroupShuffle("),
        ("tiles not added up", "carried += sums.y", "carried = sums.y"),
        ("tiles start again", '{{ " + carried" if tiles > 1 }}', ""),
        ("own part of the tile carried", "carried += sums.y", "carried += sums.x"),
        ("tile moved on by a Vec too few", "tile * {{ tile }}u", "tile * {{ tile - vector_width }}u"),
        (
            "barrier before the sums of others missing",
            "        workgroupBarrier();\n        let count",
            "        let count",
        ),
        (
            "barrier between tiles missing",
            "    workgroupBarrier();\n{% endif %}\n    }",
            "{% endif %}\n    }",
        ),
        ("padded columns counted", "select(Vec(), x{{ j }}, at{{ j }} < cols)", "x{{ j }} + Vec(1.0)"),
        (
            "one segment too few in the sum of the tile",
            "let count = THREADS / subgroup_size;",
            "let count = THREADS / subgroup_size - 1u;",
        ),
        (
            "workgroup count rounded down",
            "ceil_div(rows, rows_per_workgroup)",
            "max(1, rows // rows_per_workgroup)",
        ),
    ),
)
ARGMAX = (
    *_of(
        "naive",
        ("last of equal ones", "x > largest", "x >= largest"),
        ("minimum", "x > largest", "x < largest"),
        ("maximum not below 0", "var largest = load_x(first);", "var largest = max(0.0, load_x(first));"),
        ("last column left out", "i < cols", "i + 1u < cols"),
        ("second column left out", "var i = 1u;", "var i = 2u;"),
        ("maximum not moved on", "            largest = x;\n", ""),
        ("index off by one", "found = i;", "found = i + 1u;"),
        ("index of all elements", "i32(found)", "i32(first + found)"),
        ("greatest magnitude", "let x = load_x(first + i);", "let x = abs(load_x(first + i));"),
        ("bits compared", "if (x > largest)", "if (bitcast<i32>(x) > bitcast<i32>(largest))"),
        (
            "rounded to float16",
            "let x = load_x(first + i);",
            "let x = quantizeToF16(clamp(load_x(first + i), -65504.0, 65504.0));",
        ),
        ("along columns", "load_x(first + i)", "load_x(min(row + i * params.rows, params.rows * cols - 1u))"),
    ),
    *_of(
        "shared_row",
        ("last of equal ones in an invocation", "x{{ j }} > most)", "x{{ j }} >= most)"),
        ("last of equal ones in joining", "b.y < a.y", "b.y > a.y"),
        ("whichever of equal ones", "y > x || (y == x && b.y < a.y)", "y > x"),
        (
            "bits compared",
            "    let x = bitcast<f32>(a.x);\n    let y = bitcast<f32>(b.x);",
            "    let x = a.x;\n    let y = b.x;",
        ),
        (
            "signed bits compared",
            "    let x = bitcast<f32>(a.x);\n    let y = bitcast<f32>(b.x);",
            "    let x = bitcast<i32>(a.x);\n    let y = bitcast<i32>(b.x);",
        ),
        ("lane not added to the index", "starts + vec4(0u, 1u, 2u, 3u)", "starts"),
        ("lanes swapped", "vec4(0u, 1u, 2u, 3u)", "vec4(0u, 2u, 1u, 3u)"),
        ("half of the vec4", "prefer(low, high)", "low"),
        ("one step too few", "(steps - 2) // per_round + 1", "(steps - 2) // per_round"),
        ("index of the round", "Indices(at{{ j }})", "Indices(start)"),
        (
            "past the end the next row",
            "min(start + {{ j * stride }}u, cols - {{ vector_width }}u)",
            "min(start + {{ j * stride }}u, params.rows * cols - first - {{ vector_width }}u)",
        ),
        ("maximum not moved on", "        most = max(most, x{{ j }});\n", ""),
        ("written by one row of the workgroup", "thread == 0u && row", "place == 0u && row"),
        (
            "workgroup count rounded down",
            "ceil_div(rows, rows_per_workgroup)",
            "max(1, rows // rows_per_workgroup)",
        ),
    ),
)
MUTANTS: dict[str, tuple[Mutant, ...]] = {
    "cross_entropy": CROSS_ENTROPY,
    "cross_entropy_backward": CROSS_ENTROPY_BACKWARD,
    "cumulative_sum": CUMULATIVE_SUM,
    "argmax": ARGMAX,
}
