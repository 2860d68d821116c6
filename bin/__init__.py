"""The commands: one thin file each. Nothing imports them."""
