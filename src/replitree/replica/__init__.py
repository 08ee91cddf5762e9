"""The running replica: threads that perform the protocol's procedures, and the HTTP server around them."""
