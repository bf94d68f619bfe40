"""The worker's face to its clients: the OpenAI API over HTTP."""
