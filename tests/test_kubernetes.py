"""Test the manifests in `ops/kubernetes`.

The fields must be those of Kubernetes' own schemas and of the Spark operator's models, and the
names, commands, and settings must fit each other and the project that `tidemark new` creates.
"""

import copy
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubeflow_spark_api.models.spark_v1alpha1_spark_connect import SparkV1alpha1SparkConnect
from pydantic import ValidationError

from helpers.processes.commands import call
from helpers.suite.pages import ROOT
from tidemark.base.settings import Settings
from tidemark_streaming.monitor.app import create_application
from tidemark_streaming.monitor.overview import Monitor

Manifest = dict[str, Any]
KeyPath = tuple[str | int, ...]

FOLDER = ROOT / "ops/kubernetes"
STARTER = ROOT / "streaming/tidemark_streaming/starter/project"
VERSIONS = ("1.29", "1.37")
"""The oldest and the newest version of Kubernetes whose fields are verified."""

NAMES_OF_USERS = {
    "annotations",
    "labels",
    "matchLabels",
    "data",
    "sparkConf",
    "requests",
    "limits",
}
"""The fields that map names of the user's choice."""

TEXT = {"type": "string"}
IMAGE = {"repository": TEXT, "tag": TEXT, "pullPolicy": {"enum": ["Always", "IfNotPresent"]}}


def record(properties: Manifest) -> Manifest:
    """Return the schema of a mapping that has exactly these fields."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


# Dagster publishes no schema of its chart as a package. These are the fields in use, of the chart
# of Dagster 1.13.
CONFIG_MAPS = {"type": "array", "items": record({"name": TEXT})}
LOCATION = record(
    {
        "name": TEXT,
        "image": record(IMAGE),
        "dagsterApiGrpcArgs": {"type": "array", "items": TEXT},
        "port": {"type": "integer"},
        "envConfigMaps": CONFIG_MAPS,
        "includeConfigInLaunchedRuns": record({"enabled": {"const": True}}),
    }
)
RUN_LAUNCHER = record(
    {
        "type": {"const": "K8sRunLauncher"},
        "config": record({"k8sRunLauncher": record({"envConfigMaps": CONFIG_MAPS})}),
    }
)
DAGSTER_CHART = record(
    {
        "dagster-user-deployments": record({"deployments": {"type": "array", "items": LOCATION}}),
        "global": record({"serviceAccountName": TEXT}),
        "serviceAccount": record({"create": {"type": "boolean"}}),
        "runLauncher": RUN_LAUNCHER,
        "additionalInstanceConfig": record({"concurrency": {"type": "object"}}),
        "telemetry": record({"enabled": {"type": "boolean"}}),
    }
)


def manifests(name: str) -> list[Manifest]:
    """Return the resources in a file."""
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))


RESOURCES = [manifest for name in ("network", "engine", "clients") for manifest in manifests(name)]


def label(manifest: Manifest) -> str:
    """Return the kind and the name of a resource."""
    return f"{manifest.get('kind')} {manifest.get('metadata', {}).get('name')}"


def named(kind: str, name: str) -> Manifest:
    """Return the one resource of this kind and name."""
    (manifest,) = (manifest for manifest in RESOURCES if label(manifest) == f"{kind} {name}")
    return manifest


def containers() -> Iterator[Manifest]:
    """Yield the container of each client."""
    for manifest in RESOURCES:
        if manifest["kind"] == "Deployment":
            yield from manifest["spec"]["template"]["spec"]["containers"]


def is_valid(manifest: Manifest, version: str = VERSIONS[-1]) -> bool:
    """Return whether a resource has all required fields, and no unknown one."""
    try:
        if manifest.get("kind") == "SparkConnect":
            # The operator's models skip unknown fields.
            resource = SparkV1alpha1SparkConnect.from_dict(manifest)
            return resource is not None and resource.to_dict() == manifest
        kubernetes_validate.validate(manifest, version, strict=True)
    except (ValidationError, jsonschema.ValidationError):
        return False
    return True


@pytest.fixture(autouse=True)
def schemas_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read each file of Kubernetes' schemas once; the definitions have a megabyte."""
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", _schema_contents)


_schema_contents = cache(kubernetes_validate.utils.schema_contents)


