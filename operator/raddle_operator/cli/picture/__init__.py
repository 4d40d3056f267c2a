"""Pictures of a machine: `layout` says what is drawn, `text` and `svg` draw it, `overlay` says who runs where."""
