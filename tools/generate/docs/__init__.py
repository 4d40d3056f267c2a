"""Makes documentation pages from what the code and the CRDs say."""
