{#- From the sums of the second sweep, `deviation` = sum of (x - mean) and `spread` = sum of (x - mean)²/COLS,
    to `low` and `rstd`. `mean` was rounded to float32; `low` is what the rounding took away, and
    mean + low is the mean to twice the digits.

    spread - low² must not cancel. Behind a pivot p the mean is off by half a unit of its last place, and by what rounding
    takes from mean - p, which is at most sqrt(COLS) standard deviations: next to nothing of one. As to the half unit, in
    that unit values are whole numbers, and those whose mean lies d from one have a variance of d(1 - d) or more, no less
    than d². Without a pivot `low` may be some units, and of a row of one value rounding is all that is left. Types narrower
    than float32 can do without: where their values differ at all, one standard deviation is 32 units of float32 or more
    (float16, 65536 columns), so that a variance below low² is a row of one value. #}
    let low = deviation / f32(COLS);
    // Past float32's range, infinity less infinity would be no number; and max() would make 0 of what is none.
{% if without_pivot is defined and without_pivot %}
    let alike = spread - low * low < 0.5 * spread;
    let variance = select(select(spread - low * low, spread, spread > 1e38), 0.0, alike);
{% else %}
    let variance = select(spread, max(spread - low * low, 0.0), spread < 1e38);
{% endif %}
    let rstd = inverseSqrt(variance + params.eps);
