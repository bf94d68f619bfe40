"""What commands draw on a terminal: tables, bars, progress, and text of others made safe."""
