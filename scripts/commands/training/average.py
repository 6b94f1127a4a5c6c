"""``locigraph average``: one checkpoint whose weights are the mean of several."""

from __future__ import annotations

from locigraph.kg.name_list import Names, names_in


def average(*, checkpoints: Names, output: str = "data/average") -> None:
    """Average the weights of checkpoints of one model that were trained on different corpora or with different seeds.

    The average transfers better to other kinds of conversations than any one of them (docs/experiments/history.md).

    Args:
        checkpoints: Folders of at least two checkpoints, of the same model and text encoder.
        output: Output folder; the checkpoint is written to its subfolder ``checkpoint``.
    """
    from pathlib import Path

    from locigraph.assembly import provenance
    from locigraph.training.averaging import averaged
    from locigraph.training.checkpoint import load_checkpoint

    loaded = [load_checkpoint(Path(folder)) for folder in names_in(checkpoints)]
    mean = averaged(loaded, **provenance.manifest(loaded[0].details["identity"].get("seed", 0) if loaded else 0))
    mean.save(Path(output) / "checkpoint")
    print(
        f"checkpoint {mean.version} in {Path(output) / 'checkpoint'}: the mean of {', '.join(mean.details['averaged'])}"
    )
