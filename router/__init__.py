"""The router: sends every turn of a conversation to the node that holds its prefix."""
