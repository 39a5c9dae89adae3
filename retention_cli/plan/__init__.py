"""Making a plan, the plan as a value, saving it and reading it back."""
