"""A source, an exporter, a pass, a server and a gate for repogen, one module each."""
