{#- Computes `low` and `rstd` from the sums of the second sweep, `deviation` = sum of (x - mean) and `spread` = sum of
    (x - mean)²/COLS. `mean` was rounded to float32; `low` is its rounding error, and mean + low is the mean to twice the
    digits.

    spread - low² must not cancel. With a pivot p the error of the mean is at most half a unit in the last place, plus the
    rounding error of mean - p. The latter is at most sqrt(COLS) standard deviations, so its rounding is negligible. As to
    the half unit: in that unit values are integers, and integers whose mean is d from an integer have a variance of at
    least d(1 - d), which is at least d². Without a pivot `low` may be several units, and in a row of equal values only
    rounding is left. Types narrower than float32 need no pivot: if their values differ at all, one standard deviation is
    at least 32 units of float32 (float16, 65536 columns), so a variance below low² means a row of equal values. #}
    let low = deviation / f32(COLS);
    // Beyond float32's range, infinity minus infinity would be NaN, and max() would turn NaN into 0.
{% if without_pivot is defined and without_pivot %}
    let alike = spread - low * low < 0.5 * spread;
    let variance = select(select(spread - low * low, spread, spread > 1e38), 0.0, alike);
{% else %}
    let variance = select(spread, max(spread - low * low, 0.0), spread < 1e38);
{% endif %}
    let rstd = inverseSqrt(variance + params.eps);
