{#- From the sums of the second sweep, `deviation` = sum of (x - mean) and `spread` = sum of (x - mean)²/COLS,
    to `low` and `rstd`. `mean` was rounded to float32; `low` is what the rounding took away, and
    mean + low is the mean to twice the digits. -#}
{% if hi_lo_mean %}
    let low = deviation / f32(COLS);
    // Past float32's range, infinity less infinity would be no number, and max() would make it 0.
    let variance = select(max(spread - low * low, 0.0), spread, spread > 1e38);
    let rstd = inverseSqrt(variance + params.eps);
{% else %}
    const low = 0.0;
    let rstd = inverseSqrt(spread + params.eps);
{% endif %}
