"""Commands: thin functions that read a configuration, build the parts, call them and write the result."""
