"""`raddle analyze`: options, the analysis as JSON and as text; the analysing is `analysis`."""
