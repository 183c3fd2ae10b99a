"""Pictures of what was chosen."""
