"""Deploys versions of a repository to running servers: loads, tests, and goes back if a test fails.

``deploy.deploy`` plans the models and goes through the servers; ``rollout.Rollout`` does one server;
``live_server.LiveServer`` is the connection to it.
"""
