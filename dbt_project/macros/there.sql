{#- Whether a table is there. A table of a kind of row that has not occurred yet is not. -#}
{% macro there(relation) %}{{ return(not execute or load_relation(relation) is not none) }}{% endmacro %}
