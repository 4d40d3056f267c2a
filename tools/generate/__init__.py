"""Makes whatever in the checkout is derived from something else; `files` says which file is made by which module."""
