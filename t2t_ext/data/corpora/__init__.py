"""Raw corpora: download, unpack, and read the formats that the world keeps parallel text in."""
