"""Commands that build, ask, show, change, serve and move a memory."""
