"""The forms of the OpenAI API over HTTP: bodies, answers, errors, for whatever answers."""
