"""The one draft, verify, commit loop of all arms."""
