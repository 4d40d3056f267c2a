"""What a tuning shows: a table or JSON on standard output, and a report as HTML, SVG or JSON.

All of it is made of the tuning's document, so that a report made later of the JSON is the same.
"""
