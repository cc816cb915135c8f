{#- Whether a table is there. A table of a kind of row that has not occurred yet is not. Its name is
    asked for alone: dbt's own way opens every table of the database. -#}
{% macro there(relation) %}
  {% if not execute %}{{ return(true) }}{% endif %}
  {% set named = 'show tables in ' ~ relation.include(identifier=false) ~ " like '" ~ relation.identifier ~ "'" %}
  {{ return(run_query(named) | length > 0) }}
{% endmacro %}

{#- Stop with a sentence where a table that counts as one of windows lacks what all of them have. -#}
{% macro demand_columns(relation, needed) %}
  {% if execute %}
    {% set known = run_query('show columns in ' ~ relation).columns[0].values() %}
    {% set lacking = needed | reject('in', known) | join(', ') %}
    {% if lacking %}
      {{ exceptions.raise_compiler_error(
        "'" ~ relation.identifier ~ "' in models/sources.yml lacks " ~ lacking ~ ", which all windows"
        ~ " of Tidemark's have: name a table of another kind in a source of its own."
      ) }}
    {% endif %}
  {% endif %}
{% endmacro %}
