"""Commands: flags -> API call -> report -> exit code. Each module is imported when one of its commands is used."""
