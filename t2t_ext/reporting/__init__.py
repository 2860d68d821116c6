"""Pages and figures that every report is made of."""
