"""The ``locigraph`` command. Each subcommand is a function, whose signature defines its options."""

from __future__ import annotations

import difflib
import errno
import io
import os
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, get_args, get_type_hints

from jsonargparse import ActionConfigFile, ArgumentParser  # type: ignore[attr-defined]  # exported at run time

from locigraph.kg.errors import LocigraphError, abridged, require_extra
from locigraph.scripts.command_table import COMMANDS, ROOMS
from locigraph.scripts.console import mistakes

# Seeds are below this, so that they fit into numpy's 32 bits after they were multiplied and incremented.
_SEEDS = 1_000_000
_MAX_DEPTH = 20  # of a configuration
_MAX_REPEATED = 10_000  # characters that all aliases of a configuration together may expand to
_FULL = (errno.ENOSPC, errno.EDQUOT)
_SIGPIPE = 141  # 128 + the number of the signal
_NAMES_OR_NULL = re.compile(r"Union\[list\[str\],\s+str,\s+null\]")  # how the parser writes ``Names | None``
_NAMES = ("--space", "--user", "--agent")  # options whose values are names that users choose
_OPTION = re.compile(r"  -.*?\s{2,}")  # an option at the start of a line of a help text, up to its explanation


class _OneLineParser(ArgumentParser):
    """A parser that reports an error in one line and exits with code 2."""

    def format_help(self, *arguments: Any) -> str:
        """The help text, with marks such as ``<strategies>`` replaced by the names in their tables, in plain words."""
        text: str = super().format_help(*arguments)
        for mark, listed in _tables(self.prog.split()).items():
            text = text.replace(mark, listed)
        text = _NAMES_OR_NULL.sub("names | null", text).replace("list[str] | str", "names").replace("``", "`")
        width = shutil.get_terminal_size().columns - 2
        return "\n".join(_wrapped(line, width) for line in text.split("\n"))

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        # The parser of an item, such as a graph of a list of graphs, does not know the command.
        command = self.prog if self.prog.startswith("locigraph ") else "locigraph COMMAND"
        fail(f"{mistakes.explained(message, self)} (see {command} --help)")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. An error that the user can fix prints one line and exits with its own code, by default 2."""
    # Set before any library reads them. Parallel tokenizers would print warnings about forks between progress bars.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # OpenMP threads that spin while they wait make training many times slower on a shared machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # The threads of NumPy's matrix products spin for 2^26 cycles by default, longer than the work itself takes where a
    # process waits in between, as for a language model. 2^20 cycles are less than a millisecond.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_streams()
    try:
        try:
            _choose(words)
        finally:
            sys.stdout.flush()  # here, since at interpreter exit the error of a closed pipe could not be caught
    except BrokenPipeError:
        # The reader, such as head, has closed the pipe: discard the remaining output, and exit as after SIGPIPE.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(_SIGPIPE) from None
    except OSError as error:
        if error.errno not in (*_FULL, errno.EIO):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # writing the rest at exit would fail again
        file = error.filename2 or error.filename  # filename2 is the destination of a move
        what = "cannot write" if file is None else f"{file}: cannot write"
        fail(f"{what} ({error.strerror}); make room, or write elsewhere, and run the same command again")
    except KeyboardInterrupt:
        fail(f"interrupted; run the same command again and {words[0] if words else 'it'} will continue")


def _choose(words: list[str]) -> None:
    for word in words:
        if any("\ud800" <= sign <= "\udfff" for sign in word):
            shown = word.encode(errors="backslashreplace").decode()
            fail(f"argument {shown!r} is not valid UTF-8; check the terminal's encoding")
    if words and words[0] == "help":
        words = [*words[1:2], "--help"]
    if words and words[0] in COMMANDS:
        _run(words[0], words[1:])
        return
    if words and words[0] == "--version":
        from importlib import metadata

        print(f"locigraph {metadata.version('locigraph')}")
        return
    if not words or words[0] in ("-h", "--help"):
        print("usage: locigraph COMMAND [options]")
        for room, heading in ROOMS.items():
            print(f"\n{heading}:")
            for command in COMMANDS.values():
                if command.room == room:
                    print(f"  {command.name:<24}{command.description}")
        print("\nlocigraph COMMAND --help lists a command's options; --config FILE reads them from YAML.")
        print("locigraph --version prints the version.")
        return
    close = mistakes.COMMANDS.get(words[0]) or next(iter(difflib.get_close_matches(words[0], COMMANDS, n=1)), None)
    fail(f"unknown command {words[0]!r}; " + (f"did you mean {close!r}?" if close else "see locigraph --help"))


def _run(command: str, words: list[str]) -> None:
    function = COMMANDS[command].function()
    parser = _parser(command)
    if command == "show" and words and not words[0].startswith("-"):
        words = ["--space", *words]
    for before, word in pairwise(["", *words]):
        if before == "--config" or word.startswith("--config="):
            _check_configuration(word.removeprefix("--config="))
    mistake = mistakes.repeated(words) or mistakes.spread(words, parser)
    if mistake is not None:
        fail(mistake)
    plain, names = _without_names(words, function)
    try:
        settings = parser.instantiate(parser.parse_args(_switched_on(plain, function)))
    except LocigraphError as error:
        fail(str(error))
    except (TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
        # Raised by the parser itself for values of an unexpected type, such as a number in place of a mapping.
        _, is_no_mapping, what = str(error).rpartition(" argument after ** ")
        reason = f"an option that has options of its own, such as corpus, {what}" if is_no_mapping else str(error)
        fail(
            f"the options of {' '.join([command, *words])[:200]} cannot be read ({abridged(reason)}); check their types"
        )
    values: dict[str, Any] = {name: value for name, value in vars(settings).items() if name != "config"}
    values |= names
    empty = _empty(values, get_type_hints(function))
    if empty is not None:
        fail(f"{empty} is null; expected a value (see locigraph {command} --help)")
    if not 0 <= values.get("seed", 0) < _SEEDS:
        fail(f"seed is {values['seed']}; expected 0 to {_SEEDS - 1}")
    _quiet()
    try:
        require_extra("research", COMMANDS[command].needs, f"locigraph {command}")
        function(**values)
    except LocigraphError as error:
        fail(str(error), code=error.exit_code)
    except OSError as error:
        if error.filename is None or error.errno in _FULL:
            raise  # not about a file whose path the user could correct
        fail(f"{error.filename}: {error.strerror}; check the path and its permissions")


@cache  # for programs that run many commands: making a parser takes longer than most commands that are refused
def _parser(command: str) -> ArgumentParser:
    parser = _OneLineParser(prog=f"locigraph {command}", description=COMMANDS[command].description, allow_abbrev=False)
    parser.add_argument("--config", action=ActionConfigFile, help="YAML file with values for the options below")
    skip: set[str | int] = set()
    positional = COMMANDS[command].positional
    if positional is not None:
        name, text = positional
        parser.add_argument(name, type=str, help=text)
        skip.add(name)
    parser.add_function_arguments(COMMANDS[command].function(), as_positional=False, skip=skip)
    lists = mistakes.name_lists(parser)
    if lists:
        parser.epilog = f'names: separated by commas, or a JSON list: {lists[0]} a,b or {lists[0]} \'["a", "b"]\''
    return parser


def _empty(values: Mapping[str, Any], types: Mapping[str, Any]) -> str | None:
    """The first option that is null although its type does not allow it: the parser accepts null for every type."""
    for name, value in values.items():
        if value is None and name in types and type(None) not in get_args(types[name]):
            return name
        if is_dataclass(value):
            inner = _empty(vars(value), get_type_hints(type(value)))
            if inner is not None:
                return f"{name}.{inner}"
    return None


def _check_configuration(path: str) -> None:
    """Refuse a file that would crash the YAML parser, or whose errors would not name the file."""
    import yaml

    if not Path(path).is_file():
        return  # the option parser reports it
    try:
        text = Path(path).read_bytes().decode()
        depth, is_empty = 0, True
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            is_empty &= not isinstance(event, yaml.NodeEvent)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                fail(f"{path}: nested deeper than {_MAX_DEPTH} levels; no configuration needs more than three")
            if isinstance(event, yaml.ScalarEvent) and "\0" in event.value:
                fail(f"{path}: {event.value[:40]!r} contains a NUL character; paths and names cannot contain one")
            if depth == 0 and isinstance(event, yaml.ScalarEvent):
                fail(f"{path}: contains {event.value[:40]!r}; expected options by name, such as seed: 0")
        if is_empty:
            fail(f"{path}: is empty; expected options by name, such as seed: 0")
        _check_aliases(path, text)
        if (repeated := _repeated_key(yaml.compose(text, Loader=yaml.SafeLoader), set())) is not None:
            fail(f"{path}: {repeated!r} is given twice; write it once")
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        fail(f"{path}: not a valid YAML configuration ({abridged(error)})")


def _repeated_key(node: Any, seen: set[int]) -> str | None:
    """A name that occurs twice in a mapping, of which the parser would keep the last; not in nodes ``seen`` before."""
    import yaml

    if id(node) in seen:  # by an alias
        return None
    seen.add(id(node))
    inside: list[Any] = node.value if isinstance(node, yaml.SequenceNode) else []
    if isinstance(node, yaml.MappingNode):
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        if twice := next((name for name, count in Counter(names).items() if count > 1), None):
            return str(twice)
        inside = [value for _, value in node.value]
    return next((found for each in inside if (found := _repeated_key(each, seen)) is not None), None)


def _check_aliases(path: str, text: str) -> None:
    """Refuse aliases that expand to too much text: with aliases of aliases, a few lines make a list of millions."""
    import yaml

    size = repeated = 0
    begun: list[tuple[str | None, int]] = []
    sizes: dict[str | None, int] = {}  # by anchor, with the aliases inside it expanded
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            begun.append((event.anchor, size))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = begun.pop()
            sizes[anchor] = size - before
        elif isinstance(event, yaml.ScalarEvent):
            sizes[event.anchor] = 1 + len(event.value)
            size += 1 + len(event.value)
        elif isinstance(event, yaml.AliasEvent):
            if any(event.anchor == anchor for anchor, _ in begun):
                fail(f"{path}: the alias *{event.anchor} refers to a value that contains it; write the value out")
            size += sizes.get(event.anchor, 0)
            repeated += sizes.get(event.anchor, 0)  # the parser reports an unknown anchor
            if repeated > _MAX_REPEATED:
                fail(
                    f"{path}: its aliases up to *{event.anchor} expand to more than {_MAX_REPEATED} characters; "
                    "write the values out"
                )


def _switched_on(words: list[str], function: Callable[..., None]) -> list[str]:
    """The words, with ``=true`` added to boolean options that are given without a value, such as ``--once``."""
    switches = {f"--{name}" for name, each in signature(function).parameters.items() if each.annotation == "bool"}
    values = [*words[1:], "--"]
    return [
        f"{word}=true" if word in switches and value.startswith("--") else word
        for word, value in zip(words, values, strict=False)
    ]


def _without_names(words: Sequence[str], function: Callable[..., None]) -> tuple[list[str], dict[str, str]]:
    """The words with a stand-in for each name that users choose, and these names by option.

    The parser reads values as YAML, which takes ``#general`` and ``~`` for null and ``[]`` for a list.
    """
    options = {f"--{name}" for name in signature(function).parameters}.intersection(_NAMES)
    plain = list(words)
    names: dict[str, str] = {}
    for place, (before, word) in enumerate(pairwise(["", *words])):
        option, is_one_word, name = word.partition("=")
        if not (is_one_word and option in options):
            option, name = before, "" if word.startswith("-") else word
        if option in options and name not in ("", "null"):
            names[option.removeprefix("--")] = name
            plain[place] = word.removesuffix(name) + "name"
    return plain, names


def _open_streams() -> None:
    """Write what the terminal cannot encode as escapes, and nothing where a stream was closed, as by ``>&-``."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8", errors="backslashreplace"))  # noqa: SIM115  (as long as the process runs)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _quiet() -> None:
    """Keep third-party log lines and warnings out of the output; errors are still shown."""
    import logging
    import warnings

    for name in ("lightning.pytorch", "lightning.fabric", "sentence_transformers", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if sys.stderr.isatty():  # loading takes seconds, in which nothing else would be shown
        loading = logging.getLogger("locigraph.retrieval.text.text_encoder")
        loading.addHandler(logging.StreamHandler())
        loading.setLevel(logging.INFO)
    for category in (UserWarning, FutureWarning):
        warnings.filterwarnings("ignore", category=category, module=r"(lightning|torch|milvus_lite|pymilvus)\b.*")


def _tables(words: Sequence[str]) -> dict[str, str]:
    """The text for each mark in help texts, such as ``<strategies>``: a table's names, some with descriptions."""
    from locigraph.assembly.queries import QUERY_GENERATORS
    from locigraph.assembly.strategies import recalled
    from locigraph.consolidation.extractors import EXTRACTORS
    from locigraph.kg.corpora import FORMATS
    from locigraph.kg.schema import NODE_TYPES
    from locigraph.research.contenders import CONTENDERS

    def described(rows: Iterable[Any]) -> str:
        return "; ".join(f"{row.name}: {row.description.removesuffix('.')}" for row in rows)

    marks = {
        "<strategies>": described(CONTENDERS.values()),
        "<baselines>": ", ".join(row.name for row in CONTENDERS.values() if row.is_baseline),
        "<extractors>": described(EXTRACTORS.values()),
        "<extractors of added turns>": described(row for row in EXTRACTORS.values() if not row.is_replay),
        "<queries>": described(QUERY_GENERATORS.values()),
        "<formats>": ", ".join(FORMATS),
        "<node types>": ", ".join(NODE_TYPES),
    }
    if "recall" in words:
        marks["<recalled>"] = ", ".join(recalled())
    if "ablate" in words:
        from locigraph.research.experiments.ablation import variants_of
        from locigraph.training.config import Settings

        marks["<variants>"] = "; ".join(variants_of(Settings()))  # a name may contain a comma
    if any(word in words for word in ("train", "evaluate", "transfer", "ablate", "demo")):
        # These import torch.
        from locigraph.gnn.encoders import GRAPH_ENCODERS
        from locigraph.training.objectives import LOSSES

        marks |= {"<encoders>": described(GRAPH_ENCODERS.values()), "<losses>": described(LOSSES.values())}
    return marks


def _wrapped(line: str, width: int) -> str:
    """A line of a help text, wrapped if names from a table have made it too long."""
    option = _OPTION.match(line)
    indent = " " * (option.end() if option else len(line) - len(line.lstrip()))
    return line if len(line) <= width else textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False)


def fail(message: str, *, code: int = 2) -> NoReturn:
    """Print one line on standard error and exit with a code."""
    # Text from a file or a turn must not be able to control the terminal.
    line = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in " ".join(message.split()))
    print(f"locigraph: {line}", file=sys.stderr)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
