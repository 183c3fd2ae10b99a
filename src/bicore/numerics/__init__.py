"""Linear algebra and iterations that do not depend on coresets."""
