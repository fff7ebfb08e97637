"""Commands on the versions of a repository: listing, verification, comparison, rollback, pruning and publishing."""
