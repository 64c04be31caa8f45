"""The files for containers name what there is. They are not run here, as that needs an engine and images."""

import argparse
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.service.servers import BUCKET, object_server, store_variables
from tilewright.cli.service import add_arguments

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "packaging" / "service"
CONTAINERFILE = (FOLDER / "Containerfile").read_text()
COMPOSE: Mapping[str, Mapping[str, Mapping[str, object]]] = yaml.safe_load((FOLDER / "compose.yaml").read_text())


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    return parser.parse_args(words)


def test_the_image_is_made_of_what_there_is() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = re.findall(r"\[([\w,]+)\]\" && rm", CONTAINERFILE)
    assert set(wanted.split(",")) <= extras.keys()
    copied = [
        name for line in re.findall(r"^COPY (?!--from)(.*)$", CONTAINERFILE, re.MULTILINE) for name in line.split()[:-1]
    ]
    assert {"pyproject.toml", "README.md", "LICENSE", "src"} == set(copied)
    assert all((ROOT / name).exists() for name in copied)


def test_the_commands_are_ours() -> None:
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", CONTAINERFILE, re.MULTILINE)
    first, verb, *common = json.loads(entry)
    assert (first, verb) == ("tilewright", "service")
    api, workers = (parsed([*common, *COMPOSE["services"][name]["command"]]) for name in ("api", "workers"))
    assert (api.database, api.store) == (workers.database, workers.store) == ("env:DATABASE", "s3://tilewright/service")
    assert (api.workers, api.workers_only, workers.workers_only) == (0, False, True)
    assert str(api.folder).startswith("/var/lib/tilewright/")
    assert {"DATABASE", "TOKENS", "AWS_ENDPOINT_URL_S3"} <= COMPOSE["x-tilewright"]["environment"].keys()


def test_secrets_are_asked_for_and_have_no_default() -> None:
    asked = set(re.findall(r"\$\{(\w+)", (FOLDER / "compose.yaml").read_text()))
    given = dict(line.split("=", 1) for line in (FOLDER / "example.env").read_text().splitlines() if line[0] != "#")
    assert asked == given.keys()
    assert all(value.strip('"') == "" for value in given.values())


def test_who_depends_on_whom() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= services.keys()
        assert set(service["networks"]) <= COMPOSE["networks"].keys()
    assert COMPOSE["networks"]["inner"]["internal"] is True
    assert services["workers"]["networks"] == ["inner"]


@pytest.mark.slow
def test_the_bucket_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    boto3 = pytest.importorskip("boto3", reason="needs the extra [s3]")
    pytest.importorskip("moto.server", reason="needs the extra [servers]")
    python, flag, code = COMPOSE["services"]["bucket"]["entrypoint"]
    assert (python, flag) == ("python", "-c")
    with object_server() as address:
        for name, value in store_variables(address).items():
            monkeypatch.setenv(name, value)
        boto3.client("s3").delete_bucket(Bucket=BUCKET)
        for _ in range(2):
            exec(compile(code, "compose.yaml", "exec"), {})
        boto3.client("s3").head_bucket(Bucket="tilewright")