def keys(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of each field in a resource whose name is not the user's."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from keys(item, (*path, index))
    elif isinstance(value, dict):
        for name, item in value.items():
            # A name with a slash is a label's.
            if "/" not in name:
                yield (*path, name)
            if name not in NAMES_OF_USERS:
                yield from keys(item, (*path, name))


def with_typo(manifest: Manifest, path: KeyPath) -> Manifest:
    """Return a copy in which the field at this path is misspelled."""
    changed = copy.deepcopy(manifest)
    parent: Any = changed
    for step in path[:-1]:
        parent = parent[step]
    parent[f"{path[-1]}s"] = parent.pop(path[-1])
    return changed


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", RESOURCES, ids=label)
def test_kubernetes_accepts_the_resource(manifest: Manifest, version: str) -> None:
    assert is_valid(manifest, version)


@pytest.mark.parametrize("manifest", RESOURCES, ids=label)
def test_a_misspelled_field_is_noticed(manifest: Manifest) -> None:
    # Without these two, the schema is not known.
    paths = [path for path in keys(manifest) if path not in {("kind",), ("apiVersion",)}]
    unnoticed = [path for path in paths if is_valid(with_typo(manifest, path))]
    assert unnoticed == []


def test_dagsters_chart_accepts_the_values() -> None:
    (values,) = manifests("dagster")
    jsonschema.validate(values, DAGSTER_CHART)
    open_part = ("additionalInstanceConfig", "concurrency")
    for path in keys(values):
        if path[:2] != open_part or path == open_part:
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(with_typo(values, path), DAGSTER_CHART)


def test_the_commands_exist() -> None:
    for container in containers():
        program, *words = container["command"]
        if program == "python":
            assert words[0] == "-m"
            assert importlib.util.find_spec(words[1]) is not None
            continue
        assert program == "tidemark"
        usage = call(words[0], "--help").stdout
        assert all(word in usage for word in words if word.startswith("--")), words
        # The sources and the asset are those of the project that `tidemark new` creates.
        assert words[1] in (STARTER / "shop/transforms.py").read_text() or (
            f'"{words[1]}"' in (STARTER / "shop/sources.py").read_text()
        )


def test_the_code_locations_exist() -> None:
    (values,) = manifests("dagster")
    for location in values["dagster-user-deployments"]["deployments"]:
        option, module = location["dagsterApiGrpcArgs"]
        assert option == "--module-name"
        file = f"{module.replace('.', '/')}.py"
        assert (STARTER / file).is_file() or importlib.util.find_spec(module) is not None


def test_the_settings_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    environment = dict(named("ConfigMap", "tidemark")["data"])
    for container in containers():
        for variable in container.get("env", []):
            if "value" in variable:
                environment[variable["name"]] = variable["value"].replace("$(POD_IP)", "10.1.2.3")
    for name, value in environment.items():
        if name.startswith("TIDEMARK_"):
            assert name.removeprefix("TIDEMARK_").lower() in Settings.model_fields
            monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.warehouse == environment["TIDEMARK_WAREHOUSE"]
    # Prometheus names the pod by its address, and people name the service.
    assert {"10.1.2.3", named("Service", "live-page")["metadata"]["name"]} <= {
        *settings.allowed_hosts
    }


def test_the_live_page_is_reached_and_checked(tmp_path: Path) -> None:
    (container,) = (each for each in containers() if each["command"][0] == "python")
    (port,) = container["ports"]
    assert port["containerPort"] == Settings.model_fields["watch_port"].default
    template = named("Deployment", "live-page")["spec"]["template"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
    (service_port,) = named("Service", "live-page")["spec"]["ports"]
    assert service_port["targetPort"] == port["name"]
    (rule,) = named("NetworkPolicy", "metrics")["spec"]["ingress"]
    assert rule["ports"] == [{"port": port["name"]}]
    settings = Settings(home=tmp_path)
    routes = {route.path for route in create_application(settings, Monitor(settings)).routes}  # pyright: ignore[reportAttributeAccessIssue]
    metrics = template["metadata"]["annotations"]["prometheus.io/path"]
    checks = [container[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe")]
    assert {metrics, *(check["path"] for check in checks)} <= routes
    assert {check["port"] for check in checks} == {port["name"]}


def test_the_names_fit_each_other() -> None:
    engine = named("SparkConnect", "engine")
    # The operator names the service so, and Spark's port is the default.
    address = named("ConfigMap", "tidemark")["data"]["TIDEMARK_REMOTE"]
    assert address == f"sc://{engine['metadata']['name']}-server:15002"
    for role in ("server", "executor"):
        pod = engine["spec"][role]["template"]["spec"]
        named("ServiceAccount", pod["serviceAccountName"])
    (values,) = manifests("dagster")
    named("ServiceAccount", values["global"]["serviceAccountName"])
    locations = values["dagster-user-deployments"]["deployments"]
    images = {container["image"] for container in containers()}
    assert images == {f"{at['image']['repository']}:{at['image']['tag']}" for at in locations}
    for manifest in RESOURCES:
        namespace = manifest["metadata"].get("namespace", manifest["metadata"]["name"])
        assert namespace == "shop"
        if manifest["kind"] in ("Deployment", "Service"):
            selector = manifest["spec"]["selector"]
            labels = selector.get("matchLabels", selector)
            pod = named("Deployment", labels["app.kubernetes.io/name"])["spec"]["template"]
            assert labels.items() <= pod["metadata"]["labels"].items()


def test_the_engine_has_the_version_of_spark() -> None:
    import pyspark

    assert named("SparkConnect", "engine")["spec"]["sparkVersion"] == pyspark.__version__
