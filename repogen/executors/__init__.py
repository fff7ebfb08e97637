"""Where the models of a build are exported and verified: on this machine, or on the nodes of a cluster."""
