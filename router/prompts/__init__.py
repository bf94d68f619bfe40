"""What the body of a request means to the router: its prompt and its conversation."""

from router.prompts.body_reader import BodyReader

__all__ = ["BodyReader"]
