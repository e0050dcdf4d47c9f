"""Tables, charts, styles and text on a terminal."""
