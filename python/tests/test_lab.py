"""Tests of the lab, using the command that was built along with the package."""

import os
from pathlib import Path

import pytest

import grosso

TARGET = Path(__file__).resolve().parents[2] / "target"


@pytest.fixture
def command() -> str:
    """Returns the command specified by ``GROSSO_COMMAND``, or the newest one built in this repository."""
    named = os.environ.get("GROSSO_COMMAND")
    if named:
        return named
    built = [path for path in TARGET.glob("*/grosso") if path.parent.name in ("debug", "release")]
    if not built:
        pytest.skip("the command is not built: cargo build")
    return os.fspath(max(built, key=lambda path: path.stat().st_mtime))


def test_an_experiment_is_a_dictionary(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        report = grosso.lab.run("tcp-stream", command=command, runs=1, time="200ms")
    except grosso.EnvironmentFailure as failure:
        pytest.skip(f"no hosts can be made here: {failure}")
    assert report["experiment"] == "tcp-stream"
    assert report["environment"]["runs"] == 1
    rows = [row for group in report["groups"] for row in group["rows"]]
    rates = [row["gigabits_a_cpu_second"]["median"] for row in rows]
    assert rates and max(rates) > 0
    assert report["verdicts"] == [], "no claim of a source is about one connection alone"
    assert not list(tmp_path.iterdir()), "a page was not asked for"


def test_a_page_is_written_where_it_is_asked_for(command: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    try:
        grosso.lab.run("tcp-rr", command=command, runs=1, time="50ms", html=page)
    except grosso.EnvironmentFailure as failure:
        pytest.skip(f"no hosts can be made here: {failure}")
    assert page.read_text().startswith("<!doctype html>")


def test_failures_are_those_of_the_command(command: str) -> None:
    with pytest.raises(grosso.UsageFailure, match="expected a time with a unit") as failure:
        grosso.lab.run("lro", command=command, time="1x")
    assert failure.value.exit == 2
    with pytest.raises(grosso.UsageFailure):
        grosso.lab.run("no-such-experiment", command=command)


def test_a_command_that_is_not_there_is_named_with_the_remedy() -> None:
    with pytest.raises(grosso.EnvironmentFailure, match="/nonexistent/grosso.*hint: install the command"):
        grosso.lab.run(command="/nonexistent/grosso")


def test_a_command_that_is_another_is_named_with_the_remedy() -> None:
    with pytest.raises(grosso.EnvironmentFailure, match="true.*no report.*hint: install the command") as failure:
        grosso.lab.run(command="true")
    assert failure.value.code == "environment.command"
