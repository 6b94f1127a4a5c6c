"""The store's tables. Times are seconds as in ``kg.times``; ``key`` is the internal integer key of a turn or node."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# Sorted by code points on every database, as Python sorts, whatever the locale of a server.
NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
# SQLite generates ids only for a column declared exactly as INTEGER PRIMARY KEY.
_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


spaces = sa.Table(
    "spaces",
    metadata,
    sa.Column("space", NAME, primary_key=True),
    # Counts the changes of the space, starting at a random number, so that a recreated space never repeats revisions.
    sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
    # The owner (``kg.types.Scope``); null if none was given.
    sa.Column("user", NAME),
    sa.Column("agent", NAME),
    # The process that wrote the graph embeddings last: another one cannot know what it wrote.
    sa.Column("embedded_by", NAME),
    sa.Column("title", sa.Text),  # what its conversation is called where it comes from; null if that is not known
    sa.Column("keep_seconds", sa.BigInteger),  # how long it keeps its turns (``retention``); null for ever
    # The last revision at which any of its nodes may have changed: until then, ``nodes.changed_in`` says nothing.
    sa.Column("renewed_in", sa.BigInteger, nullable=False, server_default="0"),
)

settings = sa.Table(
    "settings", metadata, sa.Column("name", NAME, primary_key=True), sa.Column("value", sa.Text, nullable=False)
)

node_types = sa.Table(
    "node_types",
    metadata,
    sa.Column("name", NAME, primary_key=True),
    sa.Column("parent", NAME, sa.ForeignKey("node_types.name")),
    sa.Column("description", sa.Text, nullable=False),
)

relation_labels = sa.Table(
    "relation_labels",
    metadata,
    sa.Column("name", NAME, primary_key=True),
    sa.Column("kind", NAME, nullable=False),
    sa.Column("family", NAME, nullable=False),
    sa.Column("description", sa.Text, nullable=False),
)

# Labels that turns of a space coined. Their descriptions come from the turn's words, so they are not in the table
# above, which all spaces share; turn_key is null if the description is no turn's.
coined_labels = sa.Table(
    "coined_labels",
    metadata,
    sa.Column("space", NAME, sa.ForeignKey("spaces.space"), primary_key=True),
    sa.Column("name", NAME, sa.ForeignKey("relation_labels.name", ondelete="CASCADE"), primary_key=True),
    sa.Column("turn_key", _KEY, sa.ForeignKey("turns.key", ondelete="CASCADE")),
    sa.Column("description", sa.Text, nullable=False),
    sa.Index("ix_coined_labels_turn_key", "turn_key"),
)

turns = sa.Table(
    "turns",
    metadata,
    sa.Column("key", _KEY, primary_key=True),
    sa.Column("space", NAME, sa.ForeignKey("spaces.space"), nullable=False),
    sa.Column("turn_id", NAME, nullable=False),
    sa.Column("conversation_id", NAME, nullable=False),
    sa.Column("session_id", NAME, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("speaker", NAME, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("image_caption", sa.Text),
    sa.Column("spoken_at", sa.BigInteger),
    sa.Column("state", NAME, nullable=False),
    sa.Column("error", sa.Text),
    sa.Column("metadata", sa.JSON(none_as_null=True)),
    sa.Column("expires_at", sa.BigInteger),
    sa.Index("ix_turns_space_expires_at", "space", "expires_at"),
    sa.Index("ix_turns_space_position", "space", "position"),
    sa.Index("ix_turns_space_spoken_at", "space", "spoken_at"),
    sa.Index("uq_turns_space_turn_id", "space", "turn_id", unique=True),
    sa.Index("ix_turns_space_state_position", "space", "state", "position"),
    sa.Index("ix_turns_space_session_id_position", "space", "session_id", "position"),
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("key", _KEY, primary_key=True),
    sa.Column("space", NAME, sa.ForeignKey("spaces.space"), nullable=False),
    sa.Column("id", NAME, nullable=False),
    sa.Column("type", NAME, sa.ForeignKey("node_types.name"), nullable=False),
    sa.Column("label", NAME, nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("text_hash", NAME, nullable=False),
    sa.Column("status", NAME, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("update_time", sa.BigInteger, nullable=False),
    sa.Column("valid_from", sa.BigInteger),
    sa.Column("valid_to", sa.BigInteger),
    sa.Column("attributes", sa.JSON, nullable=False),
    # The revision of the space at which the node, or which turns it was taken from, last changed.
    sa.Column("changed_in", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index("uq_nodes_space_id", "space", "id", unique=True),
    sa.Index("ix_nodes_space_type", "space", "type"),
    sa.Index("ix_nodes_space_changed_in", "space", "changed_in"),
    sqlite_autoincrement=True,  # keys are never reused, so a stale index row cannot point at another node
)

# Earlier versions of nodes; each is visible as of t if update_time <= t < recorded_until.
node_versions = sa.Table(
    "node_versions",
    metadata,
    sa.Column("key", _KEY, sa.ForeignKey("nodes.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("recorded_until", sa.BigInteger, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("label", NAME, nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("text_hash", NAME, nullable=False),
    sa.Column("status", NAME, nullable=False),
    sa.Column("update_time", sa.BigInteger, nullable=False),
    sa.Column("valid_from", sa.BigInteger),
    sa.Column("valid_to", sa.BigInteger),
    sa.Column("attributes", sa.JSON, nullable=False),
)

provenance = sa.Table(
    "provenance",
    metadata,
    sa.Column("node_key", _KEY, sa.ForeignKey("nodes.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("turn_key", _KEY, sa.ForeignKey("turns.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("recorded_at", sa.BigInteger, nullable=False),
    # Whether the node's wording may come from the turn; false if the turn only repeated the statement.
    sa.Column("worded", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Index("ix_provenance_turn_key", "turn_key"),
)

relations = sa.Table(
    "relations",
    metadata,
    sa.Column("space", NAME, sa.ForeignKey("spaces.space"), nullable=False),
    sa.Column("source", _KEY, nullable=False, primary_key=True),
    sa.Column("label", NAME, sa.ForeignKey("relation_labels.name"), nullable=False, primary_key=True),
    sa.Column("target", _KEY, nullable=False, primary_key=True),
    sa.Column("weight", sa.Float, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    # These two columns are never set; they remain because removing them would need a migration.
    sa.Column("valid_from", sa.BigInteger),
    sa.Column("valid_to", sa.BigInteger),
    sa.Column("turn_id", NAME),  # the turn whose consolidation made the edge
    sa.ForeignKeyConstraint(["source"], ["nodes.key"], ondelete="CASCADE"),
    sa.ForeignKeyConstraint(["target"], ["nodes.key"], ondelete="CASCADE"),
    sa.Index("ix_relations_space", "space"),
    sa.Index("ix_relations_target", "target"),
)

# Keyed by text hash as well as node, so that an earlier version of a node keeps its vector.
embeddings = sa.Table(
    "embeddings",
    metadata,
    sa.Column("node_key", _KEY, sa.ForeignKey("nodes.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("model", NAME, primary_key=True),
    sa.Column("text_hash", NAME, primary_key=True),
    sa.Column("vector", sa.LargeBinary, nullable=False),  # float32, little-endian
)

#: Columns that every version of a node has.
VERSIONED = ("label", "description", "text_hash", "status", "update_time", "valid_from", "valid_to", "attributes")

outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("seq", _KEY, primary_key=True),
    sa.Column("space", NAME, nullable=False),
    sa.Column("node_key", sa.BigInteger, nullable=False),
    sa.Column("action", NAME, nullable=False),  # "upsert" or "delete"
    sqlite_autoincrement=True,
)

# What has changed in each space that the graph embeddings do not reflect yet: keys of nodes, some of which may be gone,
# or null for anything. seq is never reused.
changed_spaces = sa.Table(
    "changed_spaces",
    metadata,
    sa.Column("seq", _KEY, primary_key=True),
    sa.Column("space", NAME, nullable=False),
    sa.Column("node_key", sa.BigInteger),
    sa.Index("ix_changed_spaces_space", "space"),
    sqlite_autoincrement=True,
)

# Counts of the words of a space, by which its graph embeddings in a collection weigh words until they are renewed. They
# name words by hashes (``gnn.sketch.stable_hash``), and go when something is forgotten.
word_statistics = sa.Table(
    "word_statistics",
    metadata,
    sa.Column("space", NAME, sa.ForeignKey("spaces.space"), primary_key=True),
    sa.Column("collection", NAME, primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

# Forgotten turns, which must not come back: keyed digests (HMAC) of id and content, so that neither can be recovered.
tombstones = sa.Table(
    "tombstones",
    metadata,
    sa.Column("space", NAME, primary_key=True),
    sa.Column("turn", NAME, primary_key=True),
    sa.Column("content", NAME, nullable=False),
)

# Digests of the marks by which exports that have a forgotten turn under another id are recognised (``kg.store.alike``).
tombstone_marks = sa.Table(
    "tombstone_marks",
    metadata,
    sa.Column("space", NAME, primary_key=True),
    sa.Column("mark", NAME, primary_key=True),
    sa.Column("turn", NAME, primary_key=True),  # as in ``tombstones``
)

# Usage of language models by turn; turn "" holds usage for no particular turn, or for forgotten turns.
spent = sa.Table(
    "spent",
    metadata,
    sa.Column("space", NAME, sa.ForeignKey("spaces.space"), primary_key=True),
    sa.Column("turn_id", NAME, primary_key=True),
    sa.Column("stage", NAME, primary_key=True),
    sa.Column("calls", sa.BigInteger, nullable=False),
    sa.Column("read", sa.BigInteger, nullable=False),
    sa.Column("written", sa.BigInteger, nullable=False),
    sa.Column("cost", sa.Float, nullable=False),
    sa.Column("invalid", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("repaired", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("given_up", sa.BigInteger, nullable=False, server_default="0"),
)
