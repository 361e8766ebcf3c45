{#- From the sums of the second sweep, `deviation` = sum of (x - mean) and `spread` = sum of (x - mean)²/COLS,
    to `low` and `rstd`. `mean` was rounded to float32; `low` is what the rounding took away, and
    mean + low is the mean to twice the digits.

    spread - low² keeps its digits where `low` is at most half a unit of x's last place, which it is behind a pivot: in
    that unit values are whole numbers, and those whose mean lies d from one have a variance of d(1 - d) or more, no
    less than d². Without a pivot `low` may be some units, and of a row of one value rounding is all that is left. Types
    narrower than float32 can do without: where their values differ at all, they differ by more than float32 rounds. -#}
{% set unpivoted = pivot is defined and pivot is none %}
{% if hi_lo_mean %}
    let low = deviation / f32(COLS);
{% if unpivoted %}
    let alike = spread - low * low < 0.5 * spread;
{% endif %}
    // Past float32's range, infinity less infinity would be no number, and max() would make it 0.
    let variance = select({{ "select(spread - low * low, 0.0, alike)" if unpivoted else "max(spread - low * low, 0.0)" }}, spread, spread > 1e38);
    let rstd = inverseSqrt(variance + params.eps);
{% else %}
    const low = 0.0;
{% if unpivoted %}
    const alike = false;
{% endif %}
    let rstd = inverseSqrt(spread + params.eps);
{% endif %}
