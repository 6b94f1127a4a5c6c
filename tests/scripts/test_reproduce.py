from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from locigraph.assembly.recipe import difference, read_recipe
from locigraph.scripts import cli
from locigraph.scripts.commands.training.reproduce import reproduce

SHIPPED = Path(__file__).parents[2] / "checkpoints"


def written(folder: Path, **recipe: object) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "recipe.yaml").write_text(yaml.safe_dump({"steps": [], "makes": "made", **recipe}))
    return str(folder)


def weights(folder: Path, **values: list[float]) -> Path:
    folder.mkdir(exist_ok=True)
    save_file({name: np.array(each, dtype=np.float32) for name, each in values.items()}, folder / "w.safetensors")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("name", ["default", "mixing", "reranker", "text", "mpnet/text", "mpnet/default"])
def test_every_shipped_model_has_a_recipe_whose_commands_can_be_read(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(SHIPPED.parent)
    recipe, read = read_recipe(SHIPPED / name), []
    for step in recipe.steps:
        command, *options = step.split()
        cli._parser(command).parse_args(options)
        read += [options[i + 1] for i, option in enumerate(options) if option == "--config"]
    assert all(Path(path).is_file() for path in read)
    reproduce(folder=str(SHIPPED / name), dry_run=True)
    assert capsys.readouterr().out.count("step ") == len(recipe.steps)


def test_the_steps_run_in_order_and_the_result_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = weights(tmp_path / "shipped", a=[1.0, 2.0])
    made = weights(tmp_path / "made folder", a=[1.0, 2.0])
    ran: list[list[str]] = []
    monkeypatch.setattr(cli, "main", ran.append)
    written(shipped, steps=["build --store 'a b'", "train"], makes=str(made))
    reproduce(folder=str(shipped))
    assert ran == [["build", "--store", "a b"], ["train"]]
    assert "step 2 of 2: locigraph train" in (said := capsys.readouterr().out)
    assert "to the last bit" in said


def test_a_difference_is_told_by_its_size_and_place(tmp_path: Path) -> None:
    shipped = weights(tmp_path / "shipped", a=[1.0, 2.0], b=[0.0])
    said = difference(shipped, weights(tmp_path / "near", a=[1.0, 2.5], b=[0.1]))
    assert "differs from" in said
    assert "at most 0.5, in a" in said
    assert "other names or shapes" in difference(shipped, weights(tmp_path / "other", a=[1.0]))


def test_a_missing_file_stops_it_before_any_work_and_says_where_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "one", needs={str(tmp_path / "talk.json"): "a corpus, from its page"}, steps=["train"])
    with pytest.raises(SystemExit) as stop:
        cli.main(["reproduce", folder])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert "talk.json: no such file; put it there: a corpus, from its page" in error


@pytest.mark.parametrize("text", [None, "steps: [", "makes: here", "- a list"])
def test_what_is_no_recipe_is_refused_in_one_line(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(SystemExit):
        cli.main(["reproduce", str(tmp_path)])
    assert len(capsys.readouterr().err.splitlines()) == 1
