#!/bin/bash
# Run a command. On Kubernetes, Spark starts each executor with the argument `executor`, and passes
# its options in the environment.
set -euo pipefail

if [ "${1:-}" != executor ]; then
	exec "$@"
fi

java_options=()
for variable in "${!SPARK_JAVA_OPT_@}"; do
	java_options+=("${!variable}")
done

exec java \
	"${java_options[@]}" \
	-Xms"$SPARK_EXECUTOR_MEMORY" \
	-Xmx"$SPARK_EXECUTOR_MEMORY" \
	-cp "${SPARK_EXTRA_CLASSPATH:+$SPARK_EXTRA_CLASSPATH:}$SPARK_HOME/conf:$SPARK_HOME/jars/*" \
	org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
	--driver-url "$SPARK_DRIVER_URL" \
	--executor-id "$SPARK_EXECUTOR_ID" \
	--cores "$SPARK_EXECUTOR_CORES" \
	--app-id "$SPARK_APPLICATION_ID" \
	--hostname "$SPARK_EXECUTOR_POD_IP" \
	--resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
	--podName "$SPARK_EXECUTOR_POD_NAME"
