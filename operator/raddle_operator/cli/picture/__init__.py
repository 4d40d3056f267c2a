"""Pictures of a machine: `layout` makes the `model`, `text` and `svg` draw it, `overlay` says who runs where."""
