"""One self-contained HTML file that shows a selection or a comparison; it asks the network nothing.

Python gathers facts, which travel as JSON inside the file; plain JavaScript turns them into text
and pictures. Data never become markup: names that look like tags stay names.
"""
