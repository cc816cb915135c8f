{# What is known of columns: told to the catalog and to Dagster. #}

{#- All comments in one commit, where dbt-spark makes one for each column; and only where a build
    made the table anew. -#}
{% macro spark__alter_column_comment(relation, column_dict) %}
  {% if not is_incremental() %}
    {% set comments = [] %}
    {% for name, column in column_dict.items() if column.description %}
      {% do comments.append(
        adapter.quote(name) ~ " comment '" ~ dbt.escape_single_quotes(column.description) ~ "'"
      ) %}
    {% endfor %}
    {% do run_query('alter table ' ~ relation ~ ' alter column ' ~ comments | join(', ')) %}
  {% endif %}
{% endmacro %}

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
