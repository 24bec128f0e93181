"""Search spaces: the YAML language, its loader, and the spaces that ship."""
