"""The loop that runs unattended: passes, who of several instances acts, metrics and health."""
