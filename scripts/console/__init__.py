"""Output of the command line: tables, nodes, and explanations of mistakes in a command."""
