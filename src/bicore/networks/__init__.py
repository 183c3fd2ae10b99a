"""The user's own network: what it says about points, and the bilevel problem on its parameters."""
