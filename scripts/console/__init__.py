"""What the command line shows: tables, nodes, and what is wrong with its words."""
