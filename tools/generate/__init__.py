"""Writes what is derived from something else in the checkout: CRDs, chart, references, pictures, tables."""
