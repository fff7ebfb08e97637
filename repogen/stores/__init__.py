"""Repositories in object stores: S3, Google Cloud Storage, Azure Blob Storage, and plug-ins.

A command runs on a private local copy of the repository, the working copy, with the same code as on a local repository;
then its changes are committed to the store. See docs/explanation/adr/0013-object-stores.md.
"""
