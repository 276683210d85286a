"""Looking at runs in a browser: pages made here, of what run folders hold."""
