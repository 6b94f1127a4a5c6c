"""Plain-text tables for the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from locigraph.kg.counts import counted, is_or_are

if TYPE_CHECKING:
    from locigraph.kg.corpora import Conversation
    from locigraph.kg.types import SpaceId
    from locigraph.retrieval.protocols import Hit
    from locigraph.training.explained import Explanation

_MOST_SPACES = 5
_CONTROLS = (*range(32), *range(127, 160))
# Marks that change the writing direction of the text that follows.
_TURNING = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
# Line separators, and characters that are invisible to people but not to a language model.
_UNSEEN = (0x200B, 0x2028, 0x2029, 0xFEFF, *range(0xE0001, 0xE0080))
_SPELT = {code: ascii(chr(code))[1:-1] for code in (*_CONTROLS, *_TURNING, *_UNSEEN) if chr(code) not in "\t\n"}


def printable(text: str) -> str:
    """The text with control and invisible characters escaped, so that a turn cannot control the terminal."""
    return text.translate(_SPELT)


def spaces_list(conversations: Sequence[Conversation], known: AbstractSet[SpaceId]) -> str:
    """A line for the space of each conversation: whether the store knows it, and how many turns were read for it."""
    lines = []
    for conversation in conversations[:_MOST_SPACES]:
        days = sorted(turn.spoken_at.date().isoformat() for turn in conversation.turns if turn.spoken_at is not None)
        span = f", {' to '.join(dict.fromkeys([days[0], days[-1]]))}" if days else ""
        kind = "known" if conversation.space in known else "new"
        lines.append(f"{kind} space {conversation.space}: {counted(len(conversation.turns), 'turn')}{span}")
    more = conversations[_MOST_SPACES:]
    if more:
        new = sum(each.space not in known for each in more)
        lines.append(f"and {len(more)} more, of which {new} {is_or_are(new)} new")
    return printable("\n".join(lines))


def validated(stage: Mapping[str, float]) -> str:
    """The result of a training stage, as ``training.lightning_run.run_lightning`` returns it, in words."""
    if "val_score" not in stage:
        return "trained without validation"
    start = f"{stage['start_score']:.3f}"
    if stage["best_epoch"] < 0:
        return f"no epoch was better than the start (validation score {start})"
    epochs = counted(int(stage["best_epoch"]) + 1, "epoch")
    return f"validation score {stage['val_score']:.3f} after {epochs}, which were kept; {start} at the start"


def hits_table(hits: Sequence[Hit], *, with_spaces: bool = False) -> str:
    """Hits with score, signals, source turns and text, wrapped to the terminal; says so when there are none."""
    if not hits:
        return "nothing found"
    width = max(60, shutil.get_terminal_size((110, 24)).columns)
    lines = []
    for rank, hit in enumerate(hits, start=1):
        signals = "  ".join(f"{name} {value:.3f}" for name, value in sorted(hit.signals.items()))
        space = f"  space {hit.space}" if with_spaces else ""
        when = "" if hit.spoken_at is None else f"  {hit.spoken_at:%Y-%m-%d %H:%M}"
        by = f" (now {_listed(hit.superseded_by)})" if hit.superseded_by else ""
        until = "" if hit.until is None else f"  until {hit.until}{by}"
        turns = _listed(hit.turn_ids)
        lines.append(f"{rank:>3}  {hit.score:.4f}  {hit.type}{when}{until}{space}  turns {turns}  [{signals}]")
        for where, same in {"": hit.same, **{f" in {name}": turns for name, turns in hit.elsewhere.items()}}.items():
            if same:
                says = "says" if len(same) == 1 else "say"
                days = ", ".join(dict.fromkeys(f"{time:%Y-%m-%d}" for time in hit.again))
                on = f" on {days}" if days and not hit.elsewhere else ""
                lines.append(f"     {counted(len(same), 'more turn')}{where} {says} the same{on}: {_listed(same)}")
        lines += textwrap.wrap(hit.text, width=width - 6, initial_indent=" " * 5, subsequent_indent=" " * 5)[:3]
    return printable("\n".join(lines))


def explanation_table(explanations: Sequence[Explanation], *, influences: int) -> str:
    """Each turn's score with its parts, and its strongest neighbours."""
    if not explanations:
        return "nothing found"
    lines = []
    for rank, found in enumerate(explanations, start=1):
        neighbours = sum(influence.total for influence in found.influences)
        lines += [
            f"{rank:>3}  {found.score:.3f}  turn {found.turn_id}: {_cut(found.description, 90)}",
            f"     own meaning {found.own_meaning:+.3f}  own words {found.own_words:+.3f}  "
            f"neighbours {neighbours:+.3f}  speaker and date {found.own_context:+.3f}  bias {found.bias:+.3f}",
        ]
        for influence in found.influences[:influences]:
            lines += [
                f"       {influence.effect:+.3f}  {influence.relation}: {_cut(influence.description, 80)}",
                f"               share {influence.total:+.3f}: meaning {influence.meaning:+.3f}  "
                f"words {influence.words:+.3f}  date {influence.date:+.3f}",
            ]
    return printable("\n".join(lines))


def _listed(turn_ids: Sequence[str]) -> str:
    return ", ".join(turn_ids[:6]) + (f" and {len(turn_ids) - 6} more" if len(turn_ids) > 6 else "")


def _cut(text: str, width: int) -> str:
    return textwrap.shorten(text, width=width, placeholder=" ...")
