"""``locigraph compare``: recompute the statistics of a record, and export its rankings for other tools."""

from __future__ import annotations

from locigraph.kg.name_list import Names, names_in


def compare(
    *,
    scores: str = "runs/evaluate/question_scores.jsonl.gz",
    also: Names | None = None,
    pairs: Names | None = None,
    metrics: Names = "recall@10,ndcg@10",
    without: Names | None = None,
    rankings: str | None = None,
    trec: str | None = None,
    seed: int = 0,
) -> None:
    """Compare strategies again, using the scores per question that ``locigraph evaluate`` has written.

    Args:
        scores: question_scores.jsonl.gz of locigraph evaluate, or of a record in docs/results.
        also: Further such files about the same questions. Strategies of the second file are named v2@2, those of the
            third v2@3, and so on.
        pairs: Comparisons such as v2:fusion,v2:v1, each the first minus the second; Holm's correction covers all of
            them within a metric. null for no comparisons.
        metrics: Names of the metrics.
        without: IDs of questions to leave out in addition to those that the record left out.
        rankings: rankings.jsonl of locigraph evaluate, for ``trec``.
        trec: Folder for the rankings and judgements in TREC's formats; null writes none. Call trec_eval with -c, so
            that questions for which a strategy found nothing count as 0.
        seed: Random seed of the statistics; the seed of the record reproduces its numbers.
    """
    from pathlib import Path

    from locigraph.kg.counts import counted
    from locigraph.kg.errors import LocigraphError
    from locigraph.research.evaluation.formatting import p_value, signed
    from locigraph.research.evaluation.question_scores import compare_again
    from locigraph.research.evaluation.trec import export_trec

    if not pairs and trec is None:
        raise LocigraphError("nothing to do; name comparisons with --pairs or a folder with --trec")
    if (rankings is None) != (trec is None):
        raise LocigraphError("rankings and trec belong together; give both or neither")
    if pairs:
        asked = [tuple(pair.split(":")) for pair in names_in(pairs)]
        for pair in asked:
            if len(pair) != 2:
                raise LocigraphError(
                    f"pair {':'.join(pair)!r} is not valid; expected two strategies joined by a colon, such as v2:v1"
                )
        found = compare_again(
            Path(scores),
            [(pair[0], pair[1]) for pair in asked],
            also=[Path(also)] if isinstance(also, str) and Path(also).exists() else [*map(Path, names_in(also or ()))],
            metrics=names_in(metrics),
            without=names_in(without or ()),
            seed=seed,
        )
        for row in found:
            ends = ", ".join(
                "unknown" if row[key] is None else signed(row[key])  # type: ignore[arg-type]
                for key in ("ci_low", "ci_high", "t_low", "t_high")
            )
            print(
                f"{row['a']} - {row['b']}  {row['metric']}  {signed(row['delta'])}  bootstrap and t interval {ends}  "
                f"p {p_value(row['p'])}  after Holm {p_value(row['p_holm'])}"
            )
    if rankings is not None and trec is not None:
        written = export_trec(Path(rankings), Path(trec))
        print(f"{counted(len(written), 'file')} in {trec}: {', '.join(path.name for path in written)}")
