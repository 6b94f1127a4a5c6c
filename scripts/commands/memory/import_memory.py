"""``locigraph import``: a memory from a file that ``locigraph export`` wrote."""

from __future__ import annotations

from locigraph.assembly.settings import REMEMBERED, EncoderSettings


def import_memory(file: str, *, store: str = "data/graph.sqlite", encoder: EncoderSettings = REMEMBERED) -> None:
    """Make a memory of an exported file, on any database: all rows or, after an error, none.

    Vectors are made again: those of texts here, after the rows, those of the graph and the index by locigraph verify,
    which also checks them. Can be interrupted and run again.

    Args:
        file: File that locigraph export wrote.
        store: The graph, which must not exist or be empty.
        encoder: Text encoder; by default the one that the exported memory remembers.
    """
    import gzip
    import io
    import zlib
    from contextlib import ExitStack
    from pathlib import Path

    from tqdm import tqdm

    from locigraph.assembly import defaults, opening
    from locigraph.assembly.graphs import embed_all
    from locigraph.kg.counts import counted
    from locigraph.kg.errors import LocigraphError, StoreError
    from locigraph.kg.store import Store
    from locigraph.scripts.console.terminal import printable

    try:
        with ExitStack() as opened:
            is_packed = file.endswith(".gz")
            raw = opened.enter_context(Path(file).open("rb"))
            lines = io.TextIOWrapper(gzip.GzipFile(fileobj=raw) if is_packed else raw, encoding="utf-8")
            graph = opened.enter_context(Store(store))
            rows = graph.import_lines(opened.enter_context(tqdm(lines, desc="import", unit="row")))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise LocigraphError(f"{file}: cannot be read ({reason}), so nothing was imported") from error
    except StoreError as error:
        raise LocigraphError(f"{file}: {error}") from error
    with Store(store) as graph:
        lacking = defaults.forget_missing_adapter(graph)
        if lacking:
            print(printable(f"note: this machine lacks adapter {lacking!r}, so the memory does without it"))
        used = defaults.encoder_settings(encoder, graph)
        texts = opening.text_encoder(used)
        defaults.remember_encoder(graph, used, texts)
        embed_all(graph.spaces(), graph, texts.without_adapter())
    done = f"{counted(rows, 'row')} of {file} imported into {store}" if rows else f"{store} holds {file} already"
    print(printable(f"{done}; run locigraph verify --store {store} to make its index"))
