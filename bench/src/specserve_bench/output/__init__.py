"""What is shown: progress, tables, JSON and the HTML report."""
