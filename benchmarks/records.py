"""Records of benchmarks: what was measured, with the commit, versions and options that led to it, as a JSON file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from locigraph.kg.corpora import Corpus
from locigraph.kg.files import replace_file
from locigraph.scripts.experiments import provenance

#: Options that say where files lie, and change no result.
_PLACES = {"output", "cache", "keep", "runs"}


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of a benchmark, ``--output`` among them; None for ``arguments`` takes those of the command line."""
    parser.add_argument("--output", type=Path, help="JSON file for the record; without it the results are only printed")
    options = parser.parse_args(arguments)
    provenance.source_commit()  # remembers it now: the source tree may move on while a benchmark runs
    return options


def write(
    options: argparse.Namespace,
    measured: Mapping[str, Any],
    *,
    corpora: Sequence[Corpus] = (),
    text_encoder: str | None = None,
    seed: int = 0,
) -> None:
    """Write what was measured, and what it was measured on, where ``--output`` says.

    Args:
        options: Of ``options_of``.
        measured: The results.
        corpora: What was read.
        text_encoder: ID of the text encoder; None where texts are not encoded, or as the command does by default.
        seed: Random seed of what is drawn.
    """
    if options.output is None:
        return
    manifest = provenance.manifest(
        seed,
        options={name: value for name, value in vars(options).items() if name not in _PLACES},
        corpora=[{"path": corpus.path, "sha256": corpus.sha256} for corpus in corpora],
        text_encoder=text_encoder,
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    replace_file(options.output, json.dumps({**measured, "manifest": manifest}, indent=1) + "\n")
    print(f"record: {options.output}")
