"""Reports as one HTML file: no script, no request to any host, plots as inline SVG."""
