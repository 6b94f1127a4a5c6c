"""``locigraph reproduce``: make a shipped checkpoint again, by the commands in its recipe."""

from __future__ import annotations

from pathlib import Path


def reproduce(*, folder: str, dry_run: bool = False) -> None:
    """Run the commands that made a checkpoint, and compare the result with it. Can be interrupted and run again.

    The commands run in this folder and write below ``data``. Each does only what is not done yet.

    Args:
        folder: Folder of the checkpoint or adapter, with its recipe.yaml.
        dry_run: Whether to print the commands instead of running them.
    """
    import shlex

    from locigraph.assembly.recipe import difference, read_recipe, require_files
    from locigraph.scripts import cli

    recipe = read_recipe(Path(folder))
    if not dry_run:
        require_files(recipe)
    for number, step in enumerate(recipe.steps, start=1):
        print(f"step {number} of {len(recipe.steps)}: locigraph {step}", flush=True)
        if not dry_run:
            cli.main(shlex.split(step))
    if not dry_run:
        print(difference(Path(folder), Path(recipe.makes)))
