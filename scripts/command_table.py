"""The commands: one table, from which the command line and its help derive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from locigraph.kg.registry import Table


@dataclass(frozen=True)
class Command:
    """A row of the table.

    Attributes:
        name: The word after ``locigraph``.
        room: The package of its function: ``memory`` for those who keep one, ``training``, or ``research``.
        description: One line for ``locigraph --help``.
        positional: The argument that is given without an option's name, and its help.
        needs: Packages of the extra ``research``, as they are imported, that it needs.
        module: The name of its function and of the module that defines it, where Python or another module has its own.
    """

    name: str
    room: str
    description: str
    positional: tuple[str, str] | None = None
    module: str | None = None
    needs: tuple[str, ...] = ()

    def function(self) -> Callable[..., None]:
        """Import the function, whose signature defines the command's options."""
        name = self.module or self.name.replace("-", "_")
        found: Callable[..., None] = getattr(import_module(f"locigraph.scripts.commands.{self.room}.{name}"), name)
        return found


#: Heading of each room in ``locigraph --help``.
ROOMS = {"memory": "keep and ask a memory", "training": "train", "research": "measure and compare"}
_RESEARCH = ("matplotlib",)
_QUESTION = ("question", "What to look for.")
COMMANDS = Table(
    "command",
    [
        Command("build", "memory", "turn conversations into a graph and its index"),
        Command("recall", "memory", "search the memory for what answers a question", positional=_QUESTION),
        Command(
            "explain",
            "memory",
            "decompose the scores of v2: own text, neighbours by relation, speaker, date",
            positional=_QUESTION,
        ),
        Command("profile", "memory", "show what is known about a person, by category", module="profile_person"),
        Command("spaces", "memory", "list the spaces of a memory"),
        Command("show", "memory", "show facts and events of a space, or one of them with its history"),
        Command("forget", "memory", "erase turns, or whole spaces, from graph and indexes"),
        Command("retain", "memory", "let the turns of a space expire some days after they were spoken"),
        Command("verify", "memory", "check the store, and compare both indexes with it, or rebuild them"),
        Command("export", "memory", "write all that a memory holds into one file", module="export_memory"),
        Command(
            "import",
            "memory",
            "make a memory of an exported file",
            positional=("file", "File that locigraph export wrote."),
            module="import_memory",
        ),
        Command("serve", "memory", "keep a memory open for clients of HTTP and MCP"),
        Command("classify", "memory", "put events and facts of a graph under categories"),
        Command("resolve", "memory", "merge entities and topics of a graph that mean the same"),
        Command("reflect", "memory", "derive insights that several facts of a graph show together"),
        Command("link", "memory", "link memories to causes and to what they name, for magma, tempr and hipporag"),
        Command("adapt", "training", "train an adapter of the text encoder on the questions of a corpus"),
        Command("train", "training", "train graph and query encoder on a built graph"),
        Command("train-reranker", "training", "train a reranker of the best hits on the questions of a corpus"),
        Command("average", "training", "average the weights of several checkpoints"),
        Command(
            "reproduce",
            "training",
            "make a shipped checkpoint again, by the commands that made it",
            positional=("folder", "Folder of the checkpoint or adapter, with its recipe.yaml."),
        ),
        Command("refresh", "training", "write graph embeddings of all turns into the index"),
        Command("drift", "training", "report how far the graph embeddings in use differ from the present graph"),
        Command(
            "demo",
            "research",
            "run the whole pipeline on the bundled sample: graph, v1, trained v2, report",
            needs=_RESEARCH,
        ),
        Command(
            "evaluate",
            "research",
            "compare strategies on held-out conversations, with statistics and a report",
            needs=_RESEARCH,
        ),
        Command(
            "compare",
            "research",
            "recompute the statistics of a recorded result, and export its rankings for other tools",
        ),
        Command(
            "ablate",
            "research",
            "measure what each part of the model contributes: train again with one part changed",
            needs=_RESEARCH,
        ),
        Command("transfer", "research", "train on some corpora and test on others"),
        Command(
            "answer",
            "research",
            "have a language model answer from the contexts of an evaluation, and score its answers",
        ),
        Command(
            "evaluate-consolidation", "research", "compare the facts that a language model extracts with known ones"
        ),
    ],
)
