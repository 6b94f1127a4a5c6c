"""Alembic's entry point: runs on the connection that ``kg.store.migrations.upgrade`` passes."""

from alembic import context

from locigraph.kg.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
