"""The comparison report: report.html from run directories, and the table in the terminal."""
