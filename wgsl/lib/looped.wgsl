{#- Whether an invocation works on several rows in turn. -#}
{% set looped = (capped is defined and capped) or loops_rows is defined %}
