"""What a node is believed to hold: told by its events, or remembered from what was sent there."""
