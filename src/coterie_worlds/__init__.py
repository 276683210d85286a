"""The worlds that come with Coterie, one file or folder each, and the small models that start in them."""
