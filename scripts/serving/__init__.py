"""``locigraph serve``: one table of operations over a ``Memory``, spoken by HTTP and by MCP."""
