"""Times as whole seconds since 1970 UTC, which is how tables, arrays and indexes hold them."""

from __future__ import annotations

from datetime import UTC, datetime


def epoch(time: datetime) -> int:
    """Whole seconds since 1970 UTC; a time without zone is read as UTC."""
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


def optional_epoch(time: datetime | None) -> int | None:
    """``epoch`` that passes None through."""
    return None if time is None else epoch(time)


def moment(seconds: int | None) -> datetime | None:
    """Inverse of ``optional_epoch``."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
