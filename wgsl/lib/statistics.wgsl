{#- From the sums of the second sweep, `deviation` = sum of (x - mean) and `spread` = sum of (x - mean)²/COLS,
    to `low` and `rstd`. `mean` was rounded to float32; `low` is what the rounding took away, and
    mean + low is the mean to twice the digits. -#}
{% if hi_lo_mean %}
    let low = deviation / f32(COLS);
    let rstd = inverseSqrt(max(spread - low * low, 0.0) + params.eps);
{% else %}
    const low = 0.0;
    let rstd = inverseSqrt(spread + params.eps);
{% endif %}
