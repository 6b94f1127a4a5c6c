"""``locigraph demo``: run the whole pipeline on the bundled sample."""

from __future__ import annotations

from locigraph.assembly.settings import CorpusSettings, EncoderSettings, LLMSettings
from locigraph.training.config import ModelConfig, TrainerConfig, TrainingConfig


def demo(
    *,
    corpus: CorpusSettings = CorpusSettings(),
    consolidation: str = "rules",
    llm: LLMSettings = LLMSettings(),
    model: ModelConfig = ModelConfig(),
    training: TrainingConfig = TrainingConfig(),
    trainer: TrainerConfig = TrainerConfig(),
    encoder: EncoderSettings = EncoderSettings(),
    checkpoint: str | None = None,
    folds: int = 4,
    validation: int = 1,
    output: str = "runs/demo",
    seed: int = 0,
) -> None:
    """Run the whole pipeline offline on the bundled sample: graph, v1, trained v2, comparison and report.

    Args:
        corpus: Conversations and questions.
        consolidation: Extractor that builds the graph: <extractors>.
        llm: Language models, for the extractor ``llm``.
        model: Graph encoder.
        training: Stages, losses and optimiser.
        trainer: Where and how to train.
        encoder: Text encoder; v2 uses its adapter, if it has one.
        checkpoint: Checkpoint to compare with, without further training (v2-zero); null for none.
        folds: Number of groups of conversations, each tested by a model that was trained on the others.
        validation: Number of training conversations of each fold held out for early stopping.
        output: Folder for all output.
        seed: Random seed.
    """
    import shlex

    from locigraph.assembly import opening
    from locigraph.scripts.commands.research.evaluate import evaluate

    strategies = {
        "v1": True, "v1-adapted": encoder.adapter is not None, "v2": True, "v2-zero": checkpoint is not None,
        "sum": True, "dense": True, "bm25": True,
    }  # fmt: skip
    evaluate(
        corpus=corpus,
        consolidation=consolidation,
        llm=llm,
        strategies=",".join(name for name, is_run in strategies.items() if is_run),
        checkpoint=checkpoint,
        output=output,
        folds=folds,
        validation=validation,
        model=model,
        training=training,
        trainer=trainer,
        encoder=encoder,
        seed=seed,
    )
    asked = opening.read_corpus(corpus).questions[0]
    print("to ask the memory that was built, run:")
    named = {"space": asked.space, "store": f"{output}/graph.sqlite", "encoder.cache": encoder.cache}
    options = [word for name, value in named.items() if value is not None for word in (f"--{name}", value)]
    print(f"  {shlex.join(['locigraph', 'recall', asked.text, *options])}")
