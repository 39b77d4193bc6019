"""The comparison report: report.html from run directories, and the table in the terminal."""

from report.page import write_index, write_report
from report.terminal import comparison_table

__all__ = ["comparison_table", "write_index", "write_report"]
