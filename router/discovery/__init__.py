"""Which nodes there are: from the config and its file, from DNS, and from the registry."""
