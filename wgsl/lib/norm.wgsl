{#- What every forward kernel stands on: the interface, a row's loads and stores, and what becomes of it. -#}
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/output.wgsl" %}
