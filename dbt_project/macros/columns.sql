{# What is known of columns: told to the catalog and to Dagster. #}

{#- Write all comments in one commit, where dbt-spark makes one for each column, and only if a build
    has recreated the table. -#}
{% macro spark__alter_column_comment(relation, column_dict) %}
  {% set comments = [] %}
  {% for name, column in column_dict.items() if column.description %}
    {% do comments.append(adapter.quote(name) ~ ' comment ' ~ text_literal(column.description)) %}
  {% endfor %}
  {% if comments and not is_incremental() %}
    {% do run_query('alter table ' ~ relation ~ ' alter column ' ~ comments | join(', ')) %}
  {% endif %}
{% endmacro %}

{% macro spark__comment_clause() %}
  {%- if config.get('persist_docs', {}).get('relation') -%}
    comment {{ text_literal(model.description) }}
  {%- endif -%}
{% endmacro %}

{#- Return a text as a literal of Spark SQL, in which a backslash escapes; dbt-spark escapes only
    quotes. -#}
{% macro text_literal(text) -%}
  '{{ text | replace("\\", "\\\\") | replace("'", "\\'") }}'
{%- endmacro %}

{#- dagster-dbt takes columns, and by the compiled SQL their lineage, from this line of the log.
    Declared columns serve, without a question to the engine: contracts hold models to them. -#}
{% macro tell_columns() %}
  {% if execute and env_var('DAGSTER_DBT_CLI', '') %}
    {% set parents = {} %}
    {% for id in model.depends_on.nodes %}
      {% set parent = graph.sources[id] if id in graph.sources else graph.nodes[id] %}
      {% do parents.update({parent.relation_name: {'columns': plain(parent.columns)}}) %}
    {% endfor %}
    {% do log(tojson({'columns': plain(model.columns), 'parents': parents}), info=true) %}
  {% endif %}
{% endmacro %}

{% macro plain(columns) %}
  {% set found = {} %}
  {% for name, column in columns.items() %}
    {% do found.update({name: {'data_type': column.data_type, 'description': column.description}}) %}
  {% endfor %}
  {{ return(found) }}
{% endmacro %}
