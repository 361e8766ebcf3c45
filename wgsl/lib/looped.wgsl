{#- Whether an invocation works on one row after another. -#}
{% set looped = (capped is defined and capped) or loops_rows is defined %}
