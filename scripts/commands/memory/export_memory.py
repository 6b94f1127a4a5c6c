"""``locigraph export``: everything that a memory holds, as one file."""

from __future__ import annotations


def export_memory(*, output: str, store: str = "data/graph.sqlite") -> None:
    """Write all that a memory holds into one file: turns, graph, history, owners, metadata, what was forgotten.

    The file is JSON Lines (docs/export.md), compressed if its name ends in .gz. Vectors are left out, since they
    are derived. What was forgotten is in it as keyed digests, so that it stays forgotten where the file is imported.

    Args:
        output: The file; it must not exist.
        store: The graph.
    """
    import gzip
    from contextlib import ExitStack
    from pathlib import Path

    from tqdm import tqdm

    from locigraph.assembly.opening import existing_store
    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.files import make_private
    from locigraph.scripts.console.terminal import printable

    target = Path(output)
    if target.exists():
        raise LocigraphError(f"{output}: the file exists; name a new one")
    part = target.with_name(f"{target.name}.part")
    try:
        make_private(part)
        with ExitStack() as opened:
            graph = opened.enter_context(existing_store(store))
            raw = opened.enter_context(part.open("wb"))
            file = opened.enter_context(gzip.open(raw, "wb")) if target.suffix == ".gz" else raw
            bar = opened.enter_context(tqdm(desc="export", unit="row"))
            for count, line in graph.exported():
                bar.total = count
                file.write(f"{line}\n".encode())
                bar.update()
        part.replace(target)
    except OSError as error:
        raise LocigraphError(f"{output}: cannot be written ({error.strerror})") from error
    finally:
        part.unlink(missing_ok=True)
    print(printable(f"{store} was exported to {output}"))
