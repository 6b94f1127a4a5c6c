"""Makes clients of the language models that settings name, and limits what they may cost."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from locigraph.assembly.settings import LLMSettings, ModelSettings, ScribeSettings
from locigraph.kg.errors import LocigraphError

if TYPE_CHECKING:
    from locigraph.consolidation.ledger import Ledger
    from locigraph.consolidation.llm import ChatClient, Endpoint


def of_stage(settings: ModelSettings, stage: str) -> ModelSettings:
    """The settings of the model of a stage: all stages but the scribe use those of the architect."""
    own = asdict(settings.scribe) if stage == "scribe" and isinstance(settings, LLMSettings) else {}
    return replace(settings, **{name: value for name, value in own.items() if value not in (None, "")})


def clients_of(
    settings: ModelSettings,
    *,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    ledger: Ledger | None = None,
    option: str = "llm",
) -> Callable[[str], ChatClient]:
    """A function that makes the client of a stage; all stages share one cassette and one ledger.

    Stages with the same model share one client too, so that what an endpoint refuses is found out, and said, once.

    Args:
        settings: The models.
        max_tokens: Largest number of tokens; None for no limit.
        max_cost: Largest sum; None for no limit.
        ledger: An existing ledger, whose limits count instead; None for a new one with these limits.
        option: Name of the option that holds the settings, for error messages. The limits are options of their own
            beside ``llm``, but fields of any other option.

    Raises:
        LocigraphError: If a limit or another number is out of range, or the cost is limited but no prices are given.
            The function that is returned raises it if no endpoint or no model is named.
    """
    from locigraph.consolidation.ledger import Ledger

    _check(settings, max_tokens, max_cost, option)
    if ledger is not None and ledger.max_cost is not None:
        _require_prices(settings, "max_cost", ledger.max_cost, option)
    concurrency = settings.concurrency if isinstance(settings, LLMSettings) else 1
    shared = ledger or Ledger(max_tokens=max_tokens, max_cost=max_cost)
    made: list[tuple[Endpoint, ChatClient]] = []

    def make(stage: str) -> ChatClient:
        from locigraph.consolidation.cassette import BUNDLED, Cassette
        from locigraph.consolidation.ledger import Prices
        from locigraph.consolidation.llm import ChatClient, Endpoint  # openai takes a second to import

        used = of_stage(settings, stage)
        if not used.model:
            raise LocigraphError(f"{option}.model is {used.model!r}; name the model to use")
        if settings.cassette in BUNDLED and settings.mode != "replay":
            raise LocigraphError(
                f"{option}.cassette {settings.cassette!r} is bundled, for replay only; set {option}.mode to replay"
            )
        if not used.base_url and settings.mode != "replay":
            raise LocigraphError(f"{option}.base_url is not set; name an endpoint, such as http://localhost:8000/v1")
        key = os.environ.get(used.api_key_env, "").strip()  # files of settings may end their lines with CR
        if not (key.isascii() and key.isprintable()):
            raise LocigraphError(
                f"environment variable {used.api_key_env} holds letters or signs that no HTTP header can carry; set "
                "it to the key alone"
            )
        parameters = {"temperature": settings.temperature, "max_tokens": settings.max_output_tokens}
        endpoint = Endpoint(
            used.base_url or "http://replayed.invalid/v1",
            used.model,
            key or "none",
            None if key else used.api_key_env,
            {name: value for name, value in parameters.items() if value is not None},
            Prices(used.input_price, used.output_price),
            settings.timeout_s,
            settings.deadline_s,
            # A replay has no waiting to overlap; one conversation after another makes the store the same byte by byte.
            1 if settings.mode == "replay" else concurrency,
        )
        for same, client in made:
            if same == endpoint:
                return client
        cassette = Cassette(BUNDLED.get(settings.cassette, Path(settings.cassette)), settings.mode)
        made.append((endpoint, ChatClient(endpoint, cassette, shared)))
        return made[-1][1]

    return make


def _check(settings: ModelSettings, max_tokens: int | None, max_cost: float | None, option: str) -> None:
    """Raise LocigraphError if a limit or another number is out of range, or a cost is limited that has no prices."""
    of_limits = "" if option == "llm" else f"{option}."
    for name, limit in ((f"{of_limits}max_tokens", max_tokens), (f"{of_limits}max_cost", max_cost)):
        if limit is not None and not limit >= 0:
            raise LocigraphError(f"{name} is {limit}; expected 0 or more, or null for no limit")
    for name, value in ((f"{option}.timeout_s", settings.timeout_s), (f"{option}.deadline_s", settings.deadline_s)):
        if not value > 0:
            raise LocigraphError(f"{name} is {value}; expected a number of seconds above 0")
    if isinstance(settings, LLMSettings) and settings.concurrency < 1:
        raise LocigraphError(
            f"{option}.concurrency is {settings.concurrency}; expected 1 or more conversations at a time"
        )
    prices = _prices_of(settings)
    if any(price is not None and not 0 <= price < float("inf") for price in prices):
        raise LocigraphError(f"the prices of {option} are {prices}; expected 0 or more per million tokens")
    if max_cost is not None:
        _require_prices(settings, f"{of_limits}max_cost", max_cost, option)


def _prices_of(settings: ModelSettings) -> list[float | None]:
    """The prices of input and output; the scribe's are None where it costs what the architect does."""
    scribe = settings.scribe if isinstance(settings, LLMSettings) else ScribeSettings()
    return [settings.input_price, settings.output_price, scribe.input_price, scribe.output_price]


def _require_prices(settings: ModelSettings, limit: str, max_cost: float, option: str) -> None:
    if not any(_prices_of(settings)):
        raise LocigraphError(
            f"{limit} is {max_cost}, but {option}.input_price and {option}.output_price are 0; set the prices"
        )


def refuse_unasked(settings: ModelSettings, option: str, chosen: str | None) -> None:
    """Raise LocigraphError if a model is named although what an option chooses asks none."""
    if settings.model or settings.base_url:
        raise LocigraphError(
            f"llm names a language model, but {option} is {chosen!r}, which asks none; set {option} to llm, or leave "
            "the model out"
        )


def client_if_named(
    stage: str, settings: ModelSettings, *, max_tokens: int | None, max_cost: float | None
) -> ChatClient | None:
    """The client of a stage for which a language model is optional, or None; raises as ``clients_of`` does."""
    clients = clients_of(settings, max_tokens=max_tokens, max_cost=max_cost)
    return clients(stage) if settings.model or settings.base_url else None
