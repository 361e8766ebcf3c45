{#- The parameters: a word for each name that the plan sets, in a uniform or in immediates. -#}
// `_start` is the element of a buffer at which the slice's first row begins.
struct Params {
{% for word in params %}
    {{ word }}: {{ "f32" if word in float_words else ("i32" if word in int_words else "u32") }},
{% endfor %}
}
{% if immediates %}
var<immediate> params: Params;
{% else %}
@group(0) @binding(0) var<uniform> params: Params;
{% endif %}
