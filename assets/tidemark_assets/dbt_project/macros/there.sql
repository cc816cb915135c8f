{#- Whether a table is there. A table of a kind of row that has not occurred yet is not. Its name is
    asked for alone: dbt's own way opens every table of the database. -#}
{% macro there(relation) %}
  {% if not execute %}{{ return(true) }}{% endif %}
  {% set named = 'show tables in ' ~ relation.include(identifier=false) ~ " like '" ~ relation.identifier ~ "'" %}
  {{ return(run_query(named) | length > 0) }}
{% endmacro %}
