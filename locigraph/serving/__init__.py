"""``locigraph serve``: one table of operations on a ``Memory``, offered over HTTP and MCP."""
