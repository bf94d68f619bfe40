"""Pages with tables and plots, each one file that opens without a network."""

from prefix_cache.html_report.page import Page
from prefix_cache.html_report.plots import BarPlot, Line, LinePlot

__all__ = ["BarPlot", "Line", "LinePlot", "Page"]
