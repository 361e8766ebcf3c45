{#- The basis of every forward kernel: the interface, a row's loads and stores, and its output. -#}
{% include "lib/interface.wgsl" %}

{% include "lib/row.wgsl" %}

{% include "lib/output.wgsl" %}
