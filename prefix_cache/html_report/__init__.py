"""Pages with tables and plots, each one file that opens without a network."""
