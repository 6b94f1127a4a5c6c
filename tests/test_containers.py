"""Dockerfile and compose file: what can be checked without a container."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from locigraph import __version__
from locigraph.retrieval.index.milvus_server import TESTED_VERSIONS
from locigraph.scripts.cli import _parser
from locigraph.serving.application import _OPEN
from tests.packages import ROOT

#: The instructions of the Dockerfile, with what they are given.
INSTRUCTIONS = [
    (name, given)
    for line in (ROOT / "Dockerfile").read_text().splitlines()
    if line and not line.startswith("#")
    for name, _, given in [line.partition(" ")]
]
COMPOSE: Mapping[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
SERVERS = [name for name, service in SERVICES.items() if "build" in service]
ALLOWED = [line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]


def given_to(instruction: str) -> list[str]:
    return [given for name, given in INSTRUCTIONS if name == instruction]


def words_of(service: str) -> list[str]:
    """The command of a service, by default that of the image."""
    (default,) = given_to("CMD")
    return [*SERVICES[service].get("command", json.loads(default))]


def options_of(service: str) -> Any:
    """The options with which a service runs ``locigraph serve``, as its parser reads them."""
    command, *words = words_of(service)
    assert command == "serve"
    return _parser("serve").parse_args(words)  # exits for an option that does not exist


def test_every_image_has_a_tag_that_stays() -> None:
    images = [service["image"] for service in SERVICES.values()]
    images += [given.split()[0] for given in given_to("FROM")]
    for image in images:
        assert re.fullmatch(r"[\w./-]+:v?\d[\w.-]*", image), image
        assert "latest" not in image
    assert {SERVICES[name]["image"] for name in SERVERS} == {f"locigraph:{__version__}"}
    assert re.search(r":v(.*)$", SERVICES["milvus"]["image"]).group(1) in TESTED_VERSIONS  # type: ignore[union-attr]


def test_the_image_starts_the_command_as_a_user_without_rights_and_asks_for_a_path_that_needs_no_key() -> None:
    assert given_to("ENTRYPOINT") == ['["locigraph"]']
    assert given_to("USER") == ["locigraph"]
    assert [name for name, _ in INSTRUCTIONS].index("USER") > [name for name, _ in INSTRUCTIONS].index("RUN")
    (check,) = given_to("HEALTHCHECK")
    _, _, command = check.partition(" CMD ")
    compile(json.loads(command)[2], "HEALTHCHECK", "exec")
    (url,) = re.findall(r"http://[^']+", command)
    assert urlsplit(url).path in _OPEN
    assert str(urlsplit(url).port) == given_to("EXPOSE")[0] == str(_parser("serve").get_default("port"))


def test_everything_that_is_copied_exists_and_is_let_in_and_nothing_else_is() -> None:
    copied = [given.split()[:-1] for given in given_to("COPY") if not given.startswith("--from")]
    assert copied == [["constraints.txt"], ["."]]
    links = {path.name for path in (ROOT / "locigraph").iterdir() if path.is_symlink()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {"pyproject.toml", "constraints.txt", project["readme"], *project["license-files"], "locigraph", *links}
    assert {*ALLOWED} == needed
    assert all((ROOT / path).exists() for path in ALLOWED)


def test_the_extras_of_the_image_exist() -> None:
    (extras,) = [found[1] for run in given_to("RUN") if (found := re.search(r"'\.\[(.*)\]'", run))]
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*extras.split(",")} <= known.keys()


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_has_options_that_exist_and_finds_key_file_volume_and_port(name: str) -> None:
    service, options = SERVICES[name], options_of(name)
    assert options.host == "0.0.0.0"  # or nothing outside its container could reach it
    assert [options.key_file] == [f"/run/secrets/{secret}" for secret in service["secrets"]]
    assert service["ports"] == [f"127.0.0.1:{options.port}:{options.port}"]
    (folder,) = given_to("VOLUME")
    assert [volume.partition(":")[2] for volume in service["volumes"]] == [folder]
    assert any(given.endswith(f"XDG_CACHE_HOME={folder}/cache") for given in given_to("ENV"))
    assert "://" in options.store or options.store.startswith(f"{folder}/")


def test_the_servers_that_a_command_names_are_services_of_its_profile_and_waited_for() -> None:
    options, service = options_of("locigraph-on-servers"), SERVICES["locigraph-on-servers"]
    store = urlsplit(options.store)
    assert {store.hostname, urlsplit(options.index.uri).hostname} == service["depends_on"].keys()
    for name in service["depends_on"]:
        assert SERVICES[name]["profiles"] == service["profiles"]
        assert SERVICES[name]["healthcheck"]
        assert "ports" not in SERVICES[name]  # only the servers of this file can reach it
    database = SERVICES["postgres"]["environment"]
    assert (store.username, store.path) == (database["POSTGRES_USER"], f"/{database['POSTGRES_DB']}")
    assert store.password is None
    assert service["environment"]["PGPASSWORD"] == database["POSTGRES_PASSWORD"]


def test_every_service_has_a_profile_and_what_it_names_is_declared() -> None:
    assert sorted({*(profile for service in SERVICES.values() for profile in service["profiles"])}) == [
        "files",
        "servers",
    ]
    for service in SERVICES.values():
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= COMPOSE["volumes"].keys()
        assert {*service.get("secrets", ())} <= COMPOSE["secrets"].keys()
        assert {each["source"] for each in service.get("configs", ())} <= COMPOSE["configs"].keys()
    for config in COMPOSE["configs"].values():
        assert yaml.safe_load(config["content"])


def test_the_key_file_is_kept_out_of_version_control_and_of_the_image() -> None:
    (file,) = [secret["file"] for secret in COMPOSE["secrets"].values()]
    assert file.removeprefix(".") in (ROOT / ".gitignore").read_text().splitlines()
    assert file.removeprefix("./") not in ALLOWED
