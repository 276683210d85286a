"""The viewer: it shows run folders in a browser, as pages that are rendered on the server."""
